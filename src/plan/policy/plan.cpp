#include "spillway/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "plan/profile/common_fields.hpp"
#include "util/files.hpp"
#include "util/json_fields.hpp"

namespace spillway {

constexpr auto all_values(ActionKind) {
  return std::array{ActionKind::kKeep, ActionKind::kOffload, ActionKind::kRecompute};
}

template <typename Fields, MaybeConst<Limits> Value>
void describe(Fields& fields, Value& limits) {
  fields("host", limits.host);
  fields("offload_window", limits.offload_window);
  fields("prefetch_window", limits.prefetch_window);
  fields("min_size", limits.min_size);
  fields("slowdown", limits.slowdown);
  fields("recompute_cache", limits.recompute_cache);
}

template <typename Fields, MaybeConst<Action> Value>
void describe(Fields& fields, Value& action) {
  fields("kind", action.kind);
  fields("shard", action.shard);
  fields.only("tier", {"", "host"}, "there is no other tier yet");
}

template <typename Fields, MaybeConst<Decision> Value>
void describe(Fields& fields, Value& decision) {
  fields("buffer", decision.buffer);
  fields("position", decision.position);
  fields("bytes", decision.bytes);
  fields("action", decision.action);
  fields("fallback", decision.fallback);
  fields("reason", decision.reason);
  fields("fixed", decision.fixed);
}

template <typename Fields, MaybeConst<Anchor> Value>
void describe(Fields& fields, Value& anchor) {
  fields("call", anchor.call);
  fields("output", anchor.output);
  fields("name", anchor.name);
  fields("scope", anchor.scope);
  fields("bytes", anchor.bytes);
  fields("action", anchor.action);
  fields("reason", anchor.reason);
  fields("saves", anchor.saves);
  fields("ordinal", anchor.ordinal);
}

template <typename Fields, MaybeConst<RecordedOperator> Value>
void describe(Fields& fields, Value& recorded) {
  fields("call", recorded.call);
  fields("name", recorded.name);
}

template <typename Fields, MaybeConst<SiteKind> Value>
void describe(Fields& fields, Value& kind) {
  fields("dtype", kind.dtype);
  fields("dimensions", kind.dimensions);
}

template <typename Fields, MaybeConst<SiteTable> Value>
void describe(Fields& fields, Value& sites) {
  fields("kinds", sites.kinds);
  fields("kind", sites.kind);
  fields("buffer", sites.buffer);
  fields.digest("signature", sites.signature);
}

template <typename Fields, MaybeConst<Residency> Value>
void describe(Fields& fields, Value& list) {
  fields("pending", list.pending);
  fields("reloads", list.reloads);
  fields("own_reloads", list.own_reloads);
  fields("held", list.held);
}

template <typename Fields, MaybeConst<ChunkResidency> Value>
void describe(Fields& fields, Value& residency) {
  fields("unpack_order", residency.unpack_order);
  fields("lists", residency.lists);
  fields("list_of_pass", residency.list_of_pass);
}

template <typename Fields, MaybeConst<ChunkPlan> Value>
void describe(Fields& fields, Value& chunk) {
  fields("chunk", chunk.chunk);
  fields("decisions", chunk.decisions);
  fields("sites", chunk.sites);
  fields("anchors", chunk.anchors);
  fields("calls_before_first_save", chunk.calls_before_first_save);
  fields("operators", chunk.operators);
  fields("need_order", chunk.need_order);
  fields("residency", chunk.residency);
}

template <typename Fields, MaybeConst<Plan> Value>
void describe(Fields& fields, Value& plan) {
  fields("structure", plan.structure);
  fields("limits", plan.limits);
  fields("cap", plan.cap);
  fields("budget", plan.budget);
  fields("predicted_step_ns", plan.predicted_step_ns);
  fields("predicted_peak", plan.predicted_peak);
  fields("base_step_ns", plan.base_step_ns);
  fields("bound_step_ns", plan.bound_step_ns);
  fields("recompute_collectives", plan.recompute_collectives);
  fields("notes", plan.notes);
  fields("chunks", plan.chunks);
}

namespace {

constexpr std::string_view kOldPlanSchema = "spillway.plan/5";

void check_anchor(const ChunkPlan& chunk, const Anchor& anchor, const JsonPath& path,
                  const JsonSource& source) {
  const auto recorded =
      std::lower_bound(chunk.operators.begin(), chunk.operators.end(), anchor.call,
                       [](const RecordedOperator& each, int call) { return each.call < call; });
  if (recorded == chunk.operators.end() ||
      *recorded != RecordedOperator{anchor.call, anchor.name}) {
    refuse(source, JsonPath(path, "call"),
           "operators have no call " + std::to_string(anchor.call) + " of " + anchor.name);
  }
  if (anchor.output < 0) {
    refuse(source, JsonPath(path, "output"),
           "at least 0 wanted, found " + std::to_string(anchor.output));
  }
  if (anchor.action.kind == ActionKind::kRecompute) {
    refuse(source, JsonPath(path, "action"), "an anchor is kept or offloaded, not recomputed");
  }
}

/// What replays use: operators in order, anchors that one of them makes, and what is there to need.
void check_recompute(const ChunkPlan& chunk, const JsonPath& path, const JsonSource& source) {
  const JsonPath operators(path, "operators");
  int last = -1;
  for (std::size_t i = 0; i < chunk.operators.size(); ++i) {
    const int call = chunk.operators[i].call;
    if (call <= last) {
      const JsonPath entry(operators, i);
      refuse(source, JsonPath(entry, "call"),
             "more than " + std::to_string(last) + " wanted, found " + std::to_string(call));
    }
    last = call;
  }
  const JsonPath anchors(path, "anchors");
  for (std::size_t i = 0; i < chunk.anchors.size(); ++i) {
    check_anchor(chunk, chunk.anchors[i], JsonPath(anchors, i), source);
  }
  const std::size_t count = chunk.decisions.size() + chunk.anchors.size();
  const JsonPath order(path, "need_order");
  for (std::size_t i = 0; i < chunk.need_order.size(); ++i) {
    const int id = chunk.need_order[i];
    if (id >= 0 && static_cast<std::size_t>(id) < count) continue;
    refuse(source, JsonPath(order, i),
           "there is no buffer or anchor " + std::to_string(id) + "; this chunk has " +
               std::to_string(count));
  }
}

void check_sites(const ChunkPlan& chunk, const JsonPath& path, const JsonSource& source) {
  const SiteTable& sites = chunk.sites;
  check_indices(sites.kind, sites.kinds.size(), "kind", JsonPath(path, "kind"), source);
  check_indices(sites.buffer, chunk.decisions.size(), "buffer", JsonPath(path, "buffer"), source);
  const auto same = [&](const char* name, std::size_t found) {
    if (found == sites.kind.size()) return;
    refuse(source, JsonPath(path, name),
           "as many as in kind wanted: " + std::to_string(sites.kind.size()) + ", found " +
               std::to_string(found));
  };
  same("buffer", sites.buffer.size());
  if (!sites.signature.empty()) same("signature", sites.signature.size());
}

void check_list(const Residency& list, const ChunkPlan& chunk, const JsonPath& path,
                const JsonSource& source) {
  const auto same = [&](const char* name, std::size_t found, std::size_t wanted, const char* of) {
    if (found == wanted) return;
    refuse(source, JsonPath(path, name),
           "one for each " + std::string(of) + " wanted: " + std::to_string(wanted) + ", found " +
               std::to_string(found));
  };
  same("pending", list.pending.size(), chunk.sites.kind.size(), "site");
  same("reloads", list.reloads.size(), chunk.residency.unpack_order.size(), "unpack");
  const std::size_t items = chunk.decisions.size() + chunk.anchors.size();
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  check_indices(list.pending, kMost, "number", JsonPath(path, "pending"), source);
  check_indices(list.reloads, kMost, "number", JsonPath(path, "reloads"), source);
  check_index(list.own_reloads, items + 1, "number", JsonPath(path, "own_reloads"), source);
  check_indices(list.held, items, "buffer or anchor", JsonPath(path, "held"), source);
  if (!std::ranges::is_sorted(list.held)) {
    refuse(source, JsonPath(path, "held"), "ascending numbers wanted");
  }
}

void check_residency(const ChunkPlan& chunk, const JsonPath& path, const JsonSource& source) {
  const ChunkResidency& residency = chunk.residency;
  check_indices(residency.unpack_order, chunk.decisions.size(), "buffer",
                JsonPath(path, "unpack_order"), source);
  check_indices(residency.list_of_pass, residency.lists.size(), "list",
                JsonPath(path, "list_of_pass"), source);
  const JsonPath lists(path, "lists");
  for (std::size_t i = 0; i < residency.lists.size(); ++i) {
    check_list(residency.lists[i], chunk, JsonPath(lists, i), source);
  }
}

void check_chunk(const ChunkPlan& chunk, const JsonPath& path, const JsonSource& source) {
  const JsonPath decisions(path, "decisions");
  for (std::size_t i = 0; i < chunk.decisions.size(); ++i) {
    const JsonPath decision(decisions, i);
    if (chunk.decisions[i].buffer != static_cast<int>(i)) {
      refuse(source, JsonPath(decision, "buffer"),
             std::to_string(i) + ", its index in the list, wanted, found " +
                 std::to_string(chunk.decisions[i].buffer));
    }
    if (chunk.decisions[i].action.shard &&
        chunk.decisions[i].action.kind == ActionKind::kRecompute) {
      refuse(source, JsonPath(decision, "action"), "what is recomputed cannot be sharded");
    }
    if (chunk.decisions[i].fallback == ActionKind::kRecompute) {
      refuse(source, JsonPath(decision, "fallback"), "keep or offload wanted, found recompute");
    }
  }
  check_recompute(chunk, path, source);
  const auto bytes = [](const auto& each) { return static_cast<std::int64_t>(each.bytes.count()); };
  check_sum(chunk.decisions, bytes, kMostBytesOfList, " bytes", decisions, source);
  check_sum(chunk.anchors, bytes, kMostBytesOfList, " bytes", JsonPath(path, "anchors"), source);
  check_sites(chunk, JsonPath(path, "sites"), source);
  check_residency(chunk, JsonPath(path, "residency"), source);
}

/// The last schema had limits in bytes by site and unpack instead of lists: only the smallest
/// of them is of use.
void upgrade(Json& json) {
  for (const char* limit : {"max_pending_release", "max_prefetch"}) json.erase(limit);
  if (!json.contains("chunks") || !json["chunks"].is_array()) return;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (Json& chunk : json["chunks"]) {
    if (!chunk.is_object()) continue;
    for (const char* list : {"forward_allowance", "backward_allowance"}) {
      if (chunk.contains(list) && chunk[list].is_array()) {
        for (const Json& each : chunk[list]) {
          if (each.is_number_unsigned()) least = std::min(least, each.get<std::uint64_t>());
        }
      }
      chunk.erase(list);
    }
    chunk["residency"] = JsonWriter::write_value(ChunkResidency());
  }
  if (least < std::numeric_limits<std::uint64_t>::max()) json["cap"] = least;
}

}  // namespace

SiteTable sites_of(const ChunkProfile& chunk) {
  SiteTable sites;
  for (const SiteProfile& site : chunk.sites) {
    const SiteKind kind{site.dtype, static_cast<int>(site.sizes.size())};
    const auto known = std::find(sites.kinds.begin(), sites.kinds.end(), kind);
    sites.kind.push_back(static_cast<int>(known - sites.kinds.begin()));
    sites.buffer.push_back(site.buffer);
    if (known == sites.kinds.end()) sites.kinds.push_back(kind);
    sites.signature.push_back(site.signature);
  }
  const auto known = [](std::uint64_t signature) { return signature != 0; };
  if (!std::ranges::all_of(sites.signature, known)) sites.signature.clear();
  return sites;
}

bool made_for(const Plan& plan, const Profile& profile) {
  const auto same = [](const ChunkPlan& a, const ChunkProfile& b) {
    SiteTable sites = sites_of(b);
    sites.signature = a.sites.signature;
    return a.chunk == b.chunk && a.decisions.size() == b.buffers.size() && a.sites == sites;
  };
  return plan.structure == structure_digest(profile) &&
         std::equal(plan.chunks.begin(), plan.chunks.end(), profile.chunks.begin(),
                    profile.chunks.end(), same);
}

Plan with_signatures_of(const Profile& profile, Plan plan) {
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    plan.chunks[i].sites.signature = sites_of(profile.chunks[i]).signature;
  }
  return plan;
}

std::string to_json(const Plan& plan) { return write_document(plan, kPlanSchema); }

Plan plan_from_json(std::string_view text, std::string_view file_name) {
  const JsonSource source{"plan", file_name};
  Json json = parse_document(text, source, kPlanSchema, kOldPlanSchema);
  if (json["schema"] == kOldPlanSchema) upgrade(json);
  json.erase("schema");
  const JsonPath root;
  Plan plan;
  JsonReader::read(json, root, source, plan);
  const JsonPath chunks(root, "chunks");
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    check_chunk(plan.chunks[i], JsonPath(chunks, i), source);
  }
  return plan;
}

Plan load_plan(const std::filesystem::path& path) {
  return plan_from_json(read_file("plan", path), path.string());
}

void save_plan(const Plan& plan, const std::filesystem::path& path) {
  write_file("plan", path, to_json(plan));
}

}  // namespace spillway
