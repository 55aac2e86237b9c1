#include "spillway/plan/explain.hpp"

#include <algorithm>
#include <map>

#include "plan/policy/fold.hpp"
#include "spillway/core/columns.hpp"
#include "spillway/core/error.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/module_words.hpp"

namespace spillway {
namespace {

std::string percent(double value) { return with_decimals(value, 1) + " %"; }

std::string speed(double bytes_per_second) {
  return with_decimals(bytes_per_second / 1e9, 1) + " GB/s";
}

struct Sum {
  std::size_t buffers = 0;
  Bytes bytes;

  void add(Bytes size) {
    ++buffers;
    bytes += size;
  }
};

std::string count(const Sum& sum, const char* what) {
  return std::to_string(sum.buffers) + " " + what + (sum.buffers == 1 ? ", " : "s, ") +
         to_string(sum.bytes);
}

bool is_fixed(const Decision& decision) { return decision.reason.starts_with("fixed: "); }

/// Buffers or anchors that a person would describe in the same words.
struct Row {
  FoldedScope scope;
  std::vector<std::string> words;  // saved by, made by, action, why
  Sum sum;
  bool fixed = false;
};

/// ScopeRows in the order of their first member.
class ScopeRows {
 public:
  void add(const FoldedScope& scope, std::vector<std::string> words, Bytes bytes, bool fixed) {
    std::vector<std::string> key = words;
    key.push_back(scope.shape);
    const auto [entry, added] = known_.try_emplace(std::move(key), rows_.size());
    if (added) rows_.push_back({scope, std::move(words), {}, fixed});
    rows_[entry->second].scope.add(scope);
    rows_[entry->second].sum.add(bytes);
  }

  [[nodiscard]] std::vector<Row> take() && {
    std::stable_partition(rows_.begin(), rows_.end(), [](const Row& row) { return !row.fixed; });
    return std::move(rows_);
  }

 private:
  std::vector<Row> rows_;
  std::map<std::vector<std::string>, std::size_t> known_;
};

std::vector<Row> rows_of(const ChunkPlan& chunk, const ChunkProfile* profile) {
  ScopeRows rows;
  for (const Decision& decision : chunk.decisions) {
    // Fixed buffers cannot be changed, so they get one line per reason.
    const bool fixed = is_fixed(decision);
    std::vector<std::string> words = {fixed ? "" : decision.position.saver, "",
                                      to_string(decision.action), decision.reason};
    if (profile != nullptr && !fixed) {
      const auto id = static_cast<std::size_t>(decision.buffer);
      words[1] = profile->buffers[id].producer.name;
    }
    rows.add(fold(fixed ? "(anywhere)" : decision.position.scope), std::move(words), decision.bytes,
             fixed);
  }
  return std::move(rows).take();
}

std::vector<Row> rows_of(const std::vector<Anchor>& anchors) {
  ScopeRows rows;
  for (const Anchor& anchor : anchors) {
    rows.add(fold(anchor.scope), {"", anchor.name, to_string(anchor.action), anchor.reason},
             anchor.bytes, false);
  }
  return std::move(rows).take();
}

std::string chunk_table(const ChunkPlan& chunk, const ChunkProfile* profile) {
  const bool made_by = profile != nullptr;
  std::vector<std::vector<std::string>> table;
  const auto add = [&](std::string scope, const std::vector<std::string>& words,
                       std::string buffers, std::string bytes) {
    std::vector<std::string> line = {std::move(scope), words[0]};
    if (made_by) line.push_back(words[1]);
    line.insert(line.end(), {std::move(buffers), std::move(bytes), words[2], words[3]});
    table.push_back(std::move(line));
  };
  add("scope", {"saved by", "made by", "action", "why"}, "buffers", "bytes");
  Sum sum;
  for (const Row& row : rows_of(chunk, profile)) {
    add(row.scope.text(), row.words, std::to_string(row.sum.buffers), to_string(row.sum.bytes));
    sum.buffers += row.sum.buffers;
    sum.bytes += row.sum.bytes;
  }
  const std::size_t numbers = made_by ? 3 : 2;
  return "chunk " + std::to_string(chunk.chunk) + ": " + count(sum, "buffer") + "\n" +
         in_columns(table, {numbers, numbers + 1}, 2);
}

/// How many calls are recorded for replays, and their anchors.
std::string replay_table(const ChunkPlan& chunk) {
  if (chunk.operators.empty()) return {};
  std::vector<std::vector<std::string>> table = {
      {"scope", "made by", "anchors", "bytes", "action", "why"}};
  Sum sum;
  for (const Row& row : rows_of(chunk.anchors)) {
    table.push_back({row.scope.text(), row.words[1], std::to_string(row.sum.buffers),
                     to_string(row.sum.bytes), row.words[2], row.words[3]});
    sum.buffers += row.sum.buffers;
    sum.bytes += row.sum.bytes;
  }
  return "replays of chunk " + std::to_string(chunk.chunk) + ": " +
         std::to_string(chunk.operators.size()) + " operator calls recorded, " +
         count(sum, "anchor") + "\n" + (chunk.anchors.empty() ? "" : in_columns(table, {2, 3}, 2));
}

std::string totals(const Plan& plan) {
  std::map<std::string, Sum> by_action;
  Sum fixed_ones;
  Bytes all;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Decision& decision : chunk.decisions) {
      Sum& sum = is_fixed(decision) ? fixed_ones : by_action[to_string(decision.action)];
      sum.add(decision.bytes);
      if (!is_fixed(decision)) all += decision.bytes;
    }
    for (const Anchor& anchor : chunk.anchors) {
      by_action[to_string(anchor.action) + " (anchors)"].add(anchor.bytes);
    }
  }
  std::vector<std::vector<std::string>> table = {{"action", "buffers", "bytes", "share"}};
  const auto add = [&table](const std::string& name, const Sum& sum, const std::string& share) {
    table.push_back({name, std::to_string(sum.buffers), to_string(sum.bytes), share});
  };
  for (const auto& [action, sum] : by_action) {
    const auto part = static_cast<double>(sum.bytes.count());
    const auto whole = static_cast<double>(std::max<std::uint64_t>(all.count(), 1));
    add(action, sum, percent(100 * part / whole));
  }
  if (fixed_ones.buffers > 0) add("fixed", fixed_ones, "");
  return "totals\n" + in_columns(table, {1, 2, 3}, 2);
}

