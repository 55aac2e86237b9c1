#include "train/checkpoint/resume.hpp"

#include <sstream>

#include <ATen/core/grad_mode.h>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

/// The checkpoint's tensors in the order of `own`.
std::vector<NamedTensor> read_like(const Checkpoint& checkpoint,
                                   const std::vector<NamedTensor>& own, const TakePart& part) {
  std::vector<std::string> names;
  for (const NamedTensor& each : own) names.push_back(each.name);
  std::vector<NamedTensor> found = checkpoint.read(names);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (part) found[i].tensor = part(own[i].name, found[i].tensor);
    const std::string wanted = describe(own[i].tensor);
    const std::string given = describe(found[i].tensor);
    if (wanted == given) continue;
    throw IoError("checkpoint", checkpoint.path().string() + ": " + wanted + " wanted for " +
                                    own[i].name + ", found " + given + "; it is of another model");
  }
  return found;
}

}  // namespace

void save(const CheckpointWriter& writer, int rank, const Optimizer& optimizer) {
  writer.write(rank, optimizer.parameters(), optimizer.state());
}

void restore(const Checkpoint& checkpoint, Optimizer& optimizer, const TakePart& part) {
  const std::vector<NamedTensor>& parameters = optimizer.parameters();
  const std::vector<NamedTensor> weights = read_like(checkpoint, parameters, part);
  const std::vector<NamedTensor> state = read_like(checkpoint, optimizer.state(), part);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    parameters[i].tensor.copy_(weights[i].tensor);
  }
  optimizer.set_state(state);
}

}  // namespace spillway::app
