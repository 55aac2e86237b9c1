#include "util/text/budget_text.hpp"

#include <charconv>
#include <string>

#include "spillway/core/error.hpp"

namespace spillway::app {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw InvalidArgument("budget", "\"" + std::string(text) +
                                      "\" is no budget; give bytes, such as 8GiB, or a share of "
                                      "what a step needs with everything kept, such as 33%");
}

double parse_percent(std::string_view text) {
  double percent = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [parsed_to, error] = std::from_chars(text.data(), end, percent);
  const bool number =
      error == std::errc() && (parsed_to == end || std::string_view(parsed_to, end) == " ");
  if (!number || !(percent > 0 && percent <= 100)) refuse(text);
  return percent;
}

}  // namespace

BudgetText parse_budget(std::string_view text) {
  if (text.ends_with('%')) return Share{parse_percent(text) / 100};
  Bytes bytes;
  try {
    bytes = parse_bytes(text);
  } catch (const InvalidArgument&) {
    refuse(text);
  }
  if (bytes == Bytes()) refuse(text);  // "0.33", which is a third of a byte.
  return bytes;
}

Bytes resolve(const BudgetText& budget, Bytes whole) {
  if (const auto* bytes = std::get_if<Bytes>(&budget)) return *bytes;
  const double part = std::get<Share>(budget).value * static_cast<double>(whole.count());
  return Bytes(static_cast<std::uint64_t>(part));
}

}  // namespace spillway::app
