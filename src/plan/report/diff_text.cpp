#include "spillway/core/columns.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/diff.hpp"
#include "util/json_fields.hpp"

namespace spillway {

template <typename Fields, typename Value>
void describe(Fields& fields, const ChangedValue<Value>& changed) {
  fields("name", changed.name);
  fields("from", changed.from);
  fields("to", changed.to);
}

template <typename Fields>
void describe(Fields& fields, const ChangedActions& changed) {
  fields("chunk", changed.chunk);
  fields("scope", changed.scope);
  fields("name", changed.name);
  fields("from", changed.from);
  fields("to", changed.to);
  fields("buffers", changed.buffers);
  fields("bytes", changed.bytes);
}

namespace {

std::string text_of(Bytes bytes) {
  return to_string(bytes) + " (" + std::to_string(bytes.count()) + ")";
}

using Rows = std::vector<std::vector<std::string>>;

template <typename Value, typename Format>
void add_rows(Rows& rows, const std::vector<ChangedValue<Value>>& changed, const Format& format) {
  for (const ChangedValue<Value>& each : changed) {
    rows.push_back({each.name, each.from ? format(*each.from) : "not said",
                    each.to ? format(*each.to) : "not said"});
  }
}

std::string table_of(const std::vector<ChangedActions>& changes, const std::string& what,
                     const char* name) {
  if (changes.empty()) return {};
  const auto word = [](const std::string& action) { return action.empty() ? "not there" : action; };
  Rows rows = {{"chunk", "scope", name, what + "s", "bytes", "from", "to"}};
  std::size_t count = 0;
  Bytes bytes;
  for (const ChangedActions& each : changes) {
    rows.push_back({std::to_string(each.chunk), each.scope, each.name, std::to_string(each.buffers),
                    to_string(each.bytes), word(each.from), word(each.to)});
    count += each.buffers;
    bytes += each.bytes;
  }
  return "\nanother action: " + std::to_string(count) + " " + what + (count == 1 ? "" : "s") +
         ", " + to_string(bytes) + "\n" + in_columns(rows, {0, 3, 4}, 2);
}

}  // namespace

std::string to_text(const PlanDifference& difference) {
  if (difference.empty()) return "the plans are equal\n";
  std::string text = difference.same_structure()
                         ? "both plans are for structure " + difference.from_structure + "\n"
                         : "the plans are for different structures, " + difference.from_structure +
                               " and " + difference.to_structure +
                               ": only buffers at equal positions are compared\n";
  Rows rows = {{"", "from", "to"}};
  add_rows(rows, difference.bytes, text_of);
  add_rows(rows, difference.times, milliseconds_text);
  if (rows.size() > 1) text += "\nlimits and predictions\n" + in_columns(rows, {1, 2}, 2);
  text += table_of(difference.buffers, "buffer", "saved by");
  text += table_of(difference.anchors, "anchor", "made by");
  if (!difference.others.empty()) {
    std::string list;
    for (const std::string& each : difference.others) list += (list.empty() ? "" : ", ") + each;
    text += "\nalso different: " + list + "\n";
  }
  return text;
}

std::string to_json(const PlanDifference& difference) {
  Json json = {{"schema", kPlanDifferenceSchema},
               {"equal", difference.empty()},
               {"same_structure", difference.same_structure()},
               {"from_structure", difference.from_structure},
               {"to_structure", difference.to_structure},
               {"bytes", JsonWriter::write_value(difference.bytes)},
               {"times_ns", JsonWriter::write_value(difference.times)},
               {"buffers", JsonWriter::write_value(difference.buffers)},
               {"anchors", JsonWriter::write_value(difference.anchors)},
               {"others", JsonWriter::write_value(difference.others)}};
  return readable(json);
}

}  // namespace spillway
