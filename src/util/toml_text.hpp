/// Values as TOML text.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

/// "text", with what TOML wants escaped.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace spillway
