/// A chunk's plan as the hooks of its passes read it; internal.
#pragma once

#include <memory>

#include "spillway/plan/plan.hpp"
#include "torch/record/pass.hpp"

namespace spillway {

/// Whether the original is kept because of what is done to it.
[[nodiscard]] bool may_not_move(FixedReason reason) noexcept;

/// `budget`: the plan has one, so it may offload what it keeps. `ranks`: those that share what is
/// sharded. `profile`: null where nothing was recorded.
[[nodiscard]] std::shared_ptr<ChunkLayout> layout_of(const ChunkPlan& plan, bool budget, int ranks,
                                                     const Profile* profile);

}  // namespace spillway
