/// The states of all tickets, reused; internal.
#pragma once

#include <deque>
#include <vector>

#include "ticket_state.hpp"

namespace spillway::detail {

class TicketStates {
 public:
  [[nodiscard]] TicketState& take() {
    if (idle_.empty()) {
      all_.emplace_back();
      idle_.reserve(all_.size());  // Giving one back must not throw.
      return all_.back();
    }
    TicketState& state = *idle_.back();
    idle_.pop_back();
    return state;
  }

  void give_back(TicketState& state) noexcept {
    state = {};
    idle_.push_back(&state);
  }

 private:
  std::deque<TicketState> all_;  // Their addresses stay.
  std::vector<TicketState*> idle_;
};

}  // namespace spillway::detail
