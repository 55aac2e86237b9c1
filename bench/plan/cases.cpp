#include "cases.hpp"

#include "recorded_llama.hpp"
#include "spillway/plan/simulate.hpp"
#include "spillway/schedule/schedule.hpp"

namespace spillway::bench {
namespace {

/// Of the 24.4 GiB that 16 layers save; other numbers of layers get their share.
constexpr double kGibibytes[] = {14.4, 12, 8, 6, 3, 2};
constexpr double kLayers = 16;
constexpr double kSeconds = 1;  // For 16 layers.
constexpr double kSecondsOfMany = 5;

Bytes share_of(Bytes bytes, double share) {
  return Bytes(static_cast<std::uint64_t>(static_cast<double>(bytes.count()) * share));
}

/// One pass of a model. Few layers have no plan for the last budgets.
PlanCase layers_case(const std::string& id, int layers, double seconds, std::size_t budgets) {
  PlanCase made{id, std::to_string(layers) + " layers", recorded_llama(layers), {}, {}, seconds};
  for (std::size_t i = 0; i < budgets; ++i) {
    made.budgets.push_back(share_of(Bytes(1ULL << 30U), kGibibytes[i] * layers / kLayers));
  }
  return made;
}

/// The first stage of a pipeline, which has the most passes in flight.
PlanCase pipeline_case(int layers, int micro_batches) {
  constexpr int kStages = 4;
  PlanCase made{"1f1b",
                "1F1B, first of 4 stages with " + std::to_string(layers) + " layers, " +
                    std::to_string(micro_batches) + " micro-batches",
                recorded_llama(layers),
                passes_of(make_schedule(ScheduleKind::kOneForwardOneBackward,
                                        {0, kStages, 1, micro_batches})),
                {},
                std::nullopt};
  SimulateOptions simulation;
  simulation.schedule = made.schedule;
  const Bytes kept = simulate(made.profile, make_plan(made.profile, Rules{}), simulation).peak;
  for (const double share : {0.6, 0.4, 0.25}) made.budgets.push_back(share_of(kept, share));
  return made;
}

}  // namespace

const std::vector<std::string>& plan_cases() {
  static const std::vector<std::string> kCases = {"16", "126", "1f1b"};
  return kCases;
}

PlanCase plan_case(const std::string& id, bool small) {
  if (id == "1f1b") return small ? pipeline_case(1, 5) : pipeline_case(4, 8);
  if (id == "126") return layers_case(id, small ? 6 : 126, kSecondsOfMany, small ? 4 : 6);
  return layers_case(id, small ? 3 : 16, kSeconds, small ? 3 : 6);
}

PlanCase plan_case_of_file(const std::string& file) {
  PlanCase made{"file", file, load_profile(file), {}, {}, kSeconds};
  const Bytes kept = simulate(made.profile, make_plan(made.profile, Rules{}), {}).peak;
  const double all = 24.4;
  for (const double gibibytes : kGibibytes) made.budgets.push_back(share_of(kept, gibibytes / all));
  return made;
}

}  // namespace spillway::bench
