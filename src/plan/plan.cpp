#include "spillway/plan/plan.hpp"

#include "plan/common_fields.hpp"
#include "plan/files.hpp"
#include "plan/json_fields.hpp"

namespace spillway {

template <typename Fields, MaybeConst<Limits> Value>
void describe(Fields& fields, Value& limits) {
  fields("host", limits.host);
  fields("in_flight", limits.in_flight);
  fields("ahead", limits.ahead);
  fields("min_size", limits.min_size);
}

template <typename Fields, MaybeConst<Action> Value>
void describe(Fields& fields, Value& action) {
  fields("kind", action.kind);
  fields("shard", action.shard);
  fields("tier", action.tier);
}

template <typename Fields, MaybeConst<Decision> Value>
void describe(Fields& fields, Value& decision) {
  fields("buffer", decision.buffer);
  fields("position", decision.position);
  fields("bytes", decision.bytes);
  fields("action", decision.action);
  fields("second", decision.second);
  fields("reason", decision.reason);
}

template <typename Fields, MaybeConst<ChunkPlan> Value>
void describe(Fields& fields, Value& chunk) {
  fields("chunk", chunk.chunk);
  fields("decisions", chunk.decisions);
  fields("unpack_order", chunk.unpack_order);
}

template <typename Fields, MaybeConst<Plan> Value>
void describe(Fields& fields, Value& plan) {
  fields("structure", plan.structure);
  fields("limits", plan.limits);
  fields("predicted_step_ns", plan.predicted_step_ns);
  fields("predicted_peak", plan.predicted_peak);
  fields("notes", plan.notes);
  fields("chunks", plan.chunks);
}

namespace {

void check_chunk(const ChunkPlan& chunk, const JsonPath& path, const JsonSource& source) {
  const JsonPath decisions(path, "decisions");
  for (std::size_t i = 0; i < chunk.decisions.size(); ++i) {
    const JsonPath decision(decisions, i);
    if (chunk.decisions[i].buffer != static_cast<int>(i)) {
      refuse(source, JsonPath(decision, "buffer"),
             std::to_string(i) + ", its place in the list, wanted, found " +
                 std::to_string(chunk.decisions[i].buffer));
    }
    if (chunk.decisions[i].action.shard &&
        chunk.decisions[i].action.kind == ActionKind::kRecompute) {
      refuse(source, JsonPath(decision, "action"), "what is recomputed cannot be sharded");
    }
  }
  const JsonPath order(path, "unpack_order");
  for (std::size_t i = 0; i < chunk.unpack_order.size(); ++i) {
    const int buffer = chunk.unpack_order[i];
    if (buffer >= 0 && static_cast<std::size_t>(buffer) < chunk.decisions.size()) continue;
    refuse(source, JsonPath(order, i),
           "there is no buffer " + std::to_string(buffer) + "; this chunk has " +
               std::to_string(chunk.decisions.size()));
  }
}

}  // namespace

std::string to_json(const Plan& plan) { return write_document(plan, kPlanSchema); }

Plan plan_from_json(std::string_view text, std::string_view file_name) {
  const JsonSource source{"plan", file_name};
  auto plan = read_document<Plan>(text, source, kPlanSchema);
  const JsonPath root;
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
