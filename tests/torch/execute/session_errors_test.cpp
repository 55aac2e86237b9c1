// Errors where none may be lost, writes that autograd does not see, and copies that are damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_device.hpp"
#include "torch/execute/session_core.hpp"
#include "torch/support/equal_parts.hpp"
#include "torch/support/failing_allocator.hpp"
#include "torch/support/program.hpp"
#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::Contains;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::with_rules;

constexpr std::int64_t kSide = 64;
constexpr std::size_t kSquareBytes = kSide * kSide * sizeof(float);

/// Trains without and with a session, and compares each step's gradient.
class Steps {
 public:
  using Loss = std::function<at::Tensor(const at::Tensor& weight, int step)>;

  explicit Steps(Loss loss) : loss_(std::move(loss)) { at::set_num_threads(1); }

  at::Tensor baseline(int step) { return gradient(step); }
  at::Tensor run(Session& session, int step) {
    Step scope = session.step();
    at::Tensor found = gradient(step);
    scope.end();
    return found;
  }
  [[nodiscard]] const at::Tensor& weight() const { return weight_; }
  bool equal(Session& session, int step) { return run(session, step).equal(baseline(step)); }

 private:
  at::Tensor gradient(int step) {
    weight_.mutable_grad() = at::Tensor();
    loss_(weight_, step).backward();
    return weight_.grad().clone();
  }

  testing::Deterministic deterministic_;
  at::Tensor weight_ = testing::weight({kSide, kSide});
  Loss loss_;
};

const char* const kRecomputeSines =
    "[[rule]]\nproducer = \"aten::sin\"\naction = \"recompute\"\n[[rule]]\naction = \"keep\"\n";

TEST(LostErrors, ACopyThatFailsBeforeAWriteIsAnErrorOfRecomputation) {
  testing::FailingAllocator* memory = nullptr;
  bool fails = false;
  Steps steps([&](const at::Tensor& weight, int) {
    const at::Tensor x = weight * 2;
    const at::Tensor y = x.sin();
    const at::Tensor z = y.cos();
    // The session copies x here, because y is recomputed from it.
    if (fails) memory->fail(kSquareBytes);
    x.variable_data().add_(1);
    if (fails) memory->fail(0);
    return z.sum();
  });
  Session session(with_rules(kRecomputeSines));
  testing::FailingAllocator allocator;
  memory = &allocator;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(steps.equal(session, i)) << i << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U);
  fails = true;
  EXPECT_THAT(testing::error_text<c10::Error>([&] { (void)steps.run(session, 4); }),
              HasSubstr("the operators of its forward pass are not all known (aten::add_: out of "
                        "memory, as the test wants it); repeat the step"));
  EXPECT_EQ(allocator.failures(), 1);
  fails = false;
  for (int i = 5; i < 7; ++i) EXPECT_TRUE(steps.equal(session, i)) << i << session.report();
  EXPECT_THAT(session.report().fallbacks,
              Contains(Pair(HasSubstr("an operator could not be recorded: aten::add_"), 1U)));
}

TEST(LostErrors, APrefetchWithoutMemoryIsLeftForLater) {
  class Scarce final : public testing::WrappingTorchDevice {
   public:
    explicit Scarce(int& failing) : failing_(&failing) {}
    [[nodiscard]] c10::Storage allocate(std::size_t bytes, Stream& stream) override {
      if (*failing_ > 0 && --*failing_ % 2 == 1) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, as the test wants it");
      }
      return inner().allocate(bytes, stream);
    }

   private:
    int* failing_;
  };
  const testing::Deterministic deterministic;
  at::Tensor weight = testing::weight({kSide, kSide});
  const auto gradient = [&] {
    weight.mutable_grad() = at::Tensor();
    at::Tensor x = weight;
    for (int i = 0; i < 12; ++i) x = at::mm(x, weight).sin();
    x.sum().backward();
    return weight.grad().clone();
  };
  int failing = 0;
  install_interception();
  const auto core = std::make_shared<SessionCore>(testing::offload_everything(),
                                                  std::make_unique<Scarce>(failing));
  core->register_fixed(weight, FixedReason::kParameter);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor without = gradient();
    core->begin_step({});
    // Never for a buffer that backward reads now: those come in pairs with a prefetch.
    failing = i < 3 ? 0 : 2;
    EXPECT_TRUE(gradient().equal(without)) << i << core->report();
    core->end_any_step();
  }
  EXPECT_GT(core->report().fallbacks.at(
                "no device memory to prefetch a buffer: reloaded when it was needed"),
            0U);
}