std::string limits(const Plan& plan) {
  std::vector<std::vector<std::string>> table;
  const auto add = [&table](const char* name, const std::optional<Bytes>& limit) {
    table.push_back({name, limit ? to_string(*limit) : "left to the session"});
  };
  add("host memory", plan.limits.host);
  add("offload window", plan.limits.offload_window);
  add("prefetch window", plan.limits.prefetch_window);
  add("smallest buffer", plan.limits.min_size);
  if (plan.limits.recompute_cache) add("recompute cache", plan.limits.recompute_cache);
  if (plan.cap) add("cap on managed buffers", plan.cap);
  std::size_t lists = 0;
  std::size_t passes = 0;
  for (const ChunkPlan& chunk : plan.chunks) {
    lists += chunk.residency.lists.size();
    passes += chunk.residency.list_of_pass.size();
  }
  if (passes > 0) {
    table.push_back({"residency lists", std::to_string(lists) + " for " + std::to_string(passes) +
                                            (passes == 1 ? " pass" : " passes")});
  }
  return "limits\n" + in_columns(table, {}, 2);
}

/// "390.1 ms, 1.029 x": beside a step in which everything is kept, if that is known.
std::string step_time(const Plan& plan, std::int64_t ns) {
  if (plan.base_step_ns.value_or(0) <= 0) return milliseconds_text(ns);
  const double ratio = static_cast<double>(ns) / static_cast<double>(*plan.base_step_ns);
  return milliseconds_text(ns) + ", " + with_decimals(ratio, 3) + " x";
}

/// How much faster another plan could be at most.
std::string above_bound(const Plan& plan) {
  if (!plan.predicted_step_ns || *plan.bound_step_ns <= 0) return {};
  const auto step = static_cast<double>(*plan.predicted_step_ns);
  const auto bound = static_cast<double>(*plan.bound_step_ns);
  return "; the plan is at most " + percent(std::max(0.0, 100 * (step / bound - 1))) +
         " above any plan of this kind";
}

