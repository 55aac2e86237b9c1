/// The order of the passes of one rank, without messages.
#pragma once

#include "spillway/schedule/schedule.hpp"

namespace spillway {

/// The numbers of `rank` are valid.
[[nodiscard]] PassSchedule order_of_passes(ScheduleKind kind, const PipelineRank& rank);

}  // namespace spillway
