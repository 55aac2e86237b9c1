#include "machine.hpp"

#include <exception>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device.hpp"
#include "operators.hpp"
#include "spillway/core/error.hpp"
#include "spillway/torch/scope.hpp"

namespace spillway::testing {
namespace {

constexpr std::int64_t kVocabulary = 24;

/// Its backward throws if asked to.
struct Fails : torch::autograd::Function<Fails> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            bool fails) {
    context->saved_data["fails"] = fails;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (context->saved_data["fails"].toBool()) throw IntendedFailure();
    return {gradients[0], at::Tensor()};
  }
};

std::string first_line(const std::exception& error) {
  const auto* const from_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      from_torch != nullptr ? from_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

Machine::Machine(const RandomProgram& program, Session* session)
    : program_(program), session_(session), generator_(new_generator(program.seed + 1)) {
  const std::int64_t width = program_.width;
  const double scale = 0.5 / std::sqrt(static_cast<double>(width));
  embedding_ = weight("embedding", {kVocabulary, width}, 0.5);
  head_ = program_.tied ? embedding_ : weight("head", {kVocabulary, width}, scale);
  for (const char* const name : {"square0", "square1", "square2"})
    squares_.push_back(weight(name, {width, width}, 2 * scale));
  for (const char* const name : {"wide0", "wide1"})
    wides_.push_back(weight(name, {width, 2 * width}, 2 * scale));
  for (const char* const name : {"vector0", "vector1"})
    vectors_.push_back(weight(name, {width}, 0.1, 1));
  filter_ = weight("filter", {width, 1, 3}, 0.4);
  const at::TensorOptions options = at::TensorOptions(device()).dtype(program_.dtype);
  statistics_ = {at::zeros({width}, options), at::ones({width}, options)};
  gathered_.emplace(
      (at::randn({width, width}, content_, at::kFloat) * scale).to(device(), program_.dtype));
  register_weights();
}

Machine::~Machine() = default;

at::Tensor Machine::weight(const std::string& name, at::IntArrayRef sizes, double scale,
                           double offset) {
  at::Tensor made = (at::randn(sizes, content_, at::kFloat) * scale + offset)
                        .to(device(), program_.dtype)
                        .detach()
                        .set_requires_grad(true);
  weights_.push_back({name, made});
  return made;
}

void Machine::register_weights() {
  if (session_ == nullptr) return;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if ((program_.unregistered >> i & 1U) != 0) continue;
    session_->register_fixed(weights_[i].tensor, FixedReason::kParameter);
  }
  for (const at::Tensor& each : statistics_)
    session_->register_fixed(each, FixedReason::kRegisteredBuffer);
  if ((program_.unregistered & 1U) == 0)
    session_->register_fixed(gathered_->leaf(), FixedReason::kParameter);
}

void Machine::replace_weights() {
  for (NamedTensor& each : weights_) each.tensor.set_data(each.tensor.detach().clone());
}

void Machine::before_backward(std::function<void()> work) {
  backward_is_prepared_ = true;
  before_.push_back(std::move(work));
}

void Machine::before_block_backward(std::function<void()> work) {
  backward_is_prepared_ = true;
  before_block_.push_back(std::move(work));
}