std::string prediction(const Plan& plan) {
  std::vector<std::vector<std::string>> table;
  if (plan.budget) table.push_back({"budget", to_string(*plan.budget)});
  if (plan.predicted_peak) table.push_back({"predicted peak", to_string(*plan.predicted_peak)});
  if (plan.predicted_step_ns) {
    table.push_back({"predicted step", step_time(plan, *plan.predicted_step_ns)});
  }
  if (plan.base_step_ns)
    table.push_back({"everything kept", milliseconds_text(*plan.base_step_ns)});
  if (plan.bound_step_ns) {
    table.push_back({"bound", step_time(plan, *plan.bound_step_ns) + above_bound(plan)});
  }
  return table.empty() ? "" : "\nplanned\n" + in_columns(table, {}, 2);
}

std::string slowing_of(const LinkSpeed& link) {
  if (!link.slows_out || !link.slows_back) return "";
  const auto percent = [](double share) { return with_decimals(100 * share, 1) + " %"; };
  return "; copies slow operators down by " + percent(*link.slows_out) + " and " +
         percent(*link.slows_back);
}

std::string link_of(const LinkSpeed& link) {
  if (link.out <= 0) return "link: none was measured, so a planner offloads nothing";
  return "link: out " + speed(link.out) + ", back " + speed(link.back) + ", both at once " +
         speed(link.out_with_back) + " and " + speed(link.back_with_out) + slowing_of(link);
}

std::string recorded(const Profile& profile) {
  std::string text = "recorded on " + profile.device + ", " + std::to_string(profile.layers) +
                     " layers in \"" + profile.layer_scope + "\"\n" + link_of(profile.link) + "\n";
  for (const ChunkProfile& chunk : profile.chunks) {
    text += "chunk " + std::to_string(chunk.chunk) + ": forward " +
            milliseconds_text(chunk.forward_ns) + ", backward " +
            milliseconds_text(chunk.backward_ns) + ", peak if all were kept " +
            to_string(chunk.theoretical_peak) + "\n";
  }
  return text + "\n";
}

std::string note_lines(const std::vector<std::string>& notes) {
  if (notes.empty()) return {};
  std::string text = "\nnotes\n";
  for (const std::string& note : notes) text += "  - " + note + "\n";
  return text;
}

std::string list(const std::vector<std::string>& patterns) {
  std::string text;
  for (const std::string& each : patterns) text += (text.empty() ? "" : " ") + each;
  return text;
}

/// What the module words of the rules stand for, as comments.
std::string word_comments(const Rules& rules) {
  std::string text;
  for (const ModuleWord& word : module_words()) {
    bool used = false;
    for (const Rule& rule : rules.rules) {
      for (const auto* words : {&rule.module, &rule.made_in_module}) {
        for (const std::string& each : *words) used = used || each == word.word;
      }
    }
    if (!used) continue;
    text += "# " + word.word + ": " + word.meaning + "\n";
    for (const ModulePattern& pattern : word.patterns) {
      text += "#   " + list(pattern.scope);
      if (!pattern.op.empty()) text += "  by  " + list(pattern.op);
      text += "\n";
    }
  }
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::string explain(const Plan& plan, const Profile* profile) {
  if (profile != nullptr && !made_for(plan, *profile)) {
    throw InvalidArgument("explain", "the plan was made for structure " + plan.structure +
                                         ", the profile has " + structure_digest(*profile) +
                                         "; give the profile that the plan was made from");
  }
  std::string text = "plan for structure " + plan.structure + "\n\n";
  if (profile != nullptr) text += recorded(*profile);
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    text += chunk_table(plan.chunks[i], profile == nullptr ? nullptr : &profile->chunks[i]) + "\n";
    const std::string replays = replay_table(plan.chunks[i]);
    if (!replays.empty()) text += replays + "\n";
  }
  return text + summarize(plan);
}

std::string summarize(const Plan& plan) {
  return totals(plan) + "\n" + limits(plan) + prediction(plan) + note_lines(plan.notes);
}

std::string explain_rules(const Rules& rules, const ModelShape& shape) {
  const Rules translated = translate(rules, shape);
  if (translated.rules.empty()) return "# no rules: everything is kept\n" + to_toml(translated);
  return to_toml(translated) + word_comments(translated);
}

}  // namespace spillway
