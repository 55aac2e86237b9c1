/// Question: does anything grow when a session runs for many steps?
///
/// How to read it: a small model is trained with everything offloaded. Memory is read after a tenth
/// of the steps and after all of them; each figure is the difference. "device" is what torch's
/// allocator has reserved (0 on the CPU, which has no such statistics), "host tier" the peak of
/// offloaded buffers, "process" the resident memory. Sequence lengths change from step to step, so
/// that blocks have many sizes. The resident memory of a process varies by a few hundred KiB by
/// itself; a leak of 16 bytes for each saved tensor would be more than 3 MiB.
#include <fstream>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <CLI/CLI.hpp>
#include <unistd.h>

#include "spillway/torch/session.hpp"
#include "support/training_program.hpp"
#include "train/model/device_memory.hpp"

namespace spillway::bench {
namespace {

using namespace spillway::literals;

constexpr const char* kQuestion = "Does anything grow when a session runs for many steps?";

struct Options {
  int steps = 10'000;
};

/// Memory in use at one moment, in KiB.
struct MemoryUse {
  double device = 0;
  double host_tier = 0;
  double process = 0;
};

double resident_kib() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

class Mlp {
 public:
  explicit Mlp(at::Device device) : device_(device) {
    at::manual_seed(0);
    for (int i = 0; i < kLayers; ++i) {
      for (const auto& sizes : {std::vector<std::int64_t>{4 * kHidden, kHidden},
                                std::vector<std::int64_t>{kHidden, 4 * kHidden}}) {
        parameters_.push_back((at::randn(sizes) * 0.05).to(device).set_requires_grad(true));
      }
    }
  }

  /// The loss on a random batch, whose length changes from step to step.
  [[nodiscard]] at::Tensor loss(int step) const {
    const std::int64_t length = 16 + (step * 7) % 32;
    at::Tensor x = at::randn({length, kHidden}, at::TensorOptions().device(device_));
    for (std::size_t i = 0; i < parameters_.size(); i += 2) {
      x = x + at::dropout(at::linear(at::gelu(at::linear(x, parameters_[i])), parameters_[i + 1]),
                          0.1, true);
    }
    return x.square().mean();
  }

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] static std::vector<at::Tensor> buffers() { return {}; }

  void update() {
    const at::NoGradGuard guard;
    for (at::Tensor& parameter : parameters_) {
      parameter.add_(parameter.grad(), -0.01);
      parameter.mutable_grad() = at::Tensor();
    }
  }

 private:
  static constexpr int kLayers = 4;
  static constexpr std::int64_t kHidden = 64;

  at::Device device_;
  std::vector<at::Tensor> parameters_;
};

Figure growth(const std::string& id, const std::string& name, double before, double after,
              double limit) {
  Figure figure;
  figure.id = "growth." + id;
  figure.found = {name, "KiB", 0, app::exactly(after - before)};
  figure.wanted = Wanted{Wanted::Kind::kAtMost, limit, true};
  figure.beside = {{"at 10 %", "KiB", 0, app::exactly(before)},
                   {"at 100 %", "KiB", 0, app::exactly(after)}};
  return figure;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--steps", options.steps, "Steps to train")->check(CLI::Range(100, 10'000'000));
}

void measure_all(const Options& options, Report& report) {
  at::set_num_threads(1);
  const at::Device torch_device = app::best_device();
  SessionOptions session_options;
  session_options.rules = parse_rules("[[rule]]\naction = \"offload\"\n", "growth.toml");
  session_options.device = torch_device;
  session_options.small = 1_KiB;
  session_options.host = 64_MiB;
  session_options.offload_window = 64_KiB;
  session_options.prefetch_window = 64_KiB;
  Session session(std::move(session_options));
  Mlp model(torch_device);
  session.register_model(model);
  MemoryUse before;
  MemoryUse after;
  for (int i = 1; i <= options.steps; ++i) {
    {
      auto step = session.step();
      model.loss(i).backward();
      step.end();  // Throws if gradients are wrong.
    }
    model.update();
    if (i != options.steps / 10 && i != options.steps) continue;
    app::wait_for_device(torch_device);
    MemoryUse& use = i == options.steps ? after : before;
    use = {static_cast<double>(app::reserved_memory(torch_device)) / 1024,
           static_cast<double>(session.report().host_peak.count()) / 1024, resident_kib()};
  }
  const SessionReport end = session.report();

  report.settings = {{"steps", options.steps}};
  report.figures = {
      growth("device", "device memory, growth", before.device, after.device, 0),
      growth("host_tier", "host tier, growth", before.host_tier, after.host_tier, 0),
      growth("process", "process, growth", before.process, after.process, 1024),
  };
  report.notes.push_back(std::to_string(end.steps) + " steps, " +
                         std::to_string(end.recorded_steps) +
                         " of them recording; the last one moved " + to_string(end.bytes_out) +
                         " out and " + to_string(end.bytes_back) +
                         " back; fallbacks: " + std::to_string(end.fallbacks.size()) + ".");
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  namespace bench = spillway::bench;
  return bench::run_training_program("growth", bench::kQuestion, &bench::add_options,
                                     &bench::measure_all, argc, argv);
}
