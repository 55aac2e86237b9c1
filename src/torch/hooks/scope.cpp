#include "spillway/torch/scope.hpp"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "torch/hooks/scope_recording.hpp"
#include "torch/hooks/step_thread.hpp"

namespace spillway {
namespace {

struct Region {
  std::uint64_t id;
  ScopeSource::Position position;  // Where it was entered.
  std::string path;
};

std::vector<Region>& regions() {
  thread_local std::vector<Region> value;
  return value;
}

/// Another thread may end the step at any time: then there is no position.
ScopeSource::Position current_position() {
  const StepThread* const step = StepThread::current();
  const std::shared_ptr<ScopeSource> source = step == nullptr ? nullptr : step->scope_source();
  return source == nullptr ? ScopeSource::Position() : source->position();
}

std::string path_at(const ScopeSource::Position& position) {
  const auto region = std::find_if(regions().rbegin(), regions().rend(),
                                   [&](const Region& each) { return each.position == position; });
  return region == regions().rend() ? position.scope : region->path;
}

}  // namespace

std::string Scope::current() { return wanted() ? path_at(current_position()) : std::string(); }

bool Scope::wanted() {
  const StepThread* const step = StepThread::current();
  return step != nullptr && step->tracks_scopes();
}

std::uint64_t Scope::enter(std::string_view name) {
  if (!wanted()) return 0;
  // A region may be left on another thread, which must not take it for one of its own.
  static std::atomic<std::uint64_t> entered = 0;
  Region region{++entered, current_position(), {}};
  region.path = path_at(region.position);
  if (!region.path.empty() && !name.empty()) region.path += '.';
  region.path += name;
  regions().push_back(std::move(region));
  return regions().back().id;
}

void Scope::leave(std::uint64_t region) noexcept {
  if (region == 0) return;
  std::erase_if(regions(), [&](const Region& each) { return each.id == region; });
}

void forget_scopes() noexcept { regions().clear(); }

}  // namespace spillway
