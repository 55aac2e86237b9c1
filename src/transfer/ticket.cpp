#include "spillway/transfer/ticket.hpp"

#include "spillway/transfer/engine.hpp"
#include "ticket_state.hpp"

namespace spillway {

Ticket::~Ticket() {
  if (engine_ != nullptr) engine_->cancel(*state_);
}

std::uint64_t Ticket::id() const noexcept { return state_->id; }

Bytes Ticket::size() const noexcept { return state_->size; }

bool Ticket::released() const noexcept { return state_->released; }

bool Ticket::reloading() const noexcept { return state_->reloading; }

}  // namespace spillway
