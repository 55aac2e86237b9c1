#include "models/moe_places.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace spillway {
namespace {

/// Choices by expert, those of one expert in the order of the tokens; and the place of each.
struct Order {
  at::Tensor choices;
  at::Tensor places;
};

Order order_of(const at::Tensor& expert) {
  const at::Tensor choices = at::argsort(expert, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  // Every place is written once.
  const at::Tensor places =
      at::zeros_like(choices).scatter(0, choices, at::arange(choices.size(0), choices.options()));
  return {choices, places};
}

}  // namespace

RowPlaces dropless_places(const Routing& routing) {
  const at::NoGradGuard no_gradients;
  const Order order = order_of(routing.chosen.reshape({-1}));
  return {
      at::floor_divide(order.choices, routing.chosen.size(1)), order.choices, {}, order.places, {}};
}

RowPlaces capacity_places(const Routing& routing, std::int64_t capacity) {
  const at::NoGradGuard no_gradients;
  const at::Tensor expert = routing.chosen.reshape({-1});
  const Order order = order_of(expert);
  const at::Tensor first = routing.counts.cumsum(0) - routing.counts;
  const at::Tensor number = at::arange(capacity, expert.options()).unsqueeze(0);
  RowPlaces places;
  places.empty = (number >= routing.counts.unsqueeze(1)).view({-1});
  const at::Tensor sorted = (first.unsqueeze(1) + number).view({-1}).clamp_max(expert.size(0) - 1);
  places.choice_of = order.choices.index_select(0, sorted);
  places.row_of = at::floor_divide(places.choice_of, routing.chosen.size(1));
  const at::Tensor in_line = order.places - first.index_select(0, expert);
  places.lost = in_line >= capacity;
  places.slot_of = expert * capacity + in_line.clamp_max(capacity - 1);
  return places;
}

std::int64_t capacity_of(double factor, std::int64_t tokens, std::int64_t chosen,
                         std::int64_t experts) {
  const double even = static_cast<double>(tokens * chosen) / static_cast<double>(experts);
  const auto wanted = static_cast<std::int64_t>(std::ceil(factor * even));
  return std::clamp<std::int64_t>(wanted, 1, tokens);
}

}  // namespace spillway
