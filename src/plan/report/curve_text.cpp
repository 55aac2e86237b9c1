
#include "spillway/core/columns.hpp"
#include "spillway/core/numbers.hpp"
#include "spillway/plan/curve.hpp"
#include "util/json_fields.hpp"

namespace spillway {

template <typename Fields>
void describe(Fields& fields, const CurvePoint& point) {
  fields("budget", point.budget);
  fields("feasible", point.feasible);
  if (!point.feasible) return;
  fields("step_ns", point.step_ns);
  fields("bound_ns", point.bound_ns);
  fields("peak", point.peak);
  fields("kept", point.kept);
  fields("offloaded", point.offloaded);
  fields("recomputed", point.recomputed);
}

namespace {

std::string percent(Bytes part, Bytes whole) {
  if (whole == Bytes()) return "-";
  return with_decimals(100 * static_cast<double>(part.count()) / static_cast<double>(whole.count()),
                       0) +
         " %";
}

std::string multiple(std::int64_t ns, std::int64_t base_ns) {
  if (base_ns <= 0) return "-";
  return with_decimals(static_cast<double>(ns) / static_cast<double>(base_ns), 3) + " x";
}

std::vector<std::string> row_of(const CurvePoint& point, const Curve& curve) {
  std::vector<std::string> row = {to_string(point.budget), percent(point.budget, curve.base_peak)};
  if (!point.feasible) {
    row.emplace_back("no plan");
    return row;
  }
  const Bytes all = point.kept + point.offloaded + point.recomputed;
  row.insert(row.end(), {to_string(point.peak), multiple(point.step_ns, curve.base_ns),
                         multiple(point.bound_ns, curve.base_ns), percent(point.kept, all),
                         percent(point.offloaded, all), percent(point.recomputed, all)});
  return row;
}

}  // namespace

std::string to_text(const Curve& curve) {
  std::vector<std::vector<std::string>> rows = {
      {"budget", "of base", "peak", "step", "bound", "kept", "offloaded", "recomputed"}};
  for (const CurvePoint& point : curve.points) rows.push_back(row_of(point, curve));
  return "base: everything kept, " + milliseconds_text(curve.base_ns) + " a step, peak " +
         to_string(curve.base_peak) + "\n\n" + in_columns(rows, {0, 1, 2, 3, 4, 5, 6, 7}, 0);
}

std::string to_json(const Curve& curve) {
  return readable({{"schema", kCurveSchema},
                   {"base_ns", curve.base_ns},
                   {"base_peak", curve.base_peak.count()},
                   {"points", JsonWriter::write_value(curve.points)}}) +
         "\n";
}

}  // namespace spillway
