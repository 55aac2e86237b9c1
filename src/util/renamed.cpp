#include "util/renamed.hpp"

#include <iostream>
#include <mutex>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

void repeat_under_old_names(Json& json, std::span<const RenamedKey> renamed) {
  if (!json.is_structured()) return;
  for (Json& each : json) repeat_under_old_names(each, renamed);
  if (!json.is_object()) return;
  for (const RenamedKey& key : renamed) {
    if (json.contains(key.name)) json[key.old] = Json(json[key.name]);
  }
}

}  // namespace

void warn_renamed(std::string_view kind, std::string_view old, std::string_view name) {
  static std::mutex mutex;
  static auto& known = *new std::set<std::string>;  // Never destroyed: used until exit.
  const std::string text = std::string(kind) + " \"" + std::string(old) + "\" is now called \"" +
                           std::string(name) + "\"; the old name works for one more release";
  {
    const std::lock_guard lock(mutex);
    if (!known.insert(text).second) return;
  }
  std::cerr << "spillway: warning: " + text + "\n";
}

void add_old_names(Json& json, std::span<const RenamedKey> renamed) {
  repeat_under_old_names(json, renamed);
  for (const RenamedKey& key : renamed) json["renamed"][key.old] = key.name;
}

}  // namespace spillway
