#include "spillway/torch/session_report.hpp"

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "spillway/core/numbers.hpp"
#include "torch/execute/session_core.hpp"
#include "util/renamed.hpp"

namespace spillway {
namespace {

/// Of spillway.report/1. Remove one release after 0.1.
constexpr std::array<RenamedKey, 8> kRenamed = {{{"bytes_remade", "bytes_recomputed"},  // old name
                                                 {"stayed", "offloads_skipped"},
                                                 {"waiting", "unplanned_steps"},
                                                 {"proving_peak", "verification_peak"},  // old name
                                                 {"above", "over_budget_steps"},
                                                 {"held", "part_bytes"},
                                                 {"restored", "regathered"},
                                                 {"refused", "mismatched"}}};

std::string milliseconds(Nanoseconds time) {
  return with_decimals(static_cast<double>(time.count()) / 1e6, 2);
}

std::string percent(double share) { return with_decimals(100 * share, 1) + " %"; }

template <typename Line>
void write_budget(const BudgetReport& budget, Line&& line) {
  if (!budget.problem.empty()) line("planning problem", budget.problem);
  const bool known = budget.budget > Bytes(0);
  for (const auto& [kind, steps] : budget.steps) {
    line(std::string(to_string(kind)) + " steps",
         std::to_string(steps.steps) + ", peak at most " + to_string(steps.peak) +
             (known && steps.peak > budget.budget ? ", over the budget" : ""));
  }
  if (!budget.planned) {
    return line("budget", (known ? to_string(budget.budget) : "not known yet") +
                              ", no plan for it is executed");
  }
  const auto measured = [](bool any, const std::string& text) {
    return any ? ", measured " + text : std::string(", not measured yet");
  };
  line("budget", to_string(budget.budget) + ", predicted peak " + to_string(budget.predicted_peak) +
                     (budget.predicted_peak > budget.budget ? " (over the budget)" : "") +
                     measured(budget.measured_steps > 0,
                              to_string(budget.measured_peak) + " in the last of " +
                                  std::to_string(budget.measured_steps) +
                                  (budget.measured_steps == 1 ? " step" : " steps")) +
                     (budget.verification_peak > Bytes(0)
                          ? "; " + to_string(budget.verification_peak) + " in the verification step"
                          : ""));
  line("step time",
       "predicted " + milliseconds(budget.predicted_step) + " ms" +
           measured(budget.measured_step.count() > 0, milliseconds(budget.measured_step) + " ms") +
           "; predicted with everything kept " + milliseconds(budget.base_step) + " ms");
  if (budget.bound_step.count() > 0) {
    const double gap = static_cast<double>(budget.predicted_step.count()) /
                           static_cast<double>(budget.bound_step.count()) -
                       1;
    line("lower bound", milliseconds(budget.bound_step) + " ms: the plan is at most " +
                            percent(gap) + " slower than any of its kind");
  }
  for (const std::string& each : budget.drift) line("drift", each);
  if (budget.over_budget_steps > 0)
    line("over-budget steps", std::to_string(budget.over_budget_steps));
}

template <typename Line>
void write_shard(const ShardTotals& shard, const WaitTotals& waits, Line&& line) {
  if (shard.ranks < 2) {
    line("sharded", "nothing: there is no shard group of several ranks");
  } else if (shard.buffers == 0) {
    line("sharded", "nothing in the last step, over " + std::to_string(shard.ranks) + " ranks");
  } else {
    line("sharded", std::to_string(shard.buffers) + " buffers, " + to_string(shard.bytes) +
                        ", over " + std::to_string(shard.ranks) + " ranks; on this rank " +
                        to_string(shard.part_bytes));
  }
  if (shard.gathers > 0) {
    line("gathered", std::to_string(shard.gathers) + " buffers, " +
                         std::to_string(shard.late_gathers) + " of them late" +
                         (waits.step > 0 ? ", waited " + milliseconds(waits.gather) + " ms" : ""));
  }
  if (shard.regathered > 0) line("regathered", std::to_string(shard.regathered) + " buffers");
  for (const std::string& each : shard.mismatched) line("not sharded", each);
}

nlohmann::ordered_json json_of(const ShardTotals& shard) {
  return {{"ranks", shard.ranks},           {"buffers", shard.buffers},
          {"bytes", shard.bytes.count()},   {"part_bytes", shard.part_bytes.count()},
          {"gathers", shard.gathers},       {"late_gathers", shard.late_gathers},
          {"regathered", shard.regathered}, {"mismatched", shard.mismatched}};
}

nlohmann::ordered_json json_of(const BudgetReport& budget) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::object();
  for (const auto& [kind, of_kind] : budget.steps) {
    steps[std::string(to_string(kind))] = {{"steps", of_kind.steps},
                                           {"peak", of_kind.peak.count()}};
  }
  return {{"budget", budget.budget.count()},
          {"steps", std::move(steps)},
          {"unplanned_steps", budget.unplanned_steps},
          {"plans", budget.plans},
          {"planned", budget.planned},
          {"problem", budget.problem},
          {"predicted_step_ns", budget.predicted_step.count()},
          {"base_step_ns", budget.base_step.count()},
          {"bound_step_ns", budget.bound_step.count()},
          {"measured_step_ns", budget.measured_step.count()},
          {"predicted_peak", budget.predicted_peak.count()},
          {"measured_steps", budget.measured_steps},
          {"measured_peak", budget.measured_peak.count()},
          {"verification_peak", budget.verification_peak.count()},
          {"drift", budget.drift},
          {"over_budget_steps", budget.over_budget_steps}};
}

/// "layers.3.mlp.fc1" -> "layers.3", as in a line of the report.
std::string short_scope(const std::string& scope) {
  const std::size_t dot =
      scope.find('.', scope.find('.') == std::string::npos ? scope.size() : scope.find('.') + 1);
  return scope.empty() ? "(no scope)" : scope.substr(0, dot);
}

}  // namespace

