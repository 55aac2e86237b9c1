/// A recipe book that records what a test does and recomputes values; for tests of the parts of
/// recomputation without a session.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "torch/execute/recipe.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/hooks/step_thread.hpp"
#include "torch/replay/replay.hpp"

namespace spillway::testing {

/// Repeats the job's calls; returns how many kernels repeated several of them.
inline int replay(RecipeBook& book, const Replay::Job& job, ChainRunner* chains = nullptr) {
  Replay replay(book, job, chains != nullptr);
  const int kernels = replay.run(chains);
  (void)replay.finish(book);
  return kernels;
}

class BookRecorder final : public CallListener {
 public:
  /// Records the operators that `program` calls; returns its result.
  template <typename Program>
  auto follow(Program&& program) {
    struct Following {
      explicit Following(StepThread::Session session)
          : step(StepThread::begin(std::move(session))) {}
      ~Following() { step->end(); }
      std::shared_ptr<StepThread> step;
    } const following({alive_, nullptr, this, false});
    return program();
  }

  int call_begins(const OperatorTraits& traits, c10::ArrayRef<const c10::IValue> inputs) override {
    return book_.begin(traits, inputs, 0, next_++);
  }
  void call_ended(int call, const std::vector<c10::IValue>& outputs) override {
    book_.end(call, outputs);
  }
  void call_failed(const char* name, const std::exception_ptr& /*error*/) noexcept override {
    book_.mark_incomplete(name);
  }

  /// Treats it as a parameter from now on.
  void fix(const at::Tensor& tensor) {
    fixed_.emplace(tensor.storage().unsafeGetStorageImpl(),
                   FixedStorage{.parameter = true, .number = fixed_.size()});
  }

  [[nodiscard]] RecipeBook& book() { return book_; }
  [[nodiscard]] ValueId value_of(const at::Tensor& tensor) { return book_.saved(tensor); }
  /// Empty if its producer is unknown.
  [[nodiscard]] std::string maker_of(ValueId value) const {
    const CallId maker = book_.value(value).maker;
    return maker < 0 ? "" : book_.call(maker).traits->name;
  }
  [[nodiscard]] std::string maker_of(const at::Tensor& tensor) {
    return maker_of(value_of(tensor));
  }

  /// The calls to repeat to recompute these values from values that came from outside.
  [[nodiscard]] Replay::Job job_for(const std::vector<ValueId>& values) const {
    Replay::Job job;
    std::set<CallId> calls;
    for (const ValueId value : values) {
      job.wanted.insert(value);
      const auto there = [this](ValueId id) {
        const Value& each = book_.value(id);
        return each.recomputed || each.fixed || each.maker < 0;
      };
      for (const CallId call : calls_to_repeat(book_, value, there)) calls.insert(call);
    }
    job.calls.assign(calls.begin(), calls.end());
    for (const CallId call : job.calls) {
      for (const TensorArgument& argument : book_.call(call).tensors) {
        const Value& value = book_.value(argument.value);
        if (value.maker >= 0 && !value.fixed) continue;
        if (auto alive = value.pin.lock()) {
          job.inputs[argument.value] = c10::Storage(std::move(alive));
        }
      }
    }
    return job;
  }

  /// The recomputed value, viewed as by `window`.
  [[nodiscard]] at::Tensor recompute(ValueId value, const TensorWindow& window) {
    if (!book_.value(value).recomputed) (void)replay(book_, job_for({value}));
    return window.on(book_.value(value).recomputed);
  }
  /// The recomputed value of the tensor.
  [[nodiscard]] at::Tensor recompute(const at::Tensor& tensor) {
    return recompute(value_of(tensor), TensorWindow(tensor));
  }

 private:
  std::map<const c10::StorageImpl*, FixedStorage> fixed_;
  RecipeBook book_{
      [this](const c10::StorageImpl* storage) {
        const auto found = fixed_.find(storage);
        return found == fixed_.end() ? std::nullopt : std::optional(found->second);
      },
      [](const at::Tensor& weight) { return static_cast<std::uint64_t>(weight.numel()); }, false};
  std::shared_ptr<void> alive_ = std::make_shared<int>();
  int next_ = 0;
};

}  // namespace spillway::testing
