#include "plan/control/time_updates.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace spillway {
namespace {

/// A smaller change of the measured times is not worth replanning.
constexpr double kSameTimes = 0.02;
/// How often timed steps update the profile. A step that waits for copies runs at higher clocks
/// than one that does not: times hold only for plans close to the one they were measured under.
constexpr int kMaxUpdates = 3;
/// Passes of each chunk that are timed for an update, except for the first one, which replaces the
/// times of the recording step at once: the clock of a device at its power limit varies from step
/// to step.
constexpr int kTimedPasses = 4;

// Of slow_down().
constexpr double kUnpredictedShare = 0.002;
constexpr double kSlowest = 0.95;

double total_ns(const Profile& profile) {
  double total = 0;
  for (const ChunkProfile& chunk : profile.chunks) {
    total += static_cast<double>(chunk.forward_ns + chunk.backward_ns);
  }
  return total;
}

}  // namespace

void TimeUpdates::recording_begins() noexcept {
  timed_.clear();
  plan_replaced();
}

void TimeUpdates::plan_replaced() noexcept {
  read_.clear();
  timed_steps_ = 0;
}

bool TimeUpdates::wanted() const noexcept { return updates_ < kMaxUpdates; }

std::vector<TimedPass> TimeUpdates::take_unread() noexcept { return std::exchange(timed_, {}); }

void TimeUpdates::add_read(std::vector<TimedPass> passes) {
  std::ranges::move(passes, std::back_inserter(read_));
  ++timed_steps_;
}

bool TimeUpdates::enough(const Profile& profile) const {
  // Steps that lack one of the chunks never provide its times.
  if (updates_ == 0 || timed_steps_ >= kTimedPasses) return true;
  return std::ranges::all_of(profile.chunks, [&](const ChunkProfile& chunk) {
    return std::ranges::count(read_, chunk.chunk, &TimedPass::chunk) >= kTimedPasses;
  });
}

std::vector<TimedPass> TimeUpdates::take_update() noexcept {
  ++updates_;
  timed_steps_ = 0;
  return std::exchange(read_, {});
}

bool slow_down(double& alone, double& with_other, Bytes bytes, double unpredicted_ns,
               double step_ns) {
  if (unpredicted_ns < kUnpredictedShare * step_ns || bytes == Bytes(0) || alone <= 0) return false;
  const double predicted_ns = static_cast<double>(bytes.count()) / alone * 1e9;
  const double share = std::max(kSlowest, predicted_ns / (predicted_ns + unpredicted_ns));
  alone *= share;
  with_other *= share;
  return true;
}

bool slow_link(Profile& profile, const Plan& plan, const CopyWaits& waits,
               const SimulateOptions& options) {
  const Simulation predicted = simulate(profile, plan, options);
  const auto step = static_cast<double>(predicted.step_ns);
  const auto unpredicted = [](Nanoseconds measured, std::int64_t expected_ns) {
    return static_cast<double>(measured.count() - expected_ns);
  };
  LinkSpeed& link = profile.link;
  const bool out = slow_down(link.out, link.out_with_back, predicted.bytes_out,
                             unpredicted(waits.release, predicted.waits.release_ns), step);
  const bool back = slow_down(link.back, link.back_with_out, predicted.bytes_back,
                              unpredicted(waits.reload, predicted.waits.reload_ns), step);
  return out || back;
}

bool have_other_times(const Profile& before, const Profile& now) {
  const double ns_before = total_ns(before);
  return ns_before > 0 && std::abs(total_ns(now) / ns_before - 1) > kSameTimes;
}

}  // namespace spillway
