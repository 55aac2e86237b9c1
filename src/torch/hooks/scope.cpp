#include "spillway/torch/scope.hpp"

#include <utility>
#include <vector>

#include "torch/hooks/scope_recording.hpp"
#include "torch/hooks/step_thread.hpp"

namespace spillway {
namespace {

struct ThreadScopes {
  std::string path;
  std::vector<std::string> before;  // The path outside of each scope.
};

ThreadScopes& scopes() {
  thread_local ThreadScopes value;
  return value;
}

}  // namespace

const std::string& Scope::current() { return scopes().path; }

bool Scope::wanted() {
  const StepThread* const step = StepThread::current();
  return step != nullptr && step->tracks_scopes();
}

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

void forget_scopes() noexcept {
  ThreadScopes& all = scopes();
  all.path.clear();
  all.before.clear();
}

}  // namespace spillway
