#include "spillway/torch/scope.hpp"

#include <utility>
#include <vector>

#include "torch/hooks/scope_recording.hpp"

namespace spillway {
namespace {

struct ThreadScopes {
  int recorders = 0;
  std::string path;
  std::vector<std::string> before;  // The path outside of each scope.
};

ThreadScopes& scopes() {
  thread_local ThreadScopes value;
  return value;
}

}  // namespace

const std::string& Scope::current() { return scopes().path; }

bool Scope::wanted() { return scopes().recorders > 0; }

void Scope::enter(std::string_view name) {
  ThreadScopes& all = scopes();
  all.before.push_back(all.path);
  if (!all.path.empty() && !name.empty()) all.path += '.';
  all.path += name;
}

void Scope::enter_absolute(std::string_view path) {
  ThreadScopes& all = scopes();
  all.before.push_back(std::exchange(all.path, std::string(path)));
}

void Scope::leave() noexcept {
  ThreadScopes& all = scopes();
  if (all.before.empty()) return;
  all.path = std::move(all.before.back());
  all.before.pop_back();
}

void start_recording_scopes() { ++scopes().recorders; }

void stop_recording_scopes() noexcept { --scopes().recorders; }

}  // namespace spillway