SessionReport SessionCore::report() {
  std::unique_lock lock(mutex_);
  if (const std::shared_ptr<const StepLog> log = waits_.take()) {
    lock.unlock();
    const std::optional<WaitTotals> totals = wait_totals(*log, *device_);
    lock.lock();
    waits_.keep(totals);
  }
  SessionReport report;
  report.device = device_->torch_device().str();
  report.steps = controller_.steps();
  report.recorded_steps = recorded_steps_;
  report.last_step = measured_;
  report.saved_peak_without = Bytes(last_step_.saved_peak);
  report.saved_peak_with = Bytes(last_step_.on_device_peak);
  report.device_peak = last_step_.device_peak;
  report.bytes_out = last_step_.bytes_out;
  report.bytes_back = last_step_.bytes_back;
  report.used_in_place = last_step_.used_in_place;
  report.late_reloads = last_step_.late_reloads;
  report.offloads_skipped = last_step_.offloads_skipped;
  report.waits = waits_.last();
  report.fallbacks = fallbacks_;
  report.regions = regions_.totals();
  report.host_peak = tier_->counts().peak;
  report.host_pinned = slab_->usage().pinned;
  report.host_problem = slab_->problem();
  report.device_now = Bytes(static_cast<std::uint64_t>(machine_.on_device()));
  report.host_now = tier_->counts().current;
  report.shard = sharding_.report(last_step_.shard);
  if (options_.budget) report.budget = controller_.report();
  if (current_.plan() == nullptr) return report;
  std::map<std::pair<std::string, std::string>, ActionTotals> scopes;
  for (const ChunkPlan& chunk : current_.plan()->chunks) {
    for (const Decision& decision : chunk.decisions) {
      const std::string action =
          std::string(to_string(decision.action.kind)) + (decision.action.shard ? ", sharded" : "");
      for (ActionTotals* totals :
           {&report.actions[action], &scopes[{short_scope(decision.position.scope), action}]}) {
        ++totals->buffers;
        totals->bytes += decision.bytes;
      }
    }
  }
  for (const auto& [key, totals] : scopes) {
    report.scopes.push_back({key.first, key.second, totals.buffers, totals.bytes});
  }
  // Over all passes in flight.
  report.planned_reduction = Bytes(last_step_.saved_peak - last_step_.kept_peak);
  report.repeated_calls = last_step_.repeated_calls;
  report.fused_kernels = last_step_.fused_kernels;
  report.bytes_recomputed = last_step_.bytes_recomputed;
  report.demoted = current_.demoted();
  const double reduced =
      static_cast<double>(last_step_.saved_peak) - static_cast<double>(last_step_.on_device_peak);
  if (report.planned_reduction > Bytes(0)) {
    report.reduction_ratio = reduced / static_cast<double>(report.planned_reduction.count());
  }
  return report;
}