StepResult Machine::run_step(std::size_t number) {
  const StepEvents& events = program_.steps[number];
  step_ = number;
  backward_is_prepared_ = false;
  losses_.clear();
  for (NamedTensor& each : weights_) each.tensor.mutable_grad() = at::Tensor();
  gathered_->leaf().mutable_grad() = at::Tensor();
  const std::uint64_t seed = program_.seed * 100 + number;
  at::manual_seed(seed);
  generator_.set_current_seed(seed);
  fails_in_ = events.ending == Ending::kFailsForward ? events.fails_at : -1;
  if (events.replaced_before != Replaced::kNo) replace_weights();
  if (events.replaced_before == Replaced::kRegistered) register_weights();
  StepResult result;
  try {
    std::optional<Step> step;
    if (session_ != nullptr) {
      if (events.traced) session_->trace_next_step();
      PassSchedule schedule;
      if (program_.schedule) {
        const auto add = [&](int micro, bool backward) {
          schedule.push_back({0, micro, backward});
        };
        for (int micro = 0; micro < events.micro_batches; ++micro) {
          add(micro, false);
          if (events.order == PassOrder::kInTurn) add(micro, true);
        }
        for (int micro = 0;
             events.order == PassOrder::kForwardFirst && micro < events.micro_batches; ++micro) {
          add(micro, true);
        }
      }
      for (int tries = 0; !step; ++tries) {
        try {
          step.emplace(session_->step(schedule));
        } catch (const PlanInfeasible&) {
          if (tries > 2) throw;
        }
      }
    }
    backward_late();
    run_passes(events, step ? &*step : nullptr);
  } catch (const std::exception& error) {
    result.error = first_line(error);
  }
  values_.clear();
  held_.clear();
  before_.clear();
  before_block_.clear();
  note_values(result);
  if (late_.empty()) update();
  gathered_->release();
  return result;
}

void Machine::run_passes(const StepEvents& events, Step* step) {
  std::vector<Graph> graphs;
  const bool after_step = events.ending == Ending::kAfterStep;
  for (int micro = 0; micro < events.micro_batches; ++micro) {
    if (step != nullptr && program_.passes) step->pass(0, micro);
    graphs.push_back(forward(events, micro));
    const bool now = events.order == PassOrder::kInTurn && !after_step &&
                     events.ending != Ending::kNextStep && events.ending != Ending::kNone;
    if (!now) continue;
    backward(graphs.back(), events);
    graphs.pop_back();
  }
  if (events.ending == Ending::kNone) return;
  if (events.ending == Ending::kNextStep) {
    late_ = std::move(graphs);
    return;
  }
  if (after_step && step != nullptr) step->end();
  for (Graph& graph : graphs) {
    backward(graph, events);
    graph = {};
  }
}

void Machine::backward_late() {
  for (Graph& graph : std::exchange(late_, {})) backward(graph, StepEvents());
}

Machine::Graph Machine::forward(const StepEvents& events, int micro_batch) {
  values_.clear();
  before_.clear();
  count_uses(events);
  const auto first = static_cast<std::int64_t>(7 * step_) + 3 * micro_batch;
  tokens_ = at::arange(first, first + events.rows, integers()).mul_(5).remainder_(kVocabulary);
  at::Tensor x = at::embedding(embedding_, tokens_);
  x = Fails::apply(x, events.ending == Ending::kFailsBackward && micro_batch == 0);
  for (std::size_t i = 0; i < program_.blocks.size(); ++i) {
    if ((events.skipped >> i & 1U) != 0) continue;
    x = block(program_.blocks[i], std::move(x), events);
  }
  Graph graph{head(x), std::exchange(before_, {})};
  losses_.push_back(graph.loss.detach().clone());
  return graph;
}

at::Tensor Machine::head(const at::Tensor& x) const {
  const Scope scope("head");
  const at::Tensor normal = at::layer_norm(x, {program_.width}, {}, {}, 1e-5);
  const at::Tensor logits = at::linear(normal, head_).to(at::kFloat);
  return at::cross_entropy_loss(logits, tokens_);
}

void Machine::count_uses(const StepEvents& events) {
  uses_.clear();
  for (std::size_t i = 0; i < program_.blocks.size(); ++i) {
    if ((events.skipped >> i & 1U) != 0) continue;
    for (const auto* list : {&program_.blocks[i].main, &program_.blocks[i].other}) {
      for (const Instruction& each : *list) {
        ++uses_[each.a];
        ++uses_[each.b];
      }
    }
  }
}

at::Tensor Machine::operand(int id, const at::Tensor& input) {
  const auto found = values_.find(id);
  at::Tensor value = found != values_.end() ? found->second : input;
  if (--uses_[id] == 0 && found != values_.end()) values_.erase(found);  // Its last use.
  return value;
}

