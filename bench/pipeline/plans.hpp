/// The plans to compare on every rank of a pipeline.
#pragma once

#include <string>
#include <vector>

namespace spillway::bench {

struct PipelinePlan {
  std::string id;               ///< "rules": in --plans and in JSON.
  std::string text;             ///< "core_attn, attn_proj offloaded".
  std::string rules = {};       ///< TOML; empty: a budget instead.
  bool experts = false;         ///< Every second layer has experts instead of a dense MLP.
  bool offloads = false;        ///< Offload only; its peak reduction ratio has a limit.
  double max_ratio = 0;         ///< Limit of the step time, relative to the baseline. 0: none.
  std::string as_fast_as = {};  ///< The id of an earlier plan to compare the speed with.
  double min_share = 0;         ///< Limit: share of that plan's speed.
  bool shards = false;          ///< Shards over emulated tensor-parallel ranks.
  bool smallest = false;        ///< Limit of the peak: the lowest of earlier plans that recompute.
};

/// All plans, the default ones first.
[[nodiscard]] const std::vector<PipelinePlan>& pipeline_plans();

}  // namespace spillway::bench
