/// Your own model over the stages of a pipeline, its saved tensors offloaded on every rank:
///   mpirun -n 4 example_pipeline
/// The loss is the same to the bit for any number of ranks, also for one without mpirun.
#include <exception>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>

#include "spillway/pipeline/pipeline_runner.hpp"
#include "spillway/plan/rules.hpp"

namespace {

using namespace spillway::literals;

/// Stands for any torch::nn::Module with forward(Tensor).
class Block : public torch::nn::Module {
 public:
  explicit Block(std::int64_t width)
      : up_(register_parameter("up", at::randn({4 * width, width}) * 0.05)),
        down_(register_parameter("down", at::randn({width, 4 * width}) * 0.05)) {}

  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const {
    return x + at::linear(at::gelu(at::linear(x, up_)), down_);
  }

 private:
  at::Tensor up_, down_;
};

at::Tensor mean_square(const at::Tensor& output, const at::Tensor& target) {
  return (output - target).square().mean();
}

void train(spillway::World& world) {
  // As a list, of which each rank builds its own part.
  std::vector<spillway::LayerDesc> layers;
  for (int i = 0; i < 8; ++i) {
    layers.push_back(spillway::describe_layer<Block>("layers." + std::to_string(i), 128));
  }
  const spillway::Topology topology(world.size(), {.pipeline = world.size()});
  spillway::PipelineLayerOptions options;
  options.loss_fn = mean_square;
  spillway::PipelineLayer model(layers, spillway::with_topology(options, topology, world.rank()));
  spillway::PipelineRunner runner(model, spillway::make_pipeline_groups(world, topology, model));

  spillway::SessionOptions memory;
  memory.rules = spillway::parse_rules("[[rule]]\naction = 'offload'\n", "this example");
  memory.offload_window = memory.prefetch_window = 1_MiB;
  spillway::Session session(memory);
  session.register_model(model);

  const spillway::MicroBatch batch{{at::ones({256, 128})}, at::zeros({256, 128})};
  const std::vector<spillway::MicroBatch> batches(4, batch);
  for (int step = 0; step < 5; ++step) {
    runner.zero_gradients();
    const double loss = runner.mean_loss(runner.train(batches, &session)).item<double>();
    const at::NoGradGuard no_gradients;
    for (at::Tensor& weight : model.parameters()) weight.sub_(weight.grad(), 0.01);
    if (world.rank() == 0) {
      std::cout << "step " << step << ": loss " << std::setprecision(17) << loss << "\n";
    }
  }
  const spillway::SessionReport report = session.report();
  for (int rank = 0; rank < world.size(); ++rank) {
    world.everyone().barrier();
    if (rank != world.rank()) continue;
    std::cout << "rank " << rank << ", " << model.describe(0) << ": saved at once "
              << to_string(report.saved_peak_with) << " instead of "
              << to_string(report.saved_peak_without) << std::endl;
  }
  if (report.saved_peak_with >= report.saved_peak_without || !report.fallbacks.empty()) {
    throw std::runtime_error("the session did not lower the peak, or fell back:\n" +
                             report.to_text());
  }
}

}  // namespace

int main() {
  try {
    const auto world = spillway::detect_world();
    spillway::run_guarded(*world, [&] { train(*world); });
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
