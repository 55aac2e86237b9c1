#include "torch/ranks/shared_plan.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "spillway/core/error.hpp"
#include "torch/hooks/call_recorder.hpp"
#include "torch/hooks/error_text.hpp"
#include "torch/ranks/shard_digest.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

constexpr std::uint64_t kNoError = 0;
constexpr std::uint64_t kInfeasible = 1;
constexpr std::uint64_t kOtherError = 2;

std::uint64_t kind_of(const std::exception_ptr& error) {
  if (error == nullptr) return kNoError;
  try {
    std::rethrow_exception(error);
  } catch (const PlanInfeasible&) {
    return kInfeasible;
  } catch (...) {
    return kOtherError;
  }
}

/// The first rank's text; collective.
std::string send_text(ShardGroup& group, std::string text) {
  const auto size = static_cast<std::size_t>(ask(group, {text.size()})->read()[0]);
  std::vector<std::uint64_t> mine((size + 7) / 8);
  std::memcpy(mine.data(), text.data(), std::min(size, text.size()));
  const RecordingPause pause;  // Reading words may run operators.
  const std::vector<std::uint64_t> all = ask(group, mine)->read();
  text.resize(size);
  std::memcpy(text.data(), all.data(), size);
  return text;
}

}  // namespace

void SharedPlan::Problem::raise() const {
  // The text begins with the operation in brackets.
  const std::size_t end = text.find("] ");
  const bool named = text.starts_with('[') && end != std::string::npos;
  const std::string operation = named ? text.substr(1, end - 1) : "plan";
  const std::string detail = named ? text.substr(end + 2) : text;
  if (infeasible) throw PlanInfeasible(operation, detail);
  throw InvalidArgument(operation, "the first rank of the shard group could not plan: " + detail);
}

void SharedPlan::adopt(std::shared_ptr<const Plan> plan) {
  plan_ = std::move(plan);
  word_ = 0;
  if (plan_ == nullptr) return;
  Digest digest;
  digest.add(to_json(*plan_));
  word_ = std::max<std::uint64_t>(1, digest.value());
}

SharedPlan::Answer SharedPlan::share(ShardGroup& group, const Mine& mine) const {
  const std::uint64_t word = mine.in_use ? word_ : 0;
  const std::vector<std::uint64_t> words =
      ask(group, {word, mine.excess.count(), kind_of(mine.error)})->read();
  Answer answer;
  if (words[2] != kNoError) {
    const std::string text = mine.error != nullptr ? text_of(mine.error) : std::string();
    answer.problem = {send_text(group, text), words[2] == kInfeasible};
    return answer;
  }
  bool same = true;
  for (std::size_t i = 0; i < words.size(); i += 3) {
    same = same && words[i] == words[0];
    if (i > 0 && words[i] == words[0]) answer.excess = std::max(answer.excess, Bytes(words[i + 1]));
  }
  if (words[0] == 0 || same) return answer;
  std::string text = send_text(group, group.rank() == 0 ? to_json(*plan_) : std::string());
  if (word != words[0]) answer.plan = std::move(text);
  return answer;
}

}  // namespace spillway