std::string SessionReport::to_text() const {
  std::string out;
  // Numbers as text first: see numbers.hpp.
  const auto line = [&out](const std::string& name, const std::string& text) {
    out += "  " + padded(name, 23) + text + "\n";
  };
  const auto number = [](std::uint64_t count) { return std::to_string(count); };
  const auto totals_of = [&number](const ActionTotals& totals) {
    return number(totals.buffers) + " buffers, " + to_string(totals.bytes);
  };
  out += "spillway report, rank " + std::to_string(rank) + ", " + device + ", " + number(steps) +
         " steps (" + number(recorded_steps) + " recorded)\n";
  // All figures of "the last step" are of one that did not record.
  const bool any = steps > recorded_steps;
  if (last_step) {
    line("step " + number(last_step->number),
         std::string(to_string(last_step->kind)) +
             (last_step->peak > Bytes(0) ? ", peak " + to_string(last_step->peak) : ""));
  }
  if (any) {
    line("saved on the device",
         "without " + to_string(saved_peak_without) + ", with " + to_string(saved_peak_with));
    if (device_peak > Bytes(0)) line("device peak", to_string(device_peak));
  }
  if (budget) write_budget(*budget, line);
  if (any) {
    line("planned reduction",
         to_string(planned_reduction) +
             (planned_reduction > Bytes(0)
                  ? ", peak reduction ratio " + with_decimals(reduction_ratio, 2)
                  : ""));
  }
  for (const auto& [action, totals] : actions) line(action, totals_of(totals));
  if (any) {
    line("last step", "offloaded " + to_string(bytes_out) + ", reloaded " + to_string(bytes_back) +
                          ", used in place " + number(used_in_place) + ", late reloads " +
                          number(late_reloads));
  }
  if (repeated_calls > 0) {
    line("recomputed",
         to_string(bytes_recomputed) + " by " + number(repeated_calls) + " operators" +
             (fused_kernels > 0 ? ", some as " + number(fused_kernels) + " kernels" : ""));
  }
  for (const std::string& each : demoted) line("not recomputed", each);
  if (offloads_skipped.buffers > 0)
    line("skipped offloads", totals_of(offloads_skipped) + ", backward followed at once");
  if (waits.step > 0) {
    line("waited for copies",
         milliseconds(waits.release) + " ms to release, " + milliseconds(waits.reload) +
             " ms to reload, " + milliseconds(waits.in_place) +
             " ms for buffers used in place (step " + number(waits.step) + ")");
  }
  if (shard && any) write_shard(*shard, waits, line);
  if (regions.regions > 0) {
    line("regions", number(regions.regions) + " of steps without a plan: " +
                        to_string(regions.discarded.bytes) + " recomputed at once, compared, and " +
                        "discarded, " + number(regions.mismatched) + " buffers not recomputable");
  }
  line("host memory", to_string(host_peak) + " at most, " + to_string(host_pinned) + " pinned");
  if (!host_problem.empty()) line("no more host memory", host_problem);
  if (fallbacks.empty()) line("fallbacks", "none");
  for (const auto& [reason, count] : fallbacks) line("fallback", number(count) + " x " + reason);
  for (const ScopeLine& each : scopes) {
    out += "    " + padded(each.scope, 24) + padded(each.action, 18) + number(each.buffers) +
           " buffers, " + to_string(each.bytes) + "\n";
  }
  return out;
}

std::string SessionReport::to_json() const {
  nlohmann::ordered_json json;
  json["schema"] = "spillway.report/2";
  json["rank"] = rank;
  json["device"] = device;
  json["steps"] = steps;
  json["recorded_steps"] = recorded_steps;
  if (last_step) {
    json["last_step"] = {{"number", last_step->number},
                         {"kind", to_string(last_step->kind)},
                         {"peak", last_step->peak.count()}};
  }
  json["saved_peak_without"] = saved_peak_without.count();
  json["saved_peak_with"] = saved_peak_with.count();
  json["device_peak"] = device_peak.count();
  json["planned_reduction"] = planned_reduction.count();
  json["reduction_ratio"] = reduction_ratio;
  json["bytes_out"] = bytes_out.count();
  json["bytes_back"] = bytes_back.count();
  json["used_in_place"] = used_in_place;
  json["late_reloads"] = late_reloads;
  json["repeated_calls"] = repeated_calls;
  json["fused_kernels"] = fused_kernels;
  json["bytes_recomputed"] = bytes_recomputed.count();
  json["demoted"] = demoted;
  json["offloads_skipped"] = {{"buffers", offloads_skipped.buffers},
                              {"bytes", offloads_skipped.bytes.count()}};
  json["waits"] = {{"step", waits.step},
                   {"release_ns", waits.release.count()},
                   {"reload_ns", waits.reload.count()},
                   {"in_place_ns", waits.in_place.count()},
                   {"gather_ns", waits.gather.count()}};
  json["regions"] = {{"regions", regions.regions},
                     {"buffers", regions.discarded.buffers},
                     {"bytes", regions.discarded.bytes.count()},
                     {"mismatched", regions.mismatched}};
  json["host_peak"] = host_peak.count();
  json["host_pinned"] = host_pinned.count();
  json["host_problem"] = host_problem;
  json["device_now"] = device_now.count();
  json["host_now"] = host_now.count();
  json["actions"] = nlohmann::ordered_json::object();
  for (const auto& [action, totals] : actions) {
    json["actions"][action] = {{"buffers", totals.buffers}, {"bytes", totals.bytes.count()}};
  }
  json["scopes"] = nlohmann::ordered_json::array();
  for (const ScopeLine& line : scopes) {
    json["scopes"].push_back({{"scope", line.scope},
                              {"action", line.action},
                              {"buffers", line.buffers},
                              {"bytes", line.bytes.count()}});
  }
  if (shard) json["shard"] = json_of(*shard);
  if (budget) json["budget"] = json_of(*budget);
  json["fallbacks"] = fallbacks;
  add_old_names(json, kRenamed);
  return json.dump(2);
}

std::ostream& operator<<(std::ostream& out, const SessionReport& report) {
  return out << report.to_text();
}

}  // namespace spillway
