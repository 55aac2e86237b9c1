/// One measured number of a benchmark, and its limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "spillway/core/bytes.hpp"
#include "spillway/core/clock.hpp"
#include "util/text/spread.hpp"

namespace spillway::bench {

using app::Spread;
using Json = nlohmann::ordered_json;

[[nodiscard]] inline double in_gib(Bytes bytes) {
  return static_cast<double>(bytes.count()) / (1 << 30);
}

[[nodiscard]] inline double in_milliseconds(Nanoseconds time) {
  return static_cast<double>(time.count()) / 1e6;
}

/// A number with its unit, as it is printed.
struct Value {
  std::string name;
  std::string unit;
  int decimals = 2;
  Spread spread;
};

struct Wanted {
  enum class Kind { kAtLeast, kAtMost };
  Kind kind = Kind::kAtMost;
  double limit = 0;
  /// False if the limit is not meant for this run: another device, or too few measurements.
  bool applies = true;
};

struct Figure {
  std::string id;  ///< Its name in JSON, by which results are compared.
  Value found;     ///< Its name is the figure's text for people.
  std::optional<Wanted> wanted;
  std::vector<Value> beside;  ///< Values to compare it with, or its parts.
};

/// Judges the median.
[[nodiscard]] bool holds(const Wanted& wanted, const Spread& found) noexcept;

/// "ok", "MISSED", "not judged", or empty without a limit.
[[nodiscard]] std::string verdict(const Figure& figure);

/// ">= 97.0 %"
[[nodiscard]] std::string text_of(const Wanted& wanted, const Value& value);
/// "98.3 %"
[[nodiscard]] std::string text_of(const Value& value);
/// "97.9..98.8"; empty for a single sample.
[[nodiscard]] std::string spread_text(const Value& value);

[[nodiscard]] Json to_json(const Figure& figure);

}  // namespace spillway::bench