/// One allocation fails.
class OneMissing final : public testing::WrappingTorchDevice {
 public:
  explicit OneMissing(int& failing_in) : failing_in_(&failing_in) {}
  [[nodiscard]] c10::Storage allocate(std::size_t bytes, Stream& stream) override {
    if (*failing_in_ > 0 && --*failing_in_ == 0) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, as the test wants it");
    }
    return inner().allocate(bytes, stream);
  }

 private:
  int* failing_in_;
};

/// The CPU, on which chosen calls fail.
class FailingTorchDevice final : public testing::WrappingTorchDevice {
 public:
  enum class Call { kNone, kPeak, kCatchUp };

  explicit FailingTorchDevice(Call& failing) : failing_(&failing) {}
  void catch_up(Stream& stream) override {
    fail_if(Call::kCatchUp);
    inner().catch_up(stream);
  }
  [[nodiscard]] Bytes peak() const override {
    fail_if(Call::kPeak);
    return WrappingTorchDevice::peak();
  }

 private:
  void fail_if(Call call) const {
    if (*failing_ == call) throw DeviceError("device", "failed, as the test wants it");
  }

  Call* failing_;
};
using Failing = FailingTorchDevice::Call;

/// A session on that device, and a program that saves a dozen buffers.
class NoexceptErrors : public ::testing::Test {
 protected:
  void start(SessionOptions options) {
    install_interception();
    core_ = std::make_shared<SessionCore>(std::move(options),
                                          std::make_unique<FailingTorchDevice>(failing_));
    core_->register_fixed(weight_, FixedReason::kParameter);
  }
  [[nodiscard]] at::Tensor loss() const {
    at::Tensor x = weight_;
    for (int i = 0; i < 6; ++i) x = (x * 1.5).sin();
    return x.sum();
  }
  [[nodiscard]] bool is_right(const at::Tensor& loss) {
    weight_.mutable_grad() = at::Tensor();
    loss.backward();
    return weight_.grad().equal(right_);
  }
  [[nodiscard]] bool step_is_right() {
    core_->begin_step({});
    const bool right = is_right(loss());
    core_->end_any_step();
    return right;
  }

  testing::Deterministic deterministic_;
  at::Tensor weight_ =
      testing::weight({kSide / 2, kSide}).detach().repeat({2, 1}).set_requires_grad(true);
  at::Tensor right_ = [this] {
    at::set_num_threads(1);
    loss().backward();
    return weight_.grad();
  }();
  Failing failing_ = Failing::kNone;
  std::shared_ptr<SessionCore> core_;
};

TEST_F(NoexceptErrors, AStepThatCannotEndIsRecordedAgain) {
  SessionOptions options = testing::offload_everything();
  options.offload_window = 0_B;
  start(std::move(options));
  core_->begin_step({});
  at::Tensor last = weight_ * 1.5;
  const at::Tensor open = last.sin().sum();
  failing_ = Failing::kPeak;
  core_->end_any_step();
  failing_ = Failing::kNone;
  last.reset();  // Whether anybody needs it still is watched while a step records.
  EXPECT_THAT(core_->report().fallbacks,
              Contains(Pair("the end of a step failed: [device] failed, as the test wants it", 1U)))
      << core_->report();
  EXPECT_TRUE(core_->next_step_records());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(step_is_right()) << core_->report();
  weight_.mutable_grad() = at::Tensor();
  open.backward();
  EXPECT_TRUE(weight_.grad().equal((weight_.detach() * 1.5).cos() * 1.5));
  EXPECT_EQ(core_->report().recorded_steps, 1U) << core_->report();
  EXPECT_EQ(core_->report().fallbacks.size(), 1U) << core_->report();
}

TEST_F(NoexceptErrors, ATensorThatCannotBeDroppedIsCounted) {
  start(testing::offload_everything());
  EXPECT_TRUE(step_is_right());
  core_->begin_step({});
  at::Tensor dropped = loss();
  failing_ = Failing::kCatchUp;
  dropped.reset();
  failing_ = Failing::kNone;
  core_->end_any_step();
  EXPECT_THAT(core_->report().fallbacks,
              Contains(Pair("dropping a saved tensor failed: [device] failed, as the test wants it",
                            Gt(0U))))
      << core_->report();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step_is_right()) << core_->report();
}

