/// Runs a random program's steps, with a session or without, and returns every loss, gradient and
/// statistic.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "foreign_memory.hpp"
#include "program.hpp"
#include "spillway/torch/session.hpp"

namespace spillway::testing {

/// The exception that programs throw on purpose.
class IntendedFailure : public std::runtime_error {
 public:
  IntendedFailure() : std::runtime_error("the program fails here, as intended") {}
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct StepResult {
  std::vector<NamedTensor> values;
  std::string error;  ///< Thrown by the step; empty: none.
};

class Machine {
 public:
  Machine(const RandomProgram& program, Session* session);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  /// The step's losses, gradients and statistics. What the program throws is in the result.
  [[nodiscard]] StepResult run_step(std::size_t number);

  // For operators.
  [[nodiscard]] const at::Tensor& square(std::uint32_t draw) const { return of(squares_, draw); }
  [[nodiscard]] const at::Tensor& wide(std::uint32_t draw) const { return of(wides_, draw); }
  [[nodiscard]] const at::Tensor& vector(std::uint32_t draw) const { return of(vectors_, draw); }
  [[nodiscard]] const at::Tensor& filter() const { return filter_; }
  [[nodiscard]] const at::Tensor& embedding() const { return embedding_; }
  [[nodiscard]] const at::Tensor& tokens() const { return tokens_; }
  [[nodiscard]] const std::vector<at::Tensor>& statistics() const { return statistics_; }
  [[nodiscard]] GatheredWeight& gathered() { return *gathered_; }
  [[nodiscard]] at::Generator& generator() { return generator_; }
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const { return arena_; }
  [[nodiscard]] std::size_t step() const { return step_; }
  /// The step's backward will run `work` before anything else of the graph that runs now.
  void before_backward(std::function<void()> work);
  /// Runs when the gradient of the current block's output is known.
  void before_block_backward(std::function<void()> work);
  /// Whether something must run before backward may read what this step has saved.
  [[nodiscard]] bool backward_is_prepared() const { return backward_is_prepared_; }

 private:
  struct Graph {
    at::Tensor loss;
    std::vector<std::function<void()>> before;
  };

  [[nodiscard]] static const at::Tensor& of(const std::vector<at::Tensor>& all,
                                            std::uint32_t draw) {
    return all[draw % all.size()];
  }
  [[nodiscard]] at::Tensor weight(const std::string& name, at::IntArrayRef sizes, double scale,
                                  double offset = 0);
  void register_weights();
  void replace_weights();
  void run_passes(const StepEvents& events, Step* step);
  [[nodiscard]] Graph forward(const StepEvents& events, int micro_batch);
  [[nodiscard]] at::Tensor block(const Block& block, at::Tensor input, const StepEvents& events);
  [[nodiscard]] at::Tensor branch(const std::vector<Instruction>& list, const at::Tensor& input);
  void count_uses(const StepEvents& events);
  [[nodiscard]] at::Tensor operand(int id, const at::Tensor& input);
  [[nodiscard]] at::Tensor head(const at::Tensor& x) const;
  void backward(Graph& graph, const StepEvents& events);
  void backward_late();
  void note_values(StepResult& result) const;
  void update();

  RandomProgram program_;
  Session* session_ = nullptr;
  at::Generator content_ = at::detail::createCPUGenerator(program_.seed + 1);  // Of weights.
  at::Generator generator_;
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
  std::vector<NamedTensor> weights_;
  std::vector<at::Tensor> squares_;
  std::vector<at::Tensor> wides_;
  std::vector<at::Tensor> vectors_;
  at::Tensor filter_;
  at::Tensor embedding_;
  at::Tensor head_;
  std::vector<at::Tensor> statistics_;
  std::optional<GatheredWeight> gathered_;
  bool backward_is_prepared_ = false;

  // Of the step.
  std::size_t step_ = 0;
  std::vector<at::Tensor> losses_;
  std::vector<at::Tensor> held_;
  std::vector<Graph> late_;  // Their backward is in the next step.
  int fails_in_ = -1;        // Operators until the forward fails; negative: never.

  // Of the forward.
  at::Tensor tokens_;
  std::unordered_map<int, at::Tensor> values_;
  std::unordered_map<int, int> uses_;
  std::vector<std::function<void()>> before_;
  std::vector<std::function<void()>> before_block_;
};

/// All steps. `after_step` gets the number of each.
[[nodiscard]] std::vector<StepResult> run(const RandomProgram& program, Session* session);

}  // namespace spillway::testing
