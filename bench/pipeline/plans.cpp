#include "plans.hpp"

namespace spillway::bench {

const std::vector<PipelinePlan>& pipeline_plans() {
  static const std::vector<PipelinePlan> kPlans = {
      {.id = "rules",
       .text = "core_attn, attn_proj offloaded",
       .rules = "[[rule]]\nmodule = [\"core_attn\", \"attn_proj\"]\naction = \"offload\"\n",
       .offloads = true,
       .most = 1.02},
      {.id = "budget", .text = "budget", .most = 1.02},
      {.id = "experts",
       .text = "experts: expert_fc1, moe_act offloaded",
       .rules = "[[rule]]\nmodule = [\"expert_fc1\", \"moe_act\"]\naction = \"offload\"\n",
       .experts = true,
       .offloads = true,
       .most = 1.02},
      {.id = "recompute",
       .text = "every layer recomputed",
       .rules = "[paddle]\nrecompute_interval = 1\n"},
      {.id = "recompute_offload",
       .text = "the same, what enters it offloaded",
       .rules = "[paddle]\nrecompute_interval = 1\nrecompute_offload = true\n",
       .as_fast_as = "recompute",
       .least_share = 0.98},
      {.id = "recompute_partition",
       .text = "the same, each rank a part of it",
       .rules = "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\n",
       .as_fast_as = "recompute",
       .least_share = 0.95,
       .parts = true},
      {.id = "recompute_all",
       .text = "the same, a part of it offloaded",
       .rules = "[paddle]\nrecompute_interval = 1\nrecompute_offload = true\n"
                "recompute_partition = true\n",
       .parts = true,
       .smallest = true}};
  return kPlans;
}

}  // namespace spillway::bench