TEST_F(NoexceptErrors, APartThatCannotBeFreedIsCounted) {
  start(with_rules("[[rule]]\naction = \"offload\"\nshard = true\n"));
  core_->set_shard_group(std::make_shared<testing::EqualParts>(2));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step_is_right());
  core_->begin_step({});
  (void)loss();
  failing_ = Failing::kCatchUp;
  core_->end_any_step();
  failing_ = Failing::kNone;
  EXPECT_THAT(core_->report().fallbacks,
              Contains(Pair("dropping a saved tensor failed: [device] failed, as the test wants it",
                            Gt(0U))))
      << core_->report();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step_is_right()) << core_->report();
}

TEST(LostErrors, AStepThatCouldNotBeginUsesUpNothing) {
  class Refusing final : public testing::WrappingTorchDevice {
   public:
    explicit Refusing(const bool& refuses) : refuses_(&refuses) {}
    Bytes take_peak() override {
      TORCH_CHECK_WITH(OutOfMemoryError, !*refuses_, "out of memory, as the test wants it");
      return inner().take_peak();
    }

   private:
    const bool* refuses_;
  };
  const testing::Deterministic deterministic;
  at::Tensor weight = testing::weight({kSide, kSide});
  const auto gradient = [&] {
    weight.mutable_grad() = at::Tensor();
    (weight * 2).sin().cos().sum().backward();
    return weight.grad().clone();
  };
  bool refuses = false;
  install_interception();
  const auto core = std::make_shared<SessionCore>(testing::offload_everything(),
                                                  std::make_unique<Refusing>(refuses));
  for (int i = 0; i < 3; ++i) {
    refuses = true;
    core->trace_next_step();
    EXPECT_THROW(core->begin_step({}), c10::OutOfMemoryError);
    refuses = false;
    EXPECT_TRUE(core->next_step_records());
  }
  const at::Tensor without = gradient();
  for (int i = 0; i < 3; ++i) {
    core->begin_step({});
    EXPECT_TRUE(gradient().equal(without));
    core->end_any_step();
  }
  EXPECT_NE(core->step_events(), nullptr);
  EXPECT_EQ(core->report().recorded_steps, 1U) << core->report();
  EXPECT_TRUE(core->report().fallbacks.empty()) << core->report();
}

TEST(LostErrors, AGatherWithoutMemoryIsBegunByTheNextBackward) {
  const testing::Deterministic deterministic;
  at::set_num_threads(1);
  at::Tensor weight = testing::weight({kSide / 2, kSide}).detach().repeat({2, 1});
  weight.set_requires_grad(true);
  const auto loss = [&] {
    weight.mutable_grad() = at::Tensor();
    at::Tensor x = weight;
    for (int i = 0; i < 6; ++i) x = (x * 1.5).sin();
    return x.sum();
  };
  install_interception();
  for (const char* const action : {"keep", "offload"}) {
    int failing_in = 0;
    const auto core = std::make_shared<SessionCore>(
        with_rules(std::string("[[rule]]\naction = \"") + action + "\"\nshard = true\n"),
        std::make_unique<OneMissing>(failing_in));
    core->register_fixed(weight, FixedReason::kParameter);
    core->set_shard_group(std::make_shared<testing::EqualParts>(2));
    int errors = 0;
    for (int i = 0; i < 16; ++i) {
      loss().backward();
      const at::Tensor right = weight.grad();
      core->begin_step({});
      const at::Tensor managed = loss();
      failing_in = std::max(0, i - 3);
      try {
        managed.backward({}, /*keep_graph=*/true);
      } catch (const c10::OutOfMemoryError&) {
        ++errors;
        weight.mutable_grad() = at::Tensor();
        managed.backward();
      }
      failing_in = 0;
      EXPECT_TRUE(weight.grad().equal(right)) << action << i;
      core->end_any_step();
    }
    EXPECT_GT(errors, 5) << action;
    EXPECT_GT(core->report().shard->gathers, 5U) << core->report();
  }
}

/// Knows where the session's host memory is.
class SpyDevice final : public testing::WrappingDevice {
 public:
  using WrappingDevice::WrappingDevice;
  [[nodiscard]] std::unique_ptr<Stream> make_stream(std::string name) override {
    return inner().make_stream(std::move(name));
  }
  [[nodiscard]] std::unique_ptr<Event> make_event(Timing timing) override {
    return inner().make_event(timing);
  }
  void synchronize() override { inner().synchronize(); }
  void do_register(std::span<std::byte> memory) override {
    inner().do_register(memory);
    memory_.push_back(memory);
  }
  /// After all copies: one bit of every page.
  void damage() {
    synchronize();
    for (const std::span<std::byte> memory : memory_) {
      for (std::size_t i = 0; i < memory.size(); i += 4096) memory[i] ^= std::byte{1};
    }
  }

