#include "outcome.hpp"

#include <algorithm>
#include <utility>

#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>

#include "spillway/plan/peak_reduction.hpp"
#include "spillway/plan/simulate.hpp"
#include "support/settle.hpp"
#include "train/model/device_memory.hpp"

namespace spillway::bench {
namespace {

/// A session with rules has a recording step, a verification step and a timed step.
constexpr int kWarmUp = 5;
/// One with a budget has a recording step, then verifies a plan and times a step up to four times.
constexpr int kMaxSettling = 12;

/// Does nothing if the session measured no times.
void predict(const SingleStage& stage, const Session& session, const ShardGroup* shards,
             Outcome& outcome) {
  const std::shared_ptr<const Profile> profile = session.profile();
  const std::shared_ptr<const Plan> plan = session.plan();
  if (profile == nullptr || plan == nullptr || !has_times(*profile)) return;
  SimulateOptions options;
  options.schedule = stage.schedule();
  if (shards != nullptr) options.shard.ranks = shards->size();
  outcome.predicted = simulate(*profile, *plan, options).peak;
  if (const auto reduction = peak_reduction(*profile, *plan, options)) {
    outcome.kept = reduction->kept;
    outcome.least = reduction->least;
  }
}

/// Empties the allocator's cache first.
std::optional<double> unused_memory(SingleStage& stage, Session* session) {
  const at::Device device = stage.device();
  if (!device.is_cuda()) return std::nullopt;
  at::accelerator::emptyCache();
  (void)stage.step(session);
  (void)stage.step(session);
  const auto reserved = static_cast<double>(app::reserved_memory(device));
  return 100 * (1 - static_cast<double>(app::peak_memory(device)) / reserved);
}

/// As Outcome::tight_milliseconds. Precondition: the last call was unused_memory() with the
/// session.
std::vector<double> tight_steps(SingleStage& stage, Session& session, int repeats) {
  const at::Device device = stage.device();
  if (!device.is_cuda()) return {};
  const auto peak = static_cast<double>(app::peak_memory(device));
  at::accelerator::emptyCache();
  app::limit_reserved_memory(device, static_cast<std::uint64_t>(peak / (1 - kMaxUnused / 100)));
  std::vector<double> times;
  try {
    for (int i = 0; i < 2; ++i) (void)stage.step(&session);
    for (int i = 0; i < repeats; ++i) times.push_back(stage.step(&session).milliseconds);
  } catch (const c10::OutOfMemoryError&) {
    times.clear();
  }
  app::limit_reserved_memory(device, std::nullopt);
  return times;
}

void save(const Session& session, const std::filesystem::path& folder, const std::string& id) {
  std::filesystem::create_directories(folder);
  save_profile(*session.profile(), folder / (id + "-profile.json"));
  save_plan(*session.plan(), folder / (id + "-plan.json"));
}

}  // namespace

Outcome measure(SingleStage& stage, SessionOptions given, std::shared_ptr<ShardGroup> shards,
                int repeats, const std::filesystem::path& folder, const std::string& id) {
  Session session(std::move(given));
  session.register_model(stage.model());
  if (shards != nullptr) session.set_shard_group(shards);
  settle(
      session, [&] { (void)stage.step(&session); }, kWarmUp, kMaxSettling);
  Outcome outcome;
  for (int i = 0; i < repeats; ++i) {
    const app::MeasuredStep base = stage.step(nullptr);
    const app::MeasuredStep step = stage.step(&session);
    outcome.base.push_back(base.milliseconds);
    outcome.milliseconds.push_back(step.milliseconds);
    outcome.ratios.push_back(step.milliseconds / base.milliseconds);
    outcome.baseline_peak = std::max(outcome.baseline_peak, base.peak);
    outcome.peak = std::max(outcome.peak, step.peak);
  }
  outcome.report = session.report();
  predict(stage, session, shards.get(), outcome);
  outcome.unused_without = unused_memory(stage, nullptr);
  outcome.unused = unused_memory(stage, &session);
  outcome.tight_milliseconds = tight_steps(stage, session, repeats);
  if (!folder.empty()) save(session, folder, id);
  if (shards == nullptr) outcome.different = stage.count_different(session);
  return outcome;
}

}  // namespace spillway::bench
