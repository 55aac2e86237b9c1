/// Old names of keys, options and fields, which go on working for one release.
#pragma once

#include <string_view>

namespace spillway {

/// Says once a process, on standard error, that `old` is now called `name`. `kind`: what it is the
/// name of, "rules key".
/// Threads: any.
void warn_renamed(std::string_view kind, std::string_view old, std::string_view name);

}  // namespace spillway
