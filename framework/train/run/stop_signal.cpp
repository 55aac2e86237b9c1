#include "train/run/stop_signal.hpp"

#include <array>
#include <csignal>
#include <cstddef>

namespace spillway::app {
namespace {

constexpr std::array<int, 2> kSignals = {SIGTERM, SIGINT};

// Handlers know no objects.
volatile std::sig_atomic_t received_signal = 0;
std::array<struct sigaction, kSignals.size()> previous{};

void note(int signal) { received_signal = signal; }

}  // namespace

StopSignal::StopSignal() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = note;
  // Waiting calls go on, and the second signal does what it did before.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    (void)::sigaction(kSignals[i], &action, &previous[i]);
  }
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    (void)::sigaction(kSignals[i], &previous[i], nullptr);
  }
}

int StopSignal::received() const noexcept { return received_signal; }

}  // namespace spillway::app
