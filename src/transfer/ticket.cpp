#include "spillway/transfer/ticket.hpp"

#include "spillway/transfer/engine.hpp"

namespace spillway {

Ticket::~Ticket() {
  if (engine_ != nullptr) engine_->cancel(*state_);
}

}  // namespace spillway
