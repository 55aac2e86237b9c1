#include "support/figure.hpp"

#include "spillway/core/numbers.hpp"
#include "util/text/text_table.hpp"

namespace spillway::bench {
namespace {

Json values_of(const Value& value) {
  return {{"unit", value.unit},
          {"median", value.spread.median},
          {"min", value.spread.min},
          {"max", value.spread.max},
          {"samples", value.spread.samples}};
}

}  // namespace

bool holds(const Wanted& wanted, const Spread& found) noexcept {
  switch (wanted.kind) {
    case Wanted::Kind::kAtLeast:
      return found.median >= wanted.limit;
    case Wanted::Kind::kAtMost:
      return found.median <= wanted.limit;
  }
  return false;
}

std::string verdict(const Figure& figure) {
  if (!figure.wanted) return {};
  if (!figure.wanted->applies) return "not judged";
  return holds(*figure.wanted, figure.found.spread) ? "ok" : "MISSED";
}

std::string text_of(const Wanted& wanted, const Value& value) {
  const char* sign = wanted.kind == Wanted::Kind::kAtLeast ? ">= " : "<= ";
  return sign + with_decimals(wanted.limit, value.decimals) + " " + value.unit;
}

std::string text_of(const Value& value) {
  return with_decimals(value.spread.median, value.decimals) +
         (value.unit.empty() ? "" : " " + value.unit);
}

std::string spread_text(const Value& value) {
  if (value.spread.samples < 2) return {};
  return with_decimals(value.spread.min, value.decimals) + ".." +
         with_decimals(value.spread.max, value.decimals);
}

Json to_json(const Figure& figure) {
  Json json = {{"id", figure.id}, {"text", figure.found.name}};
  json.update(values_of(figure.found));
  if (figure.wanted) {
    json["wanted"] = {
        {"bound", figure.wanted->kind == Wanted::Kind::kAtLeast ? "at least" : "at most"},
        {"limit", figure.wanted->limit},
        {"verdict", verdict(figure)}};
  }
  for (const Value& value : figure.beside) json["beside"][value.name] = values_of(value);
  return json;
}

}  // namespace spillway::bench