at::Tensor Machine::block(const Block& block, at::Tensor input, const StepEvents& events) {
  const Scope scope("layers." + std::to_string(block.number));
  at::Tensor x = input;
  if (!block.residual) input.reset();
  if (block.norm) {
    const Scope norm("norm");
    x = at::layer_norm(x, {program_.width}, vectors_[0], {}, 1e-5);
  }
  at::Tensor main;
  at::Tensor other;
  const auto run_main = [&] {
    const Scope part("main");
    main = branch(block.main, x);
  };
  const auto run_other = [&] {
    if (block.other.empty()) return;
    const Scope part("other");
    other = branch(block.other, x);
  };
  const bool swapped = (events.swapped >> static_cast<unsigned>(block.number) & 1U) != 0;
  if (swapped) run_other();
  run_main();
  if (!swapped) run_other();
  x.reset();
  if (other.defined()) main = main + other;
  at::Tensor output = block.residual ? input + main : std::move(main);
  for (auto& work : std::exchange(before_block_, {})) {
    if (output.requires_grad()) output.register_hook([work](const at::Tensor&) { work(); });
  }
  return output;
}

at::Tensor Machine::branch(const std::vector<Instruction>& list, const at::Tensor& input) {
  at::Tensor last = input;
  for (const Instruction& each : list) {
    if (fails_in_ >= 0 && fails_in_-- == 0) throw IntendedFailure();
    at::Tensor a = operand(each.a, input);
    at::Tensor b = operand(each.b, input);
    last = operators()[each.op].apply(*this, each.draw, a, b);
    if (each.held) held_.push_back(last);
    if (uses_[each.id] > 0) values_[each.id] = last;
  }
  return last;
}

void Machine::backward(Graph& graph, const StepEvents& events) {
  if (events.replaced_inside) replace_weights();
  for (auto& work : graph.before) work();
  switch (events.ending) {
    case Ending::kTwice:
      graph.loss.backward({}, /*retain_graph=*/true);
      break;
    case Ending::kOnThread: {
      std::exception_ptr error;
      std::thread([&] {
        at::set_num_threads(1);
        try {
          graph.loss.backward();
        } catch (...) {
          error = std::current_exception();
        }
      }).join();
      if (error) std::rethrow_exception(error);
      return;
    }
    case Ending::kBackward:
    case Ending::kNone:
    case Ending::kAfterStep:
    case Ending::kNextStep:
    case Ending::kFailsForward:
    case Ending::kFailsBackward:
      break;
  }
  graph.loss.backward();
}

void Machine::note_values(StepResult& result) const {
  for (std::size_t i = 0; i < losses_.size(); ++i)
    result.values.push_back({"loss " + std::to_string(i), losses_[i]});
  const auto add_gradient = [&](const std::string& name, const at::Tensor& weight) {
    const at::Tensor& gradient = weight.grad();
    result.values.push_back(
        {"gradient of " + name, gradient.defined() ? gradient.detach().clone() : at::Tensor()});
  };
  for (const NamedTensor& each : weights_) add_gradient(each.name, each.tensor);
  add_gradient("gathered", gathered_->leaf());
  for (const at::Tensor& each : statistics_) result.values.push_back({"statistics", each.clone()});
}

void Machine::update() {
  const at::NoGradGuard guard;
  for (NamedTensor& each : weights_) {
    if (each.tensor.grad().defined()) each.tensor.add_(each.tensor.grad().clamp(-1, 1), -0.01);
  }
  gathered_->update();
}

std::vector<StepResult> run(const RandomProgram& program, Session* session) {
  Machine machine(program, session);
  std::vector<StepResult> results;
  for (std::size_t i = 0; i < program.steps.size(); ++i) results.push_back(machine.run_step(i));
  return results;
}

}  // namespace spillway::testing
