/// A budget as people write it on a command line.
#pragma once

#include <string_view>
#include <variant>

#include "spillway/core/bytes.hpp"

namespace spillway::app {

/// A part of what a step has allocated if everything is kept; above 0, at most 1.
struct Share {
  double value = 0;

  bool operator==(const Share&) const = default;
};

using BudgetText = std::variant<Bytes, Share>;

/// Reads "8GiB", "512 MiB" or "33%".
/// Errors: InvalidArgument with the text and what is accepted.
[[nodiscard]] BudgetText parse_budget(std::string_view text);

/// `whole`: what a share is of.
[[nodiscard]] Bytes resolve(const BudgetText& budget, Bytes whole);

}  // namespace spillway::app
