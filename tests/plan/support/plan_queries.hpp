/// Short questions to a plan, for tests.
#pragma once

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "spillway/plan/plan.hpp"
#include "spillway/plan/profile.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway::testing {

/// The only buffer whose position is (scope, saver, ordinal).
inline const BufferProfile& buffer_at(const Profile& profile, const std::string& scope,
                                      const std::string& saver, int ordinal = 0) {
  for (const ChunkProfile& chunk : profile.chunks) {
    for (const BufferProfile& buffer : chunk.buffers) {
      if (buffer.position == Position{scope, saver, ordinal}) return buffer;
    }
  }
  ADD_FAILURE() << "no buffer at " << scope << " " << saver << " " << ordinal;
  static const BufferProfile kNothing;
  return kNothing;
}

/// What the first chunk's plan says of a buffer.
inline const Decision& decision_at(const Plan& plan, const std::string& scope,
                                   const std::string& saver, int ordinal = 0) {
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Decision& decision : chunk.decisions) {
      if (decision.position == Position{scope, saver, ordinal}) return decision;
    }
  }
  ADD_FAILURE() << "no decision at " << scope << " " << saver << " " << ordinal;
  static const Decision kNothing;
  return kNothing;
}

inline std::string action_at(const Plan& plan, const std::string& scope, const std::string& saver,
                             int ordinal = 0) {
  return to_string(decision_at(plan, scope, saver, ordinal).action);
}

inline Bytes bytes_of(const Plan& plan, ActionKind kind) {
  Bytes bytes;
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const Decision& decision : chunk.decisions) {
      if (decision.action.kind == kind) bytes += decision.bytes;
    }
  }
  return bytes;
}

/// The layers that have a buffer with this action.
inline std::set<int> layers_with(const Plan& plan, const Profile& profile, ActionKind kind) {
  std::set<int> layers;
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    for (const Decision& decision : plan.chunks[i].decisions) {
      if (decision.action.kind != kind) continue;
      layers.insert(profile.chunks[i].buffers[static_cast<std::size_t>(decision.buffer)].layer);
    }
  }
  return layers;
}

inline Plan plan_by(const Profile& profile, const std::string& rules) {
  return make_plan(profile, parse_rules(rules, "r.toml"));
}

}  // namespace spillway::testing
