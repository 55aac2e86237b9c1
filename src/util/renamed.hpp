/// Old names of keys, options and fields, which still work for one release.
#pragma once

#include <string_view>

namespace spillway {

/// Warns once per process, on standard error, that `old` is now called `name`. `kind`: what is
/// named, "rules key".
/// Threads: any.
void warn_renamed(std::string_view kind, std::string_view old, std::string_view name);

}  // namespace spillway
