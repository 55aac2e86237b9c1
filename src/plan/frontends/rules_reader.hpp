/// Rules from a table that stands within a larger file.
#pragma once

#include "spillway/plan/rules.hpp"
#include "util/toml_reader.hpp"

namespace spillway {

/// The rules whose tables (rule, limits, those of frameworks) are keys of `top`; calls its
/// finish(), so whoever has other keys there asks for them before.
/// Errors: as parse_rules().
[[nodiscard]] Rules read_rules(TomlReader& top);

}  // namespace spillway
