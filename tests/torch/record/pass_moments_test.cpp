// What is read from the log of a step about its passes; logs are made up, with times of the host.
#include "torch/record/pass_moments.hpp"

#include <gtest/gtest.h>

#include "torch/support/wrapping_torch_device.hpp"

namespace spillway {
namespace {

/// A log in which the model computes for some time, and allocates, between moments.
class Script {
 public:
  explicit Script(bool counts = true) { log_.counts_saved = counts; }

  /// Until it had allocated `allocated` bytes, `peak` of them at once, `saved` of them for buffers.
  Script& compute(int ns, std::int64_t peak = 0, std::int64_t allocated = 0,
                  std::int64_t saved = 0) {
    StepLog::Interval interval;
    interval.begin = mark();
    now_ += ns;
    interval.end = mark();
    interval.peak = peak;
    interval.allocated = allocated;
    interval.saved = saved;
    log_.intervals.push_back(interval);
    now_ += 1000;  // The session runs.
    return *this;
  }
  Script& moment(int pass, MomentKind kind, int index = -1) {
    log_.moments.push_back({pass, kind, index, log_.intervals.size()});
    return *this;
  }

  [[nodiscard]] StepMoments read(std::size_t passes) {
    StepMoments moments = moments_of(log_, passes);
    add_times(log_, device_, moments);
    return moments;
  }

 private:
  StepLog::Mark mark() {
    log_.marks.push_back({nullptr, Nanoseconds(now_)});
    return log_.marked++;
  }

  StepLog log_;
  std::int64_t now_ = 0;
  testing::WrappingTorchDevice device_;
};

using Moments = std::vector<Moment>;

TEST(PassMoments, HaveTheComputeThatLedToThem) {
  const StepMoments step = Script(/*counts=*/false)
                               .compute(5)
                               .compute(2)
                               .moment(0, MomentKind::kCallBegins, 0)
                               .compute(30)
                               .moment(0, MomentKind::kSave, 0)
                               .moment(0, MomentKind::kCallEnds, 0)
                               .moment(0, MomentKind::kBackwardBegins)
                               .moment(0, MomentKind::kUnpack, 0)
                               .compute(60)
                               .read(1);
  EXPECT_EQ(step.passes[0].list, (Moments{{MomentKind::kCallBegins, 0, 7, 0},
                                          {MomentKind::kSave, 0, 30, 0},
                                          {MomentKind::kCallEnds, 0, 0, 0},
                                          {MomentKind::kBackwardBegins, -1, 0, 0},
                                          {MomentKind::kUnpack, 0, 0, 0},
                                          {MomentKind::kEnd, -1, 60, 0}}));
  EXPECT_TRUE(step.passes[0].backward);
  EXPECT_TRUE(step.passes[0].in_order);
}

TEST(PassMoments, LeaveOutWhatFollowsAForward) {
  const StepMoments step = Script(/*counts=*/false)
                               .compute(5)
                               .moment(0, MomentKind::kSave, 0)
                               .compute(7)  // An optimizer, say: no pass follows.
                               .read(1);
  EXPECT_EQ(step.passes[0].list,
            (Moments{{MomentKind::kSave, 0, 5, 0}, {MomentKind::kEnd, -1, 0, 0}}));
  EXPECT_EQ(step.places[1].pass, -1);
}

TEST(PassMoments, GiveWhatFollowsABackwardToItsPass) {
  const StepMoments step = Script(/*counts=*/false)
                               .moment(0, MomentKind::kSave, 0)
                               .moment(0, MomentKind::kBackwardBegins)
                               .compute(3)
                               .moment(0, MomentKind::kUnpack, 0)
                               .compute(40)  // Its backward goes on.
                               .moment(1, MomentKind::kSave, 0)
                               .compute(5)
                               .moment(1, MomentKind::kSave, 1)
                               .compute(6)  // The forward of pass 1 still runs.
                               .moment(0, MomentKind::kDrop, 0)
                               .read(2);
  EXPECT_EQ(step.passes[0].list, (Moments{{MomentKind::kSave, 0, 0, 0},
                                          {MomentKind::kBackwardBegins, -1, 0, 0},
                                          {MomentKind::kUnpack, 0, 3, 0},
                                          {MomentKind::kDrop, 0, 46, 0},
                                          {MomentKind::kEnd, -1, 0, 0}}));
  EXPECT_EQ(step.passes[1].list, (Moments{{MomentKind::kSave, 0, 0, 0},
                                          {MomentKind::kSave, 1, 5, 0},
                                          {MomentKind::kEnd, -1, 0, 0}}));
  EXPECT_TRUE(step.passes[0].backward);
  EXPECT_FALSE(step.passes[1].backward);
}

TEST(PassMoments, KnowThatAForwardWentOnAfterBackwardBegan) {
  const StepMoments step = Script(/*counts=*/false)
                               .moment(0, MomentKind::kSave, 0)
                               .moment(0, MomentKind::kBackwardBegins)
                               .moment(0, MomentKind::kSave, 1)
                               .read(1);
  EXPECT_FALSE(step.passes[0].in_order);
}

TEST(PassMoments, HaveThePeakOfUntrackedBytesSinceTheMomentBefore) {
  const StepMoments step = Script()
                               .compute(1, 90, 40, 10)
                               .compute(1, 70, 60, 20)
                               .moment(0, MomentKind::kSave, 0)
                               .moment(0, MomentKind::kSave, 1)
                               .moment(0, MomentKind::kBackwardBegins)
                               .compute(1, 50, 30, 30)
                               .moment(0, MomentKind::kUnpack, 0)
                               .compute(1, 25, 5, 0)
                               .read(1);
  EXPECT_EQ(step.passes[0].list, (Moments{{MomentKind::kSave, 0, 2, 80},
                                          {MomentKind::kSave, 1, 0, 40},
                                          {MomentKind::kBackwardBegins, -1, 0, 40},
                                          {MomentKind::kUnpack, 0, 1, 20},
                                          {MomentKind::kEnd, -1, 1, 25}}));
}

TEST(PassMoments, DoNotCountWhatOtherPassesInFlightHave) {
  Script script;
  script.compute(1, 100, 100).moment(0, MomentKind::kSave, 0);  // Pass 0 has 100 bytes ...
  script.compute(1, 130, 130).moment(1, MomentKind::kSave, 0);  // ... and pass 1 has 30 more.
  script.moment(1, MomentKind::kBackwardBegins);
  script.compute(1, 150, 130).moment(1, MomentKind::kUnpack, 0);
  script.compute(1, 130, 100).moment(0, MomentKind::kBackwardBegins);
  script.compute(1, 160, 100).moment(0, MomentKind::kUnpack, 0);
  const StepMoments step = script.read(2);
  const Moments own = own_moments(step.passes[1]);
  ASSERT_EQ(own.size(), 4U);
  EXPECT_EQ(own[0].untracked_bytes, 30);
  EXPECT_EQ(own[2].untracked_bytes, 50);
  EXPECT_EQ(recorded_moments(step.passes[1])[2].untracked_bytes, 150);
}

}  // namespace
}  // namespace spillway