 private:
  std::vector<std::span<std::byte>> memory_;
};

class SpyTorchDevice final : public testing::WrappingTorchDevice {
 public:
  [[nodiscard]] Device& device() override { return spy_; }
  void damage() { spy_.damage(); }

 private:
  SpyDevice spy_{inner().device()};
};

TEST(LostErrors, ADamagedCopyIsAnErrorAtTheEndOfItsStep) {
  const testing::Deterministic deterministic;
  at::Tensor weight = testing::weight({kSide, kSide});
  const auto gradient = [&](SpyTorchDevice* device) {
    weight.mutable_grad() = at::Tensor();
    at::Tensor x = weight;
    for (int i = 0; i < 6; ++i) x = at::mm(x, weight).sin();
    const at::Tensor loss = x.sum();
    x.reset();
    if (device != nullptr) device->damage();
    loss.backward();
    return weight.grad().clone();
  };
  install_interception();
  auto owned = std::make_unique<SpyTorchDevice>();
  SpyTorchDevice& device = *owned;
  SessionOptions options = testing::offload_everything();
  options.offload_window = 0_B;
  options.prefetch_window = 0_B;
  const auto core = std::make_shared<SessionCore>(std::move(options), std::move(owned));
  core->register_fixed(weight, FixedReason::kParameter);
  SessionCore::StepNumber number = 0;
  const auto step = [&](bool damaged) {
    number = core->begin_step({});
    at::Tensor found = gradient(damaged ? &device : nullptr);
    core->end_any_step();
    return found;
  };
  const at::Tensor right = gradient(nullptr);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(step(false).equal(right));
    core->throw_step_error();
  }
  core->verify_next_step();
  EXPECT_FALSE(step(true).equal(right));
  core->throw_error_of(number - 1);  // Not of that step.
  const std::string text =
      testing::error_text<VerificationError>([&] { core->throw_error_of(number); });
  core->throw_error_of(number);
  EXPECT_THAT(text, HasSubstr("[verify] step 4: 11 offloaded tensors had other bits than autograd "
                              "saved, so the gradients of this step are wrong"));
  EXPECT_THAT(text, HasSubstr("(16.0 KiB): it came back from host memory with other bits"));
  // What was damaged is kept now.
  EXPECT_EQ(core->report().demoted.size(), 11U) << core->report();
  EXPECT_TRUE(step(false).equal(right));
  core->throw_step_error();
}

TEST(UnseenWrites, AreSeenInStepsThatRecompute) {
  for (const char* const rules :
       {kRecomputeSines, "[[rule]]\naction = \"recompute\"\n",
        "[[rule]]\nproducer = \"aten::mul\"\naction = \"offload\"\n[[rule]]\naction = "
        "\"recompute\"\n"}) {
    Steps steps([](const at::Tensor& weight, int step) {
      const at::Tensor x = weight * 2;
      const at::Tensor y = x.sin();
      const at::Tensor z = y.cos() * x;
      if (step >= 3) x.variable_data().add_(1);
      const at::Tensor v = z.exp() * y;
      if (step >= 4) y.variable_data().mul_(0.5);
      return (v * x).sum();
    });
    Session session(with_rules(rules));
    for (int i = 0; i < 7; ++i) EXPECT_TRUE(steps.equal(session, i)) << rules << i;
  }
}

/// As a kernel of one's own would, which the dispatcher does not see.
void write_unseen(const at::Tensor& x) { static_cast<float*>(x.data_ptr())[5] += 1; }

TEST(UnseenWrites, AreFoundByVerificationOfOffloadedTensors) {
  for (const Bytes window : {0_B, 32_KiB}) {
    for (const bool by_operator : {true, false}) {
      SessionOptions options = testing::offload_everything();
      options.verify_every = 1;
      options.offload_window = window;
      Steps steps([&](const at::Tensor& weight, int step) {
        at::Tensor loss;
        {
          const at::Tensor x = weight * 2;
          loss = (x * x).sum();
          if (step >= 3 && by_operator) x.variable_data().add_(1);
          if (step >= 3 && !by_operator) write_unseen(x);
        }
        // Releases x.
        at::Tensor y = weight;
        for (int i = 0; i < 6; ++i) y = (y * 1.5).sin();
        return loss + y.sum();
      });
      Session session(std::move(options));
      int errors = 0;
      for (int i = 0; i < 7; ++i) {
        const at::Tensor right = steps.baseline(i);
        try {
          EXPECT_TRUE(steps.run(session, i).equal(right)) << i << session.report();
        } catch (const VerificationError& error) {
          ++errors;
          EXPECT_THAT(error.what(),
                      HasSubstr("it was written in place after autograd had saved it"));
        }
      }
      EXPECT_EQ(errors, by_operator ? 0 : 1) << to_string(window) << session.report();
    }
  }
}

