#include "torch/execute/never_moved.hpp"

#include "torch/execute/chunk_layout.hpp"

namespace spillway {

void NeverMoved::add(int chunk, const ChunkProfile& pass) {
  for (const SiteProfile& site : pass.sites) {
    const FixedReason reason = pass.buffers[static_cast<std::size_t>(site.buffer)].fixed;
    if (may_not_move(reason)) signatures_.emplace(chunk, site.signature);
  }
}

void NeverMoved::keep(const Found& found, Profile& profile) {
  for (ChunkProfile& chunk : profile.chunks) {
    for (BufferProfile& buffer : chunk.buffers) {
      if (!found.contains({chunk.chunk, buffer.id})) continue;
      if (buffer.fixed == FixedReason::kNone) buffer.fixed = FixedReason::kOwnedElsewhere;
    }
  }
}

std::vector<std::string> NeverMoved::keep(const Found& found, Plan& plan) {
  std::vector<std::string> names;
  for (ChunkPlan& chunk : plan.chunks) {
    for (Decision& decision : chunk.decisions) {
      const auto reason = found.find({chunk.chunk, decision.buffer});
      if (reason == found.end() || decision.action == Action{}) continue;
      decision.action = {};
      decision.fixed = FixedReason::kOwnedElsewhere;
      decision.reason += ", but " + reason->second;
      names.push_back(decision.position.scope + " " + decision.position.saver + ": " +
                      reason->second);
    }
    for (std::size_t i = 0; i < chunk.anchors.size(); ++i) {
      const auto id = static_cast<int>(chunk.decisions.size() + i);
      const auto reason = found.find({chunk.chunk, id});
      if (reason == found.end()) continue;
      chunk.anchors[i].action = {};
      names.push_back("the output of " + chunk.anchors[i].name + ": " + reason->second);
    }
    for (std::size_t i = 0; i < chunk.sites.signature.size(); ++i) {
      if (!found.contains({chunk.chunk, chunk.sites.buffer[i]})) continue;
      signatures_.emplace(chunk.chunk, chunk.sites.signature[i]);
    }
  }
  return names;
}

bool NeverMoved::amend(Plan& plan) const {
  bool changed = false;
  if (signatures_.empty()) return changed;
  for (ChunkPlan& chunk : plan.chunks) {
    for (std::size_t i = 0; i < chunk.sites.signature.size(); ++i) {
      Decision& decision = chunk.decisions[static_cast<std::size_t>(chunk.sites.buffer[i])];
      if (decision.fixed != FixedReason::kNone ||
          !contains(chunk.chunk, chunk.sites.signature[i])) {
        continue;
      }
      decision.action = {};
      decision.fixed = FixedReason::kOwnedElsewhere;
      decision.reason += ", but an earlier step found that it must not be moved";
      changed = true;
    }
  }
  return changed;
}

}  // namespace spillway
