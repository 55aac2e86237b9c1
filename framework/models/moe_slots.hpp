/// Where the chosen rows of a mixture of experts go; internal. No host synchronisation.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "spillway/models/moe_router.hpp"

namespace spillway {

/// For spread_rows() and collect_rows(): slots are rows in the order of the experts.
struct RowSlots {
  at::Tensor row_of;     ///< [slots]: the token in the slot
  at::Tensor choice_of;  ///< [slots]: its choice, token * k + number
  at::Tensor empty;      ///< [slots]: no row is in it; undefined: none is empty
  at::Tensor slot_of;    ///< [tokens * k]: by choice
  at::Tensor lost;       ///< [tokens * k]: it found no slot; undefined: all did
};

/// As many slots as choices; the rows of an expert in the order of the tokens.
[[nodiscard]] RowSlots dropless_slots(const Routing& routing);

/// `capacity` slots for each expert; of more rows the first are taken.
[[nodiscard]] RowSlots capacity_slots(const Routing& routing, std::int64_t capacity);

/// Slots of each expert: `factor` times what would be even, rounded up, and not more than tokens.
[[nodiscard]] std::int64_t capacity_of(double factor, std::int64_t tokens, std::int64_t chosen,
                                       std::int64_t experts);

}  // namespace spillway
