#include "torch/replay/collective_results.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace spillway {
namespace {

void wait_for_tensor(const at::Tensor& tensor) {
  static const auto kWait = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
                                .typed<at::Tensor(const at::Tensor&)>();
  if (tensor.defined()) (void)kWait.call(tensor);
}

}  // namespace

ResultsReady results_of(const OperatorTraits& collective) {
  if (collective.name.starts_with("spillway_group::") || waits_for_results(collective)) {
    return ResultsReady::kOnReturn;
  }
  return collective.name.find("c10d_functional") != std::string::npos ? ResultsReady::kAfterWait
                                                                      : ResultsReady::kUnknown;
}

bool waits_for_results(const OperatorTraits& traits) {
  return traits.collective && traits.name.ends_with("c10d_functional::wait_tensor");
}

void wait_for_results(const OperatorTraits& collective, const torch::jit::Stack& results) {
  const bool by_operator = results_of(collective) == ResultsReady::kAfterWait;
  for (const c10::IValue& result : results) {
    if (result.isObject()) {
      const auto work = result.toCustomClass<c10d::Work>();
      if (work) work->wait();
    } else if (by_operator && result.isTensor()) {
      wait_for_tensor(result.toTensor());
    } else if (by_operator && result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) wait_for_tensor(tensor);
    }
  }
}

}  // namespace spillway
