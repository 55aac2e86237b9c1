#include "util/toml_text.hpp"

#include <array>
#include <cstdio>

namespace spillway {

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      out += '\\';
      out += each;
    } else if (static_cast<unsigned char>(each) < 0x20 || each == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04X", static_cast<unsigned>(each));
      out += escape.data();
    } else {
      out += each;
    }
  }
  return out + '"';
}

}  // namespace spillway
