#include "util/renamed.hpp"

#include <iostream>
#include <mutex>
#include <set>
#include <string>

namespace spillway {

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

}  // namespace spillway