TEST(UnseenWrites, AreRememberedByLaterRecordingSteps) {
  SessionOptions options = testing::offload_everything();
  options.offload_window = 0_B;
  Steps steps([](const at::Tensor& weight, int) {
    const at::Tensor x = weight * 2;
    const at::Tensor loss = (x * x).sum();
    write_unseen(x);
    return loss + (weight.sin() * weight.cos()).sum();
  });
  Session session(std::move(options));
  session.register_fixed(steps.weight(), FixedReason::kParameter);
  EXPECT_THROW((void)steps.run(session, 0), VerificationError);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(steps.equal(session, i)) << i << session.report();
  session.record_next_step();
  for (int i = 4; i < 8; ++i) EXPECT_TRUE(steps.equal(session, i)) << i << session.report();
  EXPECT_EQ(session.report().recorded_steps, 2U);
  EXPECT_GT(session.report().bytes_out, 0_B);
}

/// The sum of x * x; its backward overwrites what it saved, as fused kernels do to save memory.
struct Scribble : torch::autograd::Function<Scribble> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return (x * x).sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor result = x * gradients[0] * 2;
    static_cast<float*>(x.data_ptr())[5] = 9;
    return {result};
  }
};

TEST(UnseenWrites, OfABackwardIntoWhatItReadAreFoundByVerification) {
  for (const char* const rules :
       {"[[rule]]\naction = \"recompute\"\n",
        "[[rule]]\nproducer = \"aten::add\"\naction = \"recompute\"\n[[rule]]\naction = "
        "\"keep\"\n"}) {
    Steps steps([](const at::Tensor& weight, int) {
      const at::Tensor x = weight.sin();
      // What is saved first is read last.
      const at::Tensor first = (x * x.t()).sum();
      const at::Tensor y = x + 1;
      const at::Tensor second = (y * y).sum();
      return first + second + Scribble::apply(x);
    });
    Session session(with_rules(rules));
    session.register_fixed(steps.weight(), FixedReason::kParameter);
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(steps.equal(session, i)) << rules << i;
    EXPECT_EQ(session.report().demoted.size(), 1U) << session.report();
  }
}

TEST(UnseenWrites, OfBackwardIntoWhatRecomputationStartsFromAreErrors) {
  bool writes = false;
  at::Tensor other = testing::weight({kSide, kSide});
  at::Tensor x;
  other.register_hook([&](const at::Tensor&) {
    const at::NoGradGuard no_gradients;
    if (writes) x.add_(1);
  });
  Steps steps([&](const at::Tensor& weight, int) {
    x = at::ones({kSide, kSide}) * 0.5;
    const at::Tensor first = (x * other).sum();
    const at::Tensor second = (x.sin() * weight).sum();
    first.backward();
    return second;
  });
  Session session(with_rules(kRecomputeSines));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(steps.equal(session, i)) << i << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U);
  writes = true;
  EXPECT_THAT(testing::error_text<c10::Error>([&] { (void)steps.run(session, 4); }),
              HasSubstr("was written in place after it was used"));
  writes = false;
  for (int i = 5; i < 7; ++i) EXPECT_TRUE(steps.equal(session, i)) << i << session.report();
}

TEST(UnseenWrites, IntoATensorThatIsNotDenseAreAutogradsOwnError) {
  const at::Tensor ones = at::ones({kSide, kSide});
  Session session(testing::offload_everything());
  at::Tensor weight = testing::weight({kSide, kSide});
  for (int i = 0; i < 3; ++i) {
    Step step = session.step();
    at::Tensor sparse = ones.to_sparse();
    const at::Tensor loss = at::mm(sparse, weight).sum();
    sparse.mul_(2);
    EXPECT_THAT(testing::error_text<c10::Error>([&] { loss.backward(); }),
                HasSubstr("has been modified by an inplace operation"));
  }
}

}  // namespace
}  // namespace spillway
