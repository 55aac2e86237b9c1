#include "models/moe_slots.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace spillway {
namespace {

/// Choices by expert, those of one expert in the order of the tokens; and the position of each.
struct Order {
  at::Tensor choices;
  at::Tensor positions;
};

Order order_of(const at::Tensor& expert) {
  const at::Tensor choices = at::argsort(expert, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  // Every position is written once.
  const at::Tensor positions =
      at::zeros_like(choices).scatter(0, choices, at::arange(choices.size(0), choices.options()));
  return {choices, positions};
}

}  // namespace

RowSlots dropless_slots(const Routing& routing) {
  const at::NoGradGuard no_gradients;
  const Order order = order_of(routing.chosen.reshape({-1}));
  return {at::floor_divide(order.choices, routing.chosen.size(1)),
          order.choices,
          {},
          order.positions,
          {}};
}

RowSlots capacity_slots(const Routing& routing, std::int64_t capacity) {
  const at::NoGradGuard no_gradients;
  const at::Tensor expert = routing.chosen.reshape({-1});
  const Order order = order_of(expert);
  const at::Tensor first = routing.counts.cumsum(0) - routing.counts;
  const at::Tensor number = at::arange(capacity, expert.options()).unsqueeze(0);
  RowSlots slots;
  slots.empty = (number >= routing.counts.unsqueeze(1)).view({-1});
  const at::Tensor sorted = (first.unsqueeze(1) + number).view({-1}).clamp_max(expert.size(0) - 1);
  slots.choice_of = order.choices.index_select(0, sorted);
  slots.row_of = at::floor_divide(slots.choice_of, routing.chosen.size(1));
  const at::Tensor in_line = order.positions - first.index_select(0, expert);
  slots.lost = in_line >= capacity;
  slots.slot_of = expert * capacity + in_line.clamp_max(capacity - 1);
  return slots;
}

std::int64_t capacity_of(double factor, std::int64_t tokens, std::int64_t chosen,
                         std::int64_t experts) {
  const double even = static_cast<double>(tokens * chosen) / static_cast<double>(experts);
  const auto wanted = static_cast<std::int64_t>(std::ceil(factor * even));
  return std::clamp<std::int64_t>(wanted, 1, tokens);
}

}  // namespace spillway
