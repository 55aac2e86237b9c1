#include "spillway/torch/scope.hpp"

#include <vector>

#include "scope_recording.hpp"

namespace spillway {
namespace {

struct ThreadScopes {
  int recorders = 0;
  std::string path;
  std::vector<std::size_t> lengths;  // Of the path before each scope.
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
  all.lengths.push_back(all.path.size());
  if (!all.path.empty() && !name.empty()) all.path += '.';
  all.path += name;
}

void Scope::leave() noexcept {
  ThreadScopes& all = scopes();
  if (all.lengths.empty()) return;
  all.path.resize(all.lengths.back());
  all.lengths.pop_back();
}

void start_recording_scopes() { ++scopes().recorders; }

void stop_recording_scopes() noexcept { --scopes().recorders; }

}  // namespace spillway
