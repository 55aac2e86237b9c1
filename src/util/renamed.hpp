/// Old names of keys, options and fields, which still work for one release.
#pragma once

#include <span>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace spillway {

/// Warns once per process, on standard error, that `old` is now called `name`. `kind`: what is
/// named, "rules key".
/// Threads: any.
void warn_renamed(std::string_view kind, std::string_view old, std::string_view name);

/// A key of JSON that the schema before had under another name.
struct RenamedKey {
  const char* old;
  const char* name;
};

/// For scripts that read the schema before: repeats, at the end of each object in `json`, what was
/// renamed under its old name, and lists the names in the object "renamed" (old -> new).
void add_old_names(nlohmann::ordered_json& json, std::span<const RenamedKey> renamed);

}  // namespace spillway
