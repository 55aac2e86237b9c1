// Memory whose owners free it after forward and fill it again, or put it elsewhere, before backward
// reads it: what replays may read of it.
#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/torch/scope.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/support/program.hpp"
#include "torch/support/resized_storage.hpp"

namespace spillway {
namespace {

using testing::Program;
using testing::recompute_everything;

constexpr std::int64_t kWidth = 64;
constexpr const char* kReadsFreedWeight =
    "its recipe reads a weight that its owner frees, which only backward of its own layer finds";

/// Has memory only around its uses.
class Gathered {
 public:
  explicit Gathered(at::Tensor weight)
      : weight_(std::move(weight)), content_(weight_.detach().clone()) {
    free();
  }
  [[nodiscard]] const at::Tensor& weight() const { return weight_; }
  void gather() const {
    if (weight_.storage().nbytes() != 0) return;
    testing::resize_storage(weight_.storage(), content_.nbytes());
    weight_.variable_data().copy_(content_);
  }
  void free() const { testing::resize_storage(weight_.storage(), 0); }

 private:
  at::Tensor weight_;
  at::Tensor content_;
};

/// A layer and the weight that it reads.
struct Layer {
  int number = 0;
  std::size_t weight = 0;
};

at::Tensor run(const Layer& layer, const at::Tensor& x, const std::shared_ptr<Gathered>& weight) {
  const Scope scope("layers." + std::to_string(layer.number));
  weight->gather();
  const at::Tensor y = at::gelu(at::mm(x, weight->weight()));
  y.register_hook([weight](const at::Tensor&) { weight->gather(); });
  weight->free();
  return y;
}

/// Three weights that are freed after each layer that reads one of them.
testing::MakeProgram layers(std::function<std::vector<Layer>(int step)> layers_of) {
  return [layers_of = std::move(layers_of)] {
    Program program;
    for (int i = 0; i < 3; ++i) program.weights.push_back(testing::weight({kWidth, kWidth}));
    program.step = [weights = program.weights, input = at::randn({kWidth, kWidth}), layers_of](
                       Step*, int step) {
      std::vector<std::shared_ptr<Gathered>> gathered;
      for (const at::Tensor& each : weights) gathered.push_back(std::make_shared<Gathered>(each));
      at::Tensor x = input;
      for (const Layer& each : layers_of(step)) x = run(each, x, gathered[each.weight]);
      at::Tensor loss = x.square().mean();
      loss.backward();
      for (const auto& each : gathered) each->gather();
      return loss;
    };
    return program;
  };
}

// What layer 0 reads is there for layer 1 only because layer 2 reads it, too.
TEST(FreedWeights, AreNotReadByReplaysForOtherLayers) {
  Session session(recompute_everything());
  const auto layers_of = [](int step) {
    std::vector<Layer> all{{0, 0}, {1, 1}, {2, 0}};
    if (step >= 4) all.pop_back();
    return all;
  };
  EXPECT_EQ(testing::difference_of(layers(layers_of), session, 7), 0) << session.report();
  const SessionReport report = session.report();
  EXPECT_GT(report.repeated_calls, 0U) << report;
  const ChunkProfile& chunk = session.profile()->chunks.at(0);
  const auto reason_of = [&](const std::string& saver, int layer) -> std::string {
    for (const BufferProfile& each : chunk.buffers) {
      if (each.position.saver == saver && each.layer == layer) return each.recipe.reason;
    }
    return "there is none";
  };
  // Two layers read one weight, one layer the other.
  EXPECT_EQ(reason_of("aten::gelu", 0), kReadsFreedWeight) << report;
  EXPECT_EQ(reason_of("aten::gelu", 2), kReadsFreedWeight) << report;
  EXPECT_EQ(reason_of("aten::gelu", 1), "") << report;
}

TEST(FreedWeights, AreReadByReplaysForTheirOwnLayer) {
  Session session(recompute_everything());
  const auto layers_of = [](int) { return std::vector<Layer>{{0, 0}, {1, 1}, {2, 2}}; };
  EXPECT_EQ(testing::difference_of(layers(layers_of), session), 0) << session.report();
  const SessionReport report = session.report();
  // The three products; what enters a layer is kept.
  EXPECT_EQ(report.repeated_calls, 3U) << report;
  EXPECT_TRUE(report.demoted.empty()) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

TEST(FreedWeights, AreFoundWithoutAProfileToo) {
  const auto layers_of = [](int step) {
    std::vector<Layer> all{{0, 0}, {1, 1}, {2, 0}};
    if (step >= 4) all.pop_back();
    return all;
  };
  // Its owner does not free it when the plan is made.
  Plan plan;
  {
    Session session(recompute_everything());
    const testing::MakeProgram make = [] {
      Program program;
      for (int i = 0; i < 3; ++i) program.weights.push_back(testing::weight({kWidth, kWidth}));
      program.step = [weights = program.weights](Step*, int) {
        at::Tensor x = at::randn({kWidth, kWidth});
        for (const Layer& each : {Layer{0, 0}, Layer{1, 1}, Layer{2, 0}}) {
          const Scope scope("layers." + std::to_string(each.number));
          x = at::gelu(at::mm(x, weights[each.weight]));
        }
        at::Tensor loss = x.square().mean();
        loss.backward();
        return loss;
      };
      return program;
    };
    EXPECT_EQ(testing::difference_of(make, session), 0);
    plan = *session.plan();
  }
  SessionOptions options = recompute_everything();
  options.plan = plan;
  Session session(std::move(options));
  EXPECT_EQ(testing::difference_of(layers(layers_of), session, 7), 0) << session.report();
  const SessionReport report = session.report();
  EXPECT_EQ(report.recorded_steps, 0U) << report;
  const auto names_it = [](const auto& each) {
    return each.first.find(kReadsFreedWeight) != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(report.fallbacks, names_it)) << report;
}

/// An activation whose owner takes its memory after its use and gives it other memory, with the old
/// content, before backward.
class Moved {
 public:
  explicit Moved(const at::Tensor& tensor) : storage_(tensor.storage()) {
    c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
    bytes_ = impl->nbytes();
    memory_ = impl->set_data_ptr(c10::DataPtr(nullptr, at::kCPU));
    impl->set_nbytes(0);
  }
  /// `other`: not the memory that it had.
  void restore(bool other) {
    if (other) {
      before_ = std::exchange(memory_, c10::GetCPUAllocator()->allocate(bytes_));
      std::memcpy(memory_.get(), before_.get(), bytes_);
      std::memset(before_.get(), 0x7b, bytes_);
    }
    c10::StorageImpl* const impl = storage_.unsafeGetStorageImpl();
    impl->set_data_ptr_noswap(std::move(memory_));
    impl->set_nbytes(bytes_);
  }

 private:
  c10::Storage storage_;
  c10::DataPtr memory_;
  c10::DataPtr before_;  // Not handed out again meanwhile.
  std::size_t bytes_ = 0;
};

testing::MakeProgram moving(std::function<bool(int step)> is_elsewhere) {
  return [is_elsewhere = std::move(is_elsewhere)] {
    Program program;
    for (int i = 0; i < 2; ++i) program.weights.push_back(testing::weight({kWidth, kWidth}));
    program.step = [weights = program.weights, input = at::randn({kWidth, kWidth}), is_elsewhere](
                       Step*, int step) {
      const at::Tensor made = at::mm(input, weights[0]) * 1.5;
      const at::Tensor gated = made * made.sigmoid();
      at::Tensor loss = at::mm(gated, weights[1]).square().mean();
      Moved owner(made);
      owner.restore(is_elsewhere(step));
      loss.backward();
      return loss;
    };
    return program;
  };
}

TEST(MovedMemory, IsNotReadByReplaysWhereItWasFoundToMove) {
  SessionOptions options = recompute_everything();
  options.offload_window = Bytes(0);
  Session session(std::move(options));
  // In the step that verifies it is where it was.
  const auto is_elsewhere = [](int step) { return step == 0 || step > 2; };
  EXPECT_EQ(testing::difference_of(moving(is_elsewhere), session, 6), 0) << session.report();
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
}

constexpr const char* kRecomputedRoot =
    "the owner of memory that recomputation starts from freed or replaced it: what it held was "
    "recomputed, too, and compared with what its owner put back";

/// What the owner of an activation has done to its memory when backward begins.
enum class Owner { kRestoresIt, kMovesIt, kChangesIt, kWritesIntoIt };

/// A product that is kept, and what is recomputed from it. `early`: operators run while
/// the owner has its memory.
class KeptRoot {
 public:
  KeptRoot(bool early, std::function<Owner(int step)> owner)
      : early_(early), owner_(std::move(owner)) {}

  [[nodiscard]] static SessionOptions options() {
    return testing::with_rules(
        "[[rule]]\nproducer = \"aten::mul\"\naction = \"keep\"\n"
        "[[rule]]\naction = \"recompute\"\n");
  }

  [[nodiscard]] testing::MakeProgram program() const {
    return [*this] {
      Program program;
      for (int i = 0; i < 2; ++i) program.weights.push_back(testing::weight({kWidth, kWidth}));
      program.step = [*this, weights = program.weights, input = at::randn({kWidth, kWidth})](
                         Step*, int step) {
        at::Tensor loss = forward(weights, input, step);
        loss.backward();
        return loss;
      };
      return program;
    };
  }

 private:
  [[nodiscard]] at::Tensor forward(const std::vector<at::Tensor>& weights, const at::Tensor& input,
                                   int step) const {
    const at::Tensor made = at::mm(input, weights[0]) * 1.5;
    const at::Tensor squared = made.square();  // Saves it before the sigmoid is saved.
    const at::Tensor gated = squared * made.sigmoid();
    std::optional<Moved> owner;
    if (early_) owner.emplace(made);
    at::Tensor loss = at::mm(gated, weights[1]).square().mean();
    if (!early_) owner.emplace(made);
    owner->restore(owner_(step) != Owner::kRestoresIt);
    if (owner_(step) == Owner::kChangesIt) static_cast<float*>(made.data_ptr())[7] += 1;
    if (owner_(step) == Owner::kWritesIntoIt) made.variable_data().view(-1)[7] += 1;
    return loss;
  }

  bool early_;
  std::function<Owner(int step)> owner_;
};

TEST(MovedMemory, IsRecomputedAndComparedWhereAReplayFindsItFirst) {
  Session session(KeptRoot::options());
  const auto owner = [](int step) { return step < 3 ? Owner::kRestoresIt : Owner::kMovesIt; };
  EXPECT_EQ(testing::difference_of(KeptRoot(false, owner).program(), session, 6), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.repeated_calls, 0U) << report;
  // Later steps do not start from it.
  ASSERT_TRUE(report.fallbacks.contains(kRecomputedRoot)) << report;
  EXPECT_LE(report.fallbacks.at(kRecomputedRoot), 2U) << report;
}

TEST(MovedMemory, IsFoundByTheRecordingStepAlsoWhereItComesBack) {
  Session session(KeptRoot::options());
  const auto owner = [](int step) { return step < 3 ? Owner::kRestoresIt : Owner::kMovesIt; };
  EXPECT_EQ(testing::difference_of(KeptRoot(true, owner).program(), session, 6), 0);
  const SessionReport report = session.report();
  EXPECT_GT(report.repeated_calls, 0U) << report;
  EXPECT_FALSE(report.fallbacks.contains(kRecomputedRoot)) << report;
  EXPECT_TRUE(report.demoted.empty()) << report;
}

/// The losses and gradients of steps, each with what it threw, if anything.
struct StepsWithErrors {
  std::vector<at::Tensor> losses;
  std::vector<std::vector<at::Tensor>> gradients;
  std::vector<std::string> errors;
};

/// All steps but one, which must have thrown `error`, are equal and have thrown nothing.
void expect_one_error(const StepsWithErrors& without, const StepsWithErrors& with,
                      std::size_t at_step, const std::string& error) {
  for (std::size_t i = 0; i < with.errors.size(); ++i) {
    if (i == at_step) {
      EXPECT_THAT(with.errors[i], ::testing::HasSubstr(error));
      continue;
    }
    EXPECT_EQ(with.errors[i], "") << "step " << i;
    ASSERT_TRUE(with.losses[i].defined());
    EXPECT_TRUE(with.losses[i].equal(without.losses[i])) << "step " << i;
    EXPECT_EQ(testing::count_different(with.gradients[i], without.gradients[i]), 0) << "step " << i;
  }
}

StepsWithErrors run_steps(const testing::MakeProgram& make, Session* session, int steps) {
  at::manual_seed(3);
  const Program program = make();
  StepsWithErrors all;
  for (int i = 0; i < steps; ++i) {
    for (const at::Tensor& each : program.weights) each.mutable_grad() = at::Tensor();
    all.errors.emplace_back();
    try {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      all.losses.push_back(program.step(nullptr, i).detach().clone());
      if (step) step->end();
    } catch (const std::exception& error) {
      all.errors.back() = error.what();
      all.losses.resize(all.errors.size());
    }
    all.gradients.emplace_back();
    for (const at::Tensor& each : program.weights) {
      if (each.grad().defined()) all.gradients.back().push_back(each.grad().clone());
    }
  }
  return all;
}

// Nothing has what it was any more: neither the owner nor, for sure, the recipe.
TEST(MovedMemory, ThatIsPutBackWithOtherBitsIsAnErrorOfItsStepOnly) {
  const testing::Deterministic deterministic;
  for (const Owner changes : {Owner::kChangesIt, Owner::kWritesIntoIt}) {
    Session session(KeptRoot::options());
    const auto owner = [&](int step) { return step < 3 ? Owner::kRestoresIt : changes; };
    const testing::MakeProgram make = KeptRoot(false, owner).program();
    const StepsWithErrors without = run_steps(make, nullptr, 6);
    const StepsWithErrors with = run_steps(make, &session, 6);
    expect_one_error(without, with, 3, "did not put the same bits back");
  }
}

/// As a tensor that was made before the step.
at::Tensor recorded_by_nobody(const std::function<at::Tensor()>& make) {
  const RecordingPause pause;
  return make();
}

// Autograd has no use for the input, so its owner may free it. Nothing else has its content.
TEST(MovedMemory, ThatNothingRecomputesIsAnErrorOfItsStepOnly) {
  const testing::MakeProgram make = [] {
    Program program;
    program.weights.push_back(testing::weight({kWidth, kWidth}));
    program.step = [weights = program.weights, batch = at::randn({kWidth, kWidth})](Step*,
                                                                                    int step) {
      const at::Tensor input = recorded_by_nobody([&] { return batch * (step + 1); });
      at::Tensor loss = (input.sigmoid() * weights[0]).square().mean();
      Moved owner(input);
      if (step < 3) owner.restore(false);
      loss.backward();
      return loss;
    };
    return program;
  };
  Session session(recompute_everything());
  const testing::Deterministic deterministic;
  const StepsWithErrors without = run_steps(make, nullptr, 6);
  const StepsWithErrors with = run_steps(make, &session, 6);
  expect_one_error(without, with, 3, "was freed or replaced by its owner");
  EXPECT_GT(session.report().fallbacks.at(
                "not recomputable: in an earlier step the owner of what its recipe starts from "
                "freed it"),
            0U);
}

}  // namespace
}  // namespace spillway
