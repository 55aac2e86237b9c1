/// The options of a session that its plan controller obeys; internal.
#pragma once

#include <chrono>
#include <optional>

#include "spillway/plan/budget.hpp"
#include "spillway/plan/plan.hpp"
#include "spillway/plan/rules.hpp"

namespace spillway {

/// As SessionOptions.
struct ControllerOptions {
  Rules rules;
  std::optional<Budget> budget;
  bool plan_in_background = true;
  std::chrono::milliseconds planning_time{5000};
  double drift = 0.1;
  bool replan = false;
  bool strict = false;
  std::optional<Bytes> offload_window;
  std::optional<Bytes> prefetch_window;
  std::optional<Bytes> recompute_cache;
  int verify_every = 0;
  Bytes prepare;
};

}  // namespace spillway
