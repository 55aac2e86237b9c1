#include "torch/hooks/expected_saves.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace spillway {
namespace {

struct Announcement {
  FunctionCall call = nullptr;
  std::vector<bool> left_to_autograd;
  std::size_t next = 0;
};

std::atomic<const FunctionCalls*> g_calls = nullptr;

thread_local std::vector<Announcement> t_announced;  // From the outermost call to the innermost.

}  // namespace

void set_function_calls(const FunctionCalls& calls) noexcept { g_calls = &calls; }

void expect_saves(std::vector<bool> left_to_autograd) {
  const FunctionCalls* const calls = g_calls;
  const bool any =
      std::find(left_to_autograd.begin(), left_to_autograd.end(), true) != left_to_autograd.end();
  if (calls == nullptr || (!any && t_announced.empty())) return;
  const FunctionCall call = calls->innermost();
  // The identity of a call that is over may be used again, so all of those have to go now.
  while (!t_announced.empty()) {
    const FunctionCall last = t_announced.back().call;
    if (last != call && calls->is_running(last)) break;
    t_announced.pop_back();
  }
  if (any && call != nullptr) t_announced.push_back({call, std::move(left_to_autograd), 0});
}

bool next_save_is_left() {
  if (t_announced.empty()) return false;
  const FunctionCall call = g_calls.load()->saving();
  if (call == nullptr) return false;
  const auto found = std::find_if(t_announced.begin(), t_announced.end(),
                                  [call](const Announcement& each) { return each.call == call; });
  if (found == t_announced.end()) return false;
  const bool left = found->left_to_autograd[found->next++];
  // Calls within this one are over.
  const bool last = found->next == found->left_to_autograd.size();
  t_announced.erase(last ? found : found + 1, t_announced.end());
  return left;
}

}  // namespace spillway
