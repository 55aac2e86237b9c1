#include "plan/profile/call_key.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace spillway {

CallKey call_key(int number, int saves, int ordinal, std::string_view name, int before_first_save) {
  return {saves, saves == 0 ? number - before_first_save : ordinal, name};
}

std::vector<int> match_calls(const ChunkProfile& chunk, const std::vector<CallKey>& calls) {
  std::vector<CallIndex::Entry> operators;
  for (const OperatorProfile& each : chunk.operators) {
    const auto number = static_cast<int>(operators.size());
    operators.emplace_back(
        call_key(number, each.saves, each.ordinal, each.name, chunk.calls_before_first_save),
        number);
  }
  const CallIndex index(std::move(operators));
  std::vector<int> numbers;
  for (const CallKey& call : calls) {
    const auto found = index.find(call);
    numbers.push_back(found.empty() ? -1 : found.front().second);
  }
  return numbers;
}

bool is_of_call(MomentKind kind) noexcept {
  return kind == MomentKind::kCallBegins || kind == MomentKind::kCallEnds;
}

std::vector<Moment> remapped(const std::vector<Moment>& moments, const std::vector<int>& numbers) {
  std::vector<Moment> known;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
  std::int64_t ns = 0;
  std::int64_t bytes = kNone;
  for (Moment moment : moments) {
    moment.compute_ns += std::exchange(ns, 0);
    moment.untracked_bytes = std::max(moment.untracked_bytes, std::exchange(bytes, kNone));
    if (is_of_call(moment.kind)) {
      const auto index = static_cast<std::size_t>(moment.index);
      moment.index = index < numbers.size() ? numbers[index] : -1;
      if (moment.index < 0) {
        ns = moment.compute_ns;
        bytes = moment.untracked_bytes;
        continue;
      }
    }
    known.push_back(moment);
  }
  return known;
}

}  // namespace spillway
