#include "plans.hpp"

namespace spillway::bench {

const std::vector<PipelinePlan>& pipeline_plans() {
  static const std::vector<PipelinePlan> kPlans = {
      {.id = "rules",
       .text = "core_attn, attn_proj offloaded",
       .rules = "[[rule]]\nmodule = [\"core_attn\", \"attn_proj\"]\naction = \"offload\"\n",
       .offloads = true,
       .max_ratio = 1.02},
      {.id = "budget", .text = "budget", .max_ratio = 1.02},
      {.id = "experts",
       .text = "experts: expert_fc1, moe_act offloaded",
       .rules = "[[rule]]\nmodule = [\"expert_fc1\", \"moe_act\"]\naction = \"offload\"\n",
       .experts = true,
       .offloads = true,
       .max_ratio = 1.02},
      {.id = "recompute",
       .text = "every layer recomputed",
       .rules = "[paddle]\nrecompute_interval = 1\n"},
      {.id = "recompute_offload",
       .text = "the same, layer inputs offloaded",
       .rules = "[paddle]\nrecompute_interval = 1\nrecompute_offload = true\n",
       .as_fast_as = "recompute",
       .min_share = 0.98},
      {.id = "recompute_partition",
       .text = "the same, layer inputs sharded",
       .rules = "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\n",
       .as_fast_as = "recompute",
       .min_share = 0.95,
       .shards = true},
      {.id = "recompute_all",
       .text = "the same, shards offloaded",
       .rules = "[paddle]\nrecompute_interval = 1\nrecompute_offload = true\n"
                "recompute_partition = true\n",
       .shards = true,
       .smallest = true}};
  return kPlans;
}

}  // namespace spillway::bench
