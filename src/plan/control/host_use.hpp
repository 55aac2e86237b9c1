/// How much pinned host memory the steps of a plan need; internal.
#pragma once

#include <optional>

#include "spillway/core/bytes.hpp"

namespace spillway {

/// Decides when pinned memory is given back: once some steady steps with a plan have shown how much
/// they need. Where later steps need more than was left, it looks longer the next time.
class HostUse {
 public:
  /// `verify_every`: as SessionOptions. At least `prepare` is never given back.
  HostUse(int verify_every, Bytes prepare) : verify_every_(verify_every), prepare_(prepare) {}

  struct Step {
    bool steady = false;    ///< It shows what the steps after it need.
    bool verified = false;  ///< It offloaded what others recompute.
    Bytes reach;            ///< The memory it used.
    Bytes pinned;           ///< What is pinned after it.
  };

  void plan_adopted() noexcept;
  /// Returns how much of the pinned memory to keep; empty: all of it.
  [[nodiscard]] std::optional<Bytes> step_ended(const Step& step);

 private:
  /// kSettling -> kSettled: enough steady steps. kSettled -> kSettling: another plan.
  enum class State { kSettling, kSettled };

  int verify_every_;
  Bytes prepare_;
  State state_ = State::kSettling;
  int steps_ = 0;              // Steady ones with this plan.
  int wanted_steps_ = 4;       // That many show how much the plan needs.
  bool verified_ = false;      // One of them verified.
  Bytes reach_;                // Of those steps.
  std::optional<Bytes> kept_;  // By the last trim, if steps since then needed no more.
};

}  // namespace spillway
