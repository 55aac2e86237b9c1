#include "torch/hooks/interception.hpp"

#include <mutex>
#include <utility>

#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "spillway/torch/unmanaged.hpp"
#include "torch/hooks/expected_saves.hpp"
#include "torch/hooks/step_thread.hpp"

namespace spillway {
namespace {

namespace autograd = torch::autograd;

thread_local int t_unmanaged = 0;

/// Whether torch.compile runs operators only to trace them. What is saved then is never used, and
/// no later step saves it again.
bool is_tracing() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  return Modes::any_modes_set() && (Modes::get_mode(Key::FAKE) || Modes::get_mode(Key::PROXY) ||
                                    Modes::get_mode(Key::FUNCTIONAL));
}

class Hooks final : public autograd::SavedVariableHooks {
 public:
  explicit Hooks(StepThread::Locked session) : session_(std::move(session)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    // Called once, right after the constructor.
    const StepThread::Locked session = std::exchange(session_, {});
    saved_ = session.interceptor->pack(tensor);
  }
  at::Tensor call_unpack_hook() override { return saved_->unpack(); }

 private:
  StepThread::Locked session_;
  std::unique_ptr<SavedTensor> saved_;
};

/// Forwards everything to the previous engine except the request for hooks.
class InterceptingEngine final : public autograd::Engine {
 public:
  explicit InterceptingEngine(autograd::Engine& before) : before_(&before) {}

  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    // What is saved during backward belongs to a recomputed forward or to a double backward.
    const StepThread* const step = StepThread::current();
    if (step == nullptr || t_unmanaged > 0 || autograd::get_current_graph_task_id() != -1 ||
        at::SavedTensorDefaultHooks::get_hooks().has_value() || is_tracing()) {
      return before_->get_default_saved_variable_hooks();
    }
    if (next_save_is_left()) return before_->get_default_saved_variable_hooks();
    StepThread::Locked session = step->lock();
    if (session.owner == nullptr) return before_->get_default_saved_variable_hooks();
    return std::make_unique<Hooks>(std::move(session));
  }

  autograd::variable_list execute(const autograd::edge_list& roots,
                                  const autograd::variable_list& inputs, bool keep_graph,
                                  bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return before_->execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& task, std::shared_ptr<autograd::Node> root,
      autograd::InputBuffer&& input) override {
    return before_->execute_with_graph_task(task, std::move(root), std::move(input));
  }

  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return before_->make_anomaly_metadata();
  }

 private:
  autograd::Engine* before_;
};

// Never destroyed: torch may ask until the very end of the process.
InterceptingEngine* g_engine = nullptr;

autograd::Engine& intercepting_engine() { return *g_engine; }

}  // namespace

void install_interception() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_engine = new InterceptingEngine(autograd::Engine::get_default_engine());
    autograd::set_default_engine_stub(&intercepting_engine);
  });
}

void enter_unmanaged() noexcept { ++t_unmanaged; }
void leave_unmanaged() noexcept { --t_unmanaged; }

Unmanaged::Unmanaged() noexcept { enter_unmanaged(); }
Unmanaged::~Unmanaged() { leave_unmanaged(); }

}  // namespace spillway
