#include "plan/solve/planning_job.hpp"

#include <gtest/gtest.h>

#include "plan/support/synthetic_timeline.hpp"
#include "support/forked.hpp"

namespace spillway {
namespace {

using testing::EndBy;
using testing::in_child;

PlanningJob::Question question() {
  PlanningJob::Question question;
  question.profile = std::make_shared<const Profile>(testing::llama_profile(8));
  question.budget = Budget::share(0.4);
  question.options.time_limit = std::chrono::milliseconds(2000);
  return question;
}

TEST(PlanningJob, MayBeDestroyedInAChildMadeByFork) {
  auto job = std::make_unique<PlanningJob>(question());
  EXPECT_EQ(in_child([&] {
              job.reset();
              return 0;
            }),
            "exited with 0");
}

TEST(PlanningJob, DoesNotKeepAChildFromExiting) {
  // On this thread too: what the solver has for a thread is copied into the child.
  ASSERT_TRUE(PlanningJob::plan(question()).planned);
  EXPECT_EQ(in_child([] { return 0; }, EndBy::kExit), "exited with 0");
}

}  // namespace
}  // namespace spillway
