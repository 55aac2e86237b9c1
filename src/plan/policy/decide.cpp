#include "plan/policy/decide.hpp"

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

/// By the call that made it; what no known call made comes first, because it existed first.
std::vector<const BufferProfile*> in_order_of_production(
    std::vector<const BufferProfile*> buffers) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const BufferProfile* a, const BufferProfile* b) {
                     return a->producer.call < b->producer.call;
                   });
  return buffers;
}

Bytes share(Bytes total, double fraction) {
  if (fraction >= 1) return total;
  const auto bytes = std::ceil(static_cast<long double>(total.count()) * fraction);
  return Bytes(static_cast<std::uint64_t>(bytes));
}

class Decider {
 public:
  Decider(const ChunkProfile& chunk, const Rules& rules, const Matcher& matcher)
      : chunk_(chunk), rules_(rules), matcher_(matcher) {
    decided_.plan.chunk = chunk.chunk;
    decided_.plan.sites = sites_of(chunk);
    for (const BufferProfile& buffer : chunk.buffers) start(buffer);
  }

  [[nodiscard]] DecidedChunk run() && {
    for (std::size_t i = 0; i < rules_.rules.size(); ++i) decided_.matched.push_back(apply(i));
    return std::move(decided_);
  }

 private:
  void start(const BufferProfile& buffer) {
    Decision decision;
    decision.buffer = buffer.id;
    decision.position = buffer.position;
    decision.fixed = buffer.fixed;
    decision.bytes = buffer.size;
    decision.reason = "nothing matched: keep";
    bool open = false;
    if (buffer.fixed != FixedReason::kNone) {
      decision.reason = "fixed: " + std::string(to_string(buffer.fixed));
    } else if (rules_.limits.min_size && buffer.size < *rules_.limits.min_size) {
      decision.reason = "smaller than [limits] min_size: keep";
    } else {
      open = true;
    }
    decided_.plan.decisions.push_back(std::move(decision));
    decided_.open.push_back(open);
  }

  /// Undecided buffers for which the rule's conditions hold, in order of production.
  [[nodiscard]] std::vector<const BufferProfile*> candidates(const Rule& rule) const {
    std::vector<const BufferProfile*> found;
    for (const BufferProfile& buffer : chunk_.buffers) {
      const bool open = decided_.open[static_cast<std::size_t>(buffer.id)];
      if (open && matcher_.matches(rule, buffer)) found.push_back(&buffer);
    }
    return in_order_of_production(std::move(found));
  }

  std::size_t apply(std::size_t index) {
    const Rule& rule = rules_.rules[index];
    const std::string name = name_of(rule, index);
    const std::vector<const BufferProfile*> found = candidates(rule);
    auto next = found.begin();
    for (Bytes skipped; next != found.end() && skipped < rule.skip; ++next) {
      skipped += (*next)->size;
      decision_of(**next).reason = "skipped by " + name + ": keep";
    }
    Bytes rest;
    for (auto each = next; each != found.end(); ++each) rest += (*each)->size;
    const Bytes wanted = share(rest, rule.fraction);
    std::size_t count = 0;
    for (Bytes taken; next != found.end() && (rule.fraction >= 1 || taken < wanted); ++next) {
      taken += (*next)->size;
      decide(decision_of(**next), rule, name);
      ++count;
    }
    for (; next != found.end(); ++next) {
      decision_of(**next).reason = "beyond the fraction of " + name + ": keep";
    }
    return count;
  }

  [[nodiscard]] Decision& decision_of(const BufferProfile& buffer) {
    return decided_.plan.decisions[static_cast<std::size_t>(buffer.id)];
  }

  void decide(Decision& decision, const Rule& rule, const std::string& name) {
    decision.action = rule.action;
    decision.fallback = rule.fallback == ActionKind::kRecompute ? ActionKind::kKeep : rule.fallback;
    decision.reason = name;
    decided_.open[static_cast<std::size_t>(decision.buffer)] = false;
  }

  const ChunkProfile& chunk_;
  const Rules& rules_;
  const Matcher& matcher_;
  DecidedChunk decided_;
};

}  // namespace

DecidedChunk decide(const ChunkProfile& chunk, const Rules& rules, const Matcher& matcher) {
  return Decider(chunk, rules, matcher).run();
}

}  // namespace spillway
