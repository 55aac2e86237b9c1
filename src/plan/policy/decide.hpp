/// What rules say about each buffer, before the check of what can be recomputed.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/policy/match.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

struct DecidedChunk {
  ChunkPlan plan;                    ///< Decisions and sites; plan_recompute() fills in the rest.
  std::vector<bool> open;            ///< By buffer: no rule decided it, and it may be moved.
  std::vector<std::size_t> matched;  ///< By rule: how many buffers it decided.
};

/// `rules` must be translated. What no rule matches is kept.
[[nodiscard]] DecidedChunk decide(const ChunkProfile& chunk, const Rules& rules,
                                  const Matcher& matcher);

}  // namespace spillway
