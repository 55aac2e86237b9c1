#include "spillway/groups/pending.hpp"

#include <utility>

#include "groups/dropped_work.hpp"
#include "groups/pending_state.hpp"
#include "spillway/groups/error.hpp"

namespace spillway {

Pending::Pending() noexcept = default;
Pending::Pending(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending dropped(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

Pending::~Pending() {
  if (state_ == nullptr || state_->goes_on_alone) return;
  keep_until_done(std::move(state_->work), std::move(state_->tensors));
}

void Pending::wait() {
  if (state_ == nullptr) return;
  // Released first: after an error there is nothing left to wait for.
  const std::unique_ptr<State> state = std::move(state_);
  try {
    state->work->wait(state->timeout);
  } catch (const Error&) {
    throw;  // The MPI backend knows more than can be said here.
  } catch (const std::exception& error) {
    throw CommunicationError(state->operation,
                             state->where + " failed: " + error.what() +
                                 "; another rank has ended, hangs, or called something else");
  }
  if (state->after) state->after();
}

bool Pending::done() const { return state_ == nullptr || state_->work->isCompleted(); }

}  // namespace spillway
