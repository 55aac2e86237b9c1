/// A session for the plan controller that only notes what it is asked.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/control/controlled_session.hpp"

namespace spillway::testing {

class FakeSession final : public ControlledSession {
 public:
  int adopted = 0;
  int revised = 0;
  int fitted = 0;
  std::vector<std::string> fallbacks;
  std::vector<std::string> warnings;
  Bytes on_device;
  Bytes room{100ULL << 30U};
  PlanningRanks planning_ranks;
  bool times_happened = true;
  std::optional<Nanoseconds> step_time;

  [[nodiscard]] bool amend(Plan& /*plan*/) const override { return false; }
  void plan_adopted() override { ++adopted; }
  void plan_revised() override { ++revised; }
  void renew_lists() override { ++fitted; }
  void count_fallback(const std::string& reason) override { fallbacks.push_back(reason); }
  void note_failure(const char* where) noexcept override {
    fallbacks.push_back(std::string(where) + " failed");
  }
  void warn(const std::string& text) override { warnings.push_back(text); }
  [[nodiscard]] PlanningConditions conditions() const override {
    return {.device = room + on_device, .host = room, .equal = {}};
  }
  [[nodiscard]] PlanningRanks ranks() const override { return planning_ranks; }
  [[nodiscard]] ShardModel shard_model() const override { return {}; }
  [[nodiscard]] Bytes allocated() const override { return on_device; }
  [[nodiscard]] bool have_times_happened() override { return times_happened; }
  [[nodiscard]] bool resolve_times() override { return true; }
  [[nodiscard]] std::optional<CopyWaits> copy_waits(std::uint64_t /*step*/) override {
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Nanoseconds> take_step_time() override {
    return std::exchange(step_time, std::nullopt);
  }
};

}  // namespace spillway::testing
