#include "spillway/transfer/ticket.hpp"

#include "spillway/transfer/engine.hpp"
#include "ticket_state.hpp"

namespace spillway {

Ticket::~Ticket() {
  if (engine_ != nullptr) engine_->cancel(*state_);
}

Bytes Ticket::size() const noexcept { return state_->size; }

bool Ticket::released() const noexcept { return state_->released; }

bool Ticket::reloading() const noexcept { return state_->reloading; }

}  // namespace spillway
