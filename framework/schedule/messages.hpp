/// Who sends what to whom: the messages that a pass needs and makes.
#pragma once

#include <optional>

#include "spillway/schedule/schedule.hpp"

namespace spillway {

/// What the pass has to receive before it, or nothing: the first part's forward starts from the
/// batch, the last part's backward from the loss, and a rank alone has everything.
[[nodiscard]] std::optional<PipelineAction> needed_by(const PassStep& pass,
                                                      const PipelineRank& rank);

/// What the pass has to send after it, or nothing.
[[nodiscard]] std::optional<PipelineAction> made_by(const PassStep& pass, const PipelineRank& rank);

}  // namespace spillway
