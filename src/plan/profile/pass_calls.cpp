#include "plan/profile/pass_calls.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace spillway {

bool is_of_call(MomentKind kind) noexcept {
  return kind == MomentKind::kCallBegins || kind == MomentKind::kCallEnds;
}

std::vector<int> match_calls(const ChunkProfile& chunk, const std::vector<PassCall>& calls) {
  using Key = std::tuple<int, int, std::string_view>;
  std::map<Key, int> operators;
  for (std::size_t i = 0; i < chunk.operators.size(); ++i) {
    const OperatorProfile& each = chunk.operators[i];
    operators.emplace(Key{each.saves, each.ordinal, each.name}, static_cast<int>(i));
  }
  const auto before = static_cast<int>(std::count_if(
      calls.begin(), calls.end(), [](const PassCall& call) { return call.saves == 0; }));
  const int shift = before - chunk.calls_before_first_save;
  std::vector<int> numbers;
  for (const PassCall& call : calls) {
    const auto index = static_cast<std::size_t>(call.number);
    if (numbers.size() <= index) numbers.resize(index + 1, -1);
    if (call.saves > 0) {
      const auto found = operators.find({call.saves, call.ordinal, call.name});
      if (found != operators.end()) numbers[index] = found->second;
      continue;
    }
    const int number = call.number - shift;
    const bool there = number >= 0 && static_cast<std::size_t>(number) < chunk.operators.size();
    if (there && chunk.operators[static_cast<std::size_t>(number)].name == call.name) {
      numbers[index] = number;
    }
  }
  return numbers;
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
