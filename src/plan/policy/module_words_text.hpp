/// The text of module_words.toml, put into the library by CMake.
#pragma once

#include <string_view>

namespace spillway {

extern const std::string_view kModuleWordsText;

}  // namespace spillway
