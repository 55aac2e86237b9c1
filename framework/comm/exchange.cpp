#include "spillway/comm/exchange.hpp"

#include <numeric>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "spillway/core/error.hpp"
#include "spillway/torch/untimed_wait.hpp"

namespace spillway {
namespace {

using Splits = std::vector<std::int64_t>;

at::Tensor all_to_all(const at::Tensor& rows, const Splits& receive, const Splits& send,
                      const std::string& group) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("_c10d_functional::all_to_all_single", "")
                                    .typed<at::Tensor(const at::Tensor&, at::SymIntArrayRef,
                                                      at::SymIntArrayRef, std::string)>();
  return kOperator.call(rows.contiguous(), c10::fromIntArrayRefSlow(receive),
                        c10::fromIntArrayRefSlow(send), group);
}

at::Tensor wait_for(const at::Tensor& tensor) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
                                    .typed<at::Tensor(const at::Tensor&)>();
  at::Tensor there;
  untimed_wait([&] { there = kOperator.call(tensor); });
  return there;
}

void check(const Group& group, const at::Tensor& rows, const Splits& send, const Splits& receive) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument("exchange", "group " + group.name() + ": " + what);
  };
  const auto members = static_cast<std::size_t>(group.size());
  if (send.size() != members || receive.size() != members) {
    refuse("numbers of rows for " + std::to_string(send.size()) + " and from " +
           std::to_string(receive.size()) + " members; there are " + std::to_string(members));
  }
  const std::int64_t sent = std::accumulate(send.begin(), send.end(), std::int64_t{0});
  if (rows.dim() == 0 || rows.size(0) != sent) {
    refuse(std::to_string(sent) + " rows are to be sent, " +
           std::to_string(rows.dim() == 0 ? 1 : rows.size(0)) +
           " are there; give every row to a member");
  }
}

}  // namespace

/// What start and wait of one exchange both know.
struct RowExchange::PendingExchange {
  std::string group;
  Splits send, receive;
  at::Tensor back;  // Gradients on their way, from wait's backward to start's.
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Nodes of autograd keep values of their own in IValues only.
template <typename T>
struct SavedValue final : torch::CustomClassHolder {
  explicit SavedValue(std::shared_ptr<T> what) : value(std::move(what)) {}
  std::shared_ptr<T> value;
};

template <typename T>
void save(AutogradContext* context, std::shared_ptr<T> value) {
  context->saved_data["exchange"] =
      c10::IValue::make_capsule(c10::make_intrusive<SavedValue<T>>(std::move(value)));
}

template <typename T>
T& saved(AutogradContext* context) {
  return *static_cast<SavedValue<T>&>(*context->saved_data["exchange"].toCapsule()).value;
}

template <typename Pending>
class Start final : public torch::autograd::Function<Start<Pending>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::shared_ptr<Pending>& pending) {
    save(context, pending);
    return all_to_all(rows, pending->receive, pending->send, pending->group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& /*gradients*/) {
    auto& pending = saved<Pending>(context);
    return {wait_for(std::exchange(pending.back, {})), {}};
  }
};

template <typename Pending>
class Wait final : public torch::autograd::Function<Wait<Pending>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::shared_ptr<Pending>& pending) {
    save(context, pending);
    return wait_for(rows);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& pending = saved<Pending>(context);
    pending.back = all_to_all(gradients[0], pending.send, pending.receive, pending.group);
    return {gradients[0], {}};
  }
};

}  // namespace

RowExchange RowExchange::start(const Group& group, const at::Tensor& rows,
                               std::vector<std::int64_t> send, std::vector<std::int64_t> receive) {
  check(group, rows, send, receive);
  RowExchange exchange;
  if (group.size() == 1) {
    exchange.rows_ = rows;
    return exchange;
  }
  exchange.pending_ = std::make_shared<PendingExchange>();
  exchange.pending_->group = group.process_group()->getGroupName();
  exchange.pending_->send = std::move(send);
  exchange.pending_->receive = std::move(receive);
  exchange.rows_ = Start<PendingExchange>::apply(rows, exchange.pending_);
  return exchange;
}

at::Tensor RowExchange::wait() {
  at::Tensor rows = std::exchange(rows_, {});
  return pending_ == nullptr ? rows : Wait<PendingExchange>::apply(rows, pending_);
}

at::Tensor gather_rows(const Group& group, const at::Tensor& tensor) {
  if (group.size() == 1) return tensor;
  // Functional gathers are coalesced ones, which torch's gloo cannot do with CUDA tensors: it reads
  // them as if they were in host memory (pytorch/pytorch#152645).
  if (tensor.is_cuda() &&
      group.process_group()->getBackend(at::kCUDA)->getBackendName() == "gloo") {
    return group.all_gather(tensor.detach()).flatten(0, 1);
  }
  static const auto kOperator =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("_c10d_functional::all_gather_into_tensor", "")
          .typed<at::Tensor(const at::Tensor&, std::int64_t, std::string)>();
  return wait_for(kOperator.call(tensor.detach().contiguous(), group.size(),
                                 group.process_group()->getGroupName()));
}

}  // namespace spillway
