/// Question: what does a session cost the host for each tensor that autograd saves?
///
/// How to read it: a chain of small operators, each of which saves one tensor, runs forward and
/// backward, in turns without and with a session. The figure is the difference of the two times
/// (tenth percentiles) over the number of saved tensors. It includes everything from the hook's
/// construction to its destruction and autograd's own overhead with hooks. It is CPU time of the
/// process, so that other processes do not count; "wall time" is the same by the clock. Tensors are
/// small, so that a GPU keeps up with the host. "offloaded" also has the calls that queue the
/// copies and, on the CPU, the copies themselves, each with a thread switch. "recording" is the
/// overhead of recording calls, forward only, for rules that recompute every tensor.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "spillway/torch/session.hpp"
#include "support/training_program.hpp"
#include "train/model/device_memory.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr const char* kQuestion =
    "What does a session cost the host for each tensor that autograd saves?";
constexpr double kWantedMicroseconds = 2;
constexpr std::int64_t kElements = 256;

struct Options {
  int tensors = 1000;
  int repeats = 201;
};

/// Microseconds.
struct Time {
  double processor = 0;
  double clock = 0;
};

Time now() {
  std::timespec processor{};
  (void)::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &processor);
  const std::chrono::duration<double, std::micro> clock =
      std::chrono::steady_clock::now().time_since_epoch();
  return {
      static_cast<double>(processor.tv_sec) * 1e6 + static_cast<double>(processor.tv_nsec) / 1e3,
      clock.count()};
}

/// Microseconds for each tensor, CPU time and wall time.
struct Outcome {
  std::vector<double> with;
  std::vector<double> without;
  std::vector<double> with_clock;
  std::vector<double> without_clock;
};

/// The tenth percentile: runs without disturbance.
double fast(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 10];
}

double cost(const Outcome& outcome) { return fast(outcome.with) - fast(outcome.without); }
double clock_cost(const Outcome& outcome) {
  return fast(outcome.with_clock) - fast(outcome.without_clock);
}

class Chain {
 public:
  Chain(int length, at::Device device)
      : length_(length),
        input_(at::rand({kElements}, at::TensorOptions().device(device)).set_requires_grad(true)) {}

  /// The time of forward and backward.
  Time run(Session* session, bool backward) {
    input_.mutable_grad() = at::Tensor();
    app::wait_for_device(input_.device());
    const Time begin = now();
    Time end;
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      at::Tensor x = input_;
      for (int i = 0; i < length_; ++i) x = at::sin(x);
      if (backward) x.sum().backward();
      end = now();
      if (step) step->end();  // Throws if gradients are wrong.
    }
    return {end.processor - begin.processor, end.clock - begin.clock};
  }

  Outcome measure(Session& session, int repeats, bool forward_only) {
    session.register_fixed(input_, FixedReason::kParameter);
    Outcome outcome;
    constexpr int kWarmUp = 5;
    for (int i = 0; i < repeats + kWarmUp; ++i) {
      const bool backward = !forward_only || i < kWarmUp;
      const Time without = run(nullptr, backward);
      const Time with = run(&session, backward);
      if (i < kWarmUp) continue;
      outcome.with.push_back(with.processor / length_);
      outcome.without.push_back(without.processor / length_);
      outcome.with_clock.push_back(with.clock / length_);
      outcome.without_clock.push_back(without.clock / length_);
    }
    return outcome;
  }

 private:
  int length_;
  at::Tensor input_;
};

Outcome measure(const Options& options, at::Device device, const std::string& rules,
                bool forward_only = false) {
  SessionOptions session_options;
  session_options.rules = parse_rules(rules, "saves.toml");
  session_options.device = device;
  session_options.small = 1_B;
  session_options.host = 64_MiB;
  session_options.offload_window = 64_KiB;
  session_options.prefetch_window = 64_KiB;
  Session session(std::move(session_options));
  return Chain(options.tensors, device).measure(session, options.repeats, forward_only);
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--tensors", options.tensors, "Saved tensors of one step")
      ->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "Timed steps")->check(CLI::PositiveNumber);
}

void measure_all(const Options& options, Report& report) {
  const at::Device torch_device = app::best_device();
  report.settings = {{"tensors", options.tensors}, {"elements", kElements}};
  const Outcome kept = measure(options, torch_device, "");
  const Outcome offloaded = measure(options, torch_device, "[[rule]]\naction = \"offload\"\n");
  Figure figure;
  figure.id = "saves.kept";
  figure.found = {"host cost per saved tensor, kept", "us", 2, app::exactly(cost(kept))};
  figure.wanted = Wanted{Wanted::Kind::kAtMost, kWantedMicroseconds, true};
  figure.beside = {{"kept, wall time", "us", 2, app::exactly(clock_cost(kept))},
                   {"offloaded", "us", 2, app::exactly(cost(offloaded))},
                   {"offloaded, wall time", "us", 2, app::exactly(clock_cost(offloaded))},
                   {"an operator without a session", "us", 2, app::spread_of(kept.without)}};
  report.figures.push_back(std::move(figure));

  // Forward only: backward would recompute.
  const Outcome kept_forward = measure(options, torch_device, "", true);
  const Outcome recorded = measure(
      options, torch_device, "[[rule]]\nproducer = \"aten::sin\"\naction = \"recompute\"\n", true);
  Figure recording;
  recording.id = "saves.recorded";
  recording.found = {"recording, per operator", "us", 2,
                     app::exactly(cost(recorded) - cost(kept_forward))};
  recording.wanted = Wanted{Wanted::Kind::kAtMost, 3, true};
  recording.beside = {
      {"wall time", "us", 2, app::exactly(clock_cost(recorded) - clock_cost(kept_forward))},
      {"session and recording", "us", 2, app::exactly(cost(recorded))}};
  report.figures.push_back(std::move(recording));
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("saves", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
