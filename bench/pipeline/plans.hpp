/// The plans that are compared on every rank of a pipeline.
#pragma once

#include <string>
#include <vector>

namespace spillway::bench {

struct PipelinePlan {
  std::string id;               ///< "rules": for --plans, and in JSON.
  std::string text;             ///< "core_attn, attn_proj offloaded".
  std::string rules = {};       ///< TOML; empty: by a budget.
  bool experts = false;         ///< Every second layer has experts instead of its MLP.
  bool offloads = false;        ///< Nothing but that: all of it is to be gone.
  double most = 0;              ///< Wanted: times the step without, at most. 0: nothing.
  std::string as_fast_as = {};  ///< The id of an earlier plan, and
  double least_share = 0;       ///< what is wanted of its speed.
  bool parts = false;           ///< Shares with tensor ranks, which are made up.
  bool smallest = false;        ///< No plan before it that recomputes is to have a lower peak.
};

/// All that there are, those of the default first.
[[nodiscard]] const std::vector<PipelinePlan>& pipeline_plans();

}  // namespace spillway::bench
