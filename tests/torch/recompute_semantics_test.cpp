// Programs of all kinds whose buffers are recomputed: results are those of a run without Spillway.
#include <functional>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "spillway/torch/scope.hpp"
#include "training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::recompute_everything;
using testing::with_rules;

/// Something that is trained. `step` computes a step's loss and runs its backward.
struct Program {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> statistics;
  std::function<at::Tensor(Step*, int)> step;

  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return weights; }
  [[nodiscard]] const std::vector<at::Tensor>& buffers() const { return statistics; }
};

using MakeProgram = std::function<Program()>;

at::Tensor weight(at::IntArrayRef sizes) {
  return (at::randn(sizes) * 0.2).detach().set_requires_grad(true);
}

/// Losses, gradients and statistics of all steps.
std::vector<at::Tensor> train(const MakeProgram& make, Session* session, int steps) {
  at::manual_seed(3);
  Program program = make();
  if (session != nullptr) session->register_model(program);
  std::vector<at::Tensor> values;
  for (int i = 0; i < steps; ++i) {
    for (at::Tensor& each : program.weights) each.mutable_grad() = at::Tensor();
    at::manual_seed(static_cast<std::uint64_t>(i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      values.push_back(program.step(step ? &*step : nullptr, i).detach().clone());
    }
    const at::NoGradGuard guard;
    for (at::Tensor& each : program.weights) {
      values.push_back(each.grad().defined() ? each.grad().clone() : at::Tensor());
      if (each.grad().defined()) each.add_(each.grad(), -0.05);
    }
    for (const at::Tensor& each : program.statistics) values.push_back(each.clone());
  }
  return values;
}

/// How many values differ in a bit from a run without the session.
int difference_of(const MakeProgram& make, Session& session, int steps = 5) {
  const testing::Deterministic deterministic;
  at::set_num_threads(1);
  const std::vector<at::Tensor> without = train(make, nullptr, steps);
  return count_different(without, train(make, &session, steps));
}

/// A program of one loss.
MakeProgram loss_of(std::function<std::vector<at::Tensor>()> weights,
                    std::function<at::Tensor(const std::vector<at::Tensor>&)> loss) {
  return [weights = std::move(weights), loss = std::move(loss)] {
    Program program;
    program.weights = weights();
    program.step = [all = program.weights, loss](Step*, int) {
      at::Tensor value = loss(all);
      value.backward();
      return value;
    };
    return program;
  };
}

/// That it recomputes, and that nothing has to be demoted for it.
void expect_recomputed(const Session& session) {
  const SessionReport report = session.report();
  EXPECT_GT(report.repeated_calls, 0U) << report;
  EXPECT_TRUE(report.demoted.empty()) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
}

void check(const MakeProgram& make) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(make, session), 0);
  expect_recomputed(session);
}

TEST(RecomputedPrograms, UpdateTheStatisticsOfABatchNormOnce) {
  check([] {
    Program program;
    program.weights = {weight({16, 32}), weight({16}), weight({16}), weight({16, 16})};
    program.statistics = {at::zeros({16}), at::ones({16})};
    program.step = [all = program.weights, statistics = program.statistics](Step*, int) {
      const at::Tensor x = at::linear(at::randn({64, 32}), all[0]).tanh();
      const at::Tensor y = at::batch_norm(x, all[1], all[2], statistics[0], statistics[1],
                                          /*training=*/true, 0.1, 1e-5, false);
      at::Tensor loss = at::linear(at::silu(y * 2), all[3]).square().mean();
      loss.backward();
      return loss;
    };
    return program;
  });
}

TEST(RecomputedPrograms, MayHaveRecurrentLayers) {
  const auto weights = [] {
    return std::vector<at::Tensor>{weight({64, 8}),  weight({64, 16}), weight({64}), weight({64}),
                                   weight({64, 16}), weight({64, 16}), weight({64}), weight({64})};
  };
  check(loss_of(weights, [](const std::vector<at::Tensor>& all) {
    const at::Tensor x = at::randn({12, 4, 8}).exp();
    const std::vector<at::Tensor> start{at::zeros({2, 4, 16}), at::zeros({2, 4, 16})};
    const auto [y, h, c] = at::lstm(x, start, all, true, 2, 0.25, true, false, false);
    return (y.sin() * y).mean() + h.square().mean() + c.tanh().square().mean();
  }));
  const auto fewer = [] {
    return std::vector<at::Tensor>{weight({48, 8}), weight({48, 16}), weight({48}), weight({48})};
  };
  check(loss_of(fewer, [](const std::vector<at::Tensor>& all) {
    const at::Tensor x = at::randn({12, 4, 8}).exp();
    const auto [y, h] = at::gru(x, at::zeros({1, 4, 16}), all, true, 1, 0.0, true, false, false);
    return (y.sin() * y).mean() + h.square().mean();
  }));
}

TEST(RecomputedPrograms, MayHaveConvolutions) {
  for (const bool channels_last : {false, true}) {
    check(loss_of(
        [] {
          return std::vector<at::Tensor>{weight({8, 3, 3, 3}), weight({8}), weight({8, 8, 3, 3})};
        },
        [channels_last](const std::vector<at::Tensor>& all) {
          at::Tensor x = at::randn({2, 3, 16, 16});
          if (channels_last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
          x = at::relu(at::conv2d(x, all[0], all[1], 1, 1));
          x = at::max_pool2d(x, 2);
          x = at::gelu(at::conv2d(x, all[2], {}, 1, 1));
          return at::adaptive_avg_pool2d(x, {1, 1}).square().mean();
        }));
  }
}

TEST(RecomputedPrograms, MayLookUpAndWriteByIndex) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({50, 32}), weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        const at::Tensor tokens = at::randint(50, {40}, at::kLong);
        at::Tensor x = at::embedding(all[0], tokens) * 2;
        const at::Tensor rows = at::arange(10) * 3;
        const at::Tensor part = at::mm(x.index_select(0, rows), all[1]).exp();
        c10::List<std::optional<at::Tensor>> indices;
        indices.push_back(rows);
        x = x.index_put(indices, part, true).sin();
        x = x.index_put_(indices, part * 2);
        return (x * x.cos()).mean() + x.gather(0, at::zeros({4, 32}, at::kLong)).mean();
      }));
}

TEST(RecomputedPrograms, MayAttendWithAndWithoutDropout) {
  for (const double dropout : {0.0, 0.2}) {  // The kernel for CPUs, and matrix products.
    for (const bool causal : {false, true}) {
      check(loss_of(
          [] {
            return std::vector<at::Tensor>{weight({96, 32}), weight({32, 32})};
          },
          [=](const std::vector<at::Tensor>& all) {
            const at::Tensor x = at::randn({2, 24, 32}).tanh();
            const auto qkv = at::linear(x, all[0]).view({2, 24, 3, 4, 8}).permute({2, 0, 3, 1, 4});
            const at::Tensor y =
                at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, dropout, causal);
            const at::Tensor merged = y.transpose(1, 2).reshape({2, 24, 32});
            return at::linear(at::gelu(merged), all[1]).square().mean();
          }));
    }
  }
}

TEST(RecomputedPrograms, MayBeginWithPositionsAndMasks) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        const at::Tensor place = at::arange(32, at::kFloat).unsqueeze(1);
        const at::Tensor angle = place * at::pow(0.5, at::arange(32) / 4.0);
        const at::Tensor mask = at::ones({32, 32}, at::kBool).tril();
        const at::Tensor scores = at::mm(angle.sin(), all[0]) * angle.cos();
        const at::Tensor chances = scores.masked_fill(mask.logical_not(), -1e9).softmax(-1);
        return (chances * at::where(mask, angle, scores)).mean();
      }));
}

/// Saves an input, an output and a value of its own.
struct Swish : torch::autograd::Function<Swish> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor gate = at::sigmoid(x);
    at::Tensor y = x * gate;
    context->save_for_backward({x, gate, y});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * (saved[1] + saved[2] * (1 - saved[1]))};
  }
};

TEST(RecomputedPrograms, MayHaveFunctionsOfTheirOwn) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        at::Tensor x = at::mm(at::randn({32, 32}), all[0]);
        x = Swish::apply(Swish::apply(x.sin()) * 2);
        return (x * x).mean();
      }));
}

/// Runs its layer again in backward, as torch's own checkpoint does, with the same random numbers.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
    return at::dropout(at::gelu(at::mm(x, weight)).tanh(), 0.2, true);
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    context->saved_data["state"] = at::globalContext().defaultGenerator(at::kCPU).get_state();
    return layer(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].detach().set_requires_grad(true);
    const at::Tensor weight = saved[1].detach().set_requires_grad(true);
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    const at::Tensor now = generator.get_state();
    generator.set_state(context->saved_data["state"].toTensor());
    const at::AutoGradMode with_gradients(true);
    const at::Tensor again = layer(x, weight);
    generator.set_state(now);
    return torch::autograd::grad({again}, {x, weight}, {gradients[0]});
  }
};

TEST(RecomputedPrograms, MayHaveACheckpointInside) {
  check(loss_of(
      [] {
        return std::vector<at::Tensor>{weight({32, 32})};
      },
      [](const std::vector<at::Tensor>& all) {
        at::Tensor x = at::mm(at::randn({32, 32}), all[0]).sin();
        for (int i = 0; i < 3; ++i) x = Checkpoint::apply(x, all[0]).cos();
        return (x * x).mean();
      }));
}

/// Weights and a loss of a few layers, for what programs do with graphs.
std::vector<at::Tensor> three_weights() {
  return {weight({32, 32}), weight({32, 32}), weight({32, 32})};
}

at::Tensor layers(const std::vector<at::Tensor>& all, at::Tensor x) {
  for (const at::Tensor& each : all) x = at::dropout(at::gelu(at::mm(x, each)), 0.1, true);
  return x;
}

MakeProgram program_of(
    std::function<at::Tensor(std::vector<at::Tensor>& weights, Step* step, int i)> run) {
  return [run = std::move(run)] {
    Program program;
    program.weights = three_weights();
    program.step = [all = program.weights, run](Step* step, int i) mutable {
      return run(all, step, i);
    };
    return program;
  };
}

TEST(RecomputedPrograms, MayUseAGraphTwice) {
  check(program_of([](std::vector<at::Tensor>& all, Step*, int) {
    at::Tensor loss = layers(all, at::randn({32, 32})).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return loss;
  }));
}

TEST(RecomputedPrograms, MayRunBackwardFromTwoPlaces) {
  check(program_of([](std::vector<at::Tensor>& all, Step*, int) {
    const at::Tensor x = layers(all, at::randn({32, 32}));
    at::Tensor first = x.sin().mean();
    const at::Tensor second = (x * x.cos()).mean();
    second.backward({}, /*retain_graph=*/true);
    first.backward();
    return first;
  }));
}

TEST(RecomputedPrograms, MayAskForSomeGradientsOnly) {
  check(program_of([](std::vector<at::Tensor>& all, Step*, int) {
    at::Tensor loss = layers(all, at::randn({32, 32})).square().mean();
    const auto gradients = torch::autograd::grad({loss}, {all[2], all[0]});
    all[2].mutable_grad() = gradients[0];
    all[0].mutable_grad() = gradients[1];
    return loss;
  }));
}

TEST(RecomputedPrograms, MayDifferentiateTwice) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(
                program_of([](std::vector<at::Tensor>& all, Step*, int) {
                  const at::Tensor loss = layers(all, at::randn({32, 32}).sin()).square().mean();
                  const auto gradients = torch::autograd::grad({loss}, {all[0], all[1]}, {},
                                                               std::nullopt, /*create_graph=*/true);
                  at::Tensor penalty = loss + gradients[0].square().sum() +
                                       (gradients[1] * gradients[1].cos()).sum();
                  penalty.backward();
                  return penalty;
                }),
                session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(RecomputedPrograms, MayDropAGraphHalfWay) {
  check(program_of([](std::vector<at::Tensor>& all, Step*, int) {
    at::Tensor x = layers(all, at::randn({32, 32}));
    at::Tensor y = layers(all, x.sin());
    { at::Tensor unused = layers(all, y.cos()); }
    at::Tensor loss = x.square().mean();
    y.reset();
    loss.backward();
    return loss;
  }));
}

TEST(RecomputedPrograms, MayEndAStepWithoutBackward) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(program_of([](std::vector<at::Tensor>& all, Step*, int i) {
                            at::Tensor loss = layers(all, at::randn({32, 32})).square().mean();
                            if (i != 3) loss.backward();
                            return loss;
                          }),
                          session, 7),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
}

TEST(RecomputedPrograms, MayThrowInForward) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(program_of([](std::vector<at::Tensor>& all, Step*, int i) {
                            at::Tensor x = layers(all, at::randn({32, 32}));
                            if (i == 1 || i == 3) {
                              try {
                                x = at::mm(layers(all, x), at::ones({5, 5}));
                              } catch (const c10::Error&) {
                                return x;
                              }
                            }
                            at::Tensor loss = x.square().mean();
                            loss.backward();
                            return loss;
                          }),
                          session, 8),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
  EXPECT_TRUE(session.report().demoted.empty()) << session.report();
}

TEST(RecomputedPrograms, MayThrowInBackward) {
  struct Fails : torch::autograd::Function<Fails> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                              bool fail) {
      context->saved_data["fail"] = fail;
      return x * 1;
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context,
        const torch::autograd::variable_list& gradients) {
      if (context->saved_data["fail"].toBool()) throw std::runtime_error("half-way");
      return {gradients[0], at::Tensor()};
    }
  };
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(program_of([](std::vector<at::Tensor>& all, Step*, int i) {
                            at::Tensor x = layers(all, at::randn({32, 32}));
                            x = layers(all, Fails::apply(x, i == 1 || i == 3));
                            at::Tensor loss = x.square().mean();
                            try {
                              loss.backward();
                            } catch (const std::runtime_error&) {
                              for (at::Tensor& each : all) each.mutable_grad() = at::Tensor();
                            }
                            return loss;
                          }),
                          session, 6),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
}

TEST(RecomputedPrograms, MayHaveSeveralChunksInFlight) {
  check(program_of([](std::vector<at::Tensor>& all, Step* step, int) {
    // Two stages of a pipeline on one device, each a graph of its own.
    std::vector<at::Tensor> between;
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> losses;
    for (int micro = 0; micro < 2; ++micro) {
      if (step != nullptr) step->pass(0, micro);
      outputs.push_back(layers({all[0], all[1]}, at::randn({32, 32})));
      between.push_back(outputs.back().detach().set_requires_grad(true));
      if (step != nullptr) step->pass(1, micro);
      losses.push_back(layers({all[2], all[2]}, between.back()).square().mean());
    }
    for (std::size_t micro = 0; micro < 2; ++micro) {
      losses[micro].backward();
      outputs[micro].backward(between[micro].grad());
    }
    return losses[0] + losses[1].detach();
  }));
}

TEST(RecomputedPrograms, MayEvaluateInBetween) {
  check(program_of([](std::vector<at::Tensor>& all, Step* step, int i) {
    at::Tensor loss = layers(all, at::randn({32, 32})).square().mean();
    loss.backward();
    if (step != nullptr) step->end();
    at::Tensor judged;
    {
      const at::NoGradGuard guard;
      judged = layers(all, at::ones({32, 32})).square().mean();
    }
    at::manual_seed(static_cast<std::uint64_t>(i));
    return loss + judged;
  }));
}

TEST(RecomputedPrograms, MayEvaluateWithinAStep) {
  check(program_of([](std::vector<at::Tensor>& all, Step*, int) {
    const auto judge = [&] {
      const at::NoGradGuard guard;
      return layers(all, at::ones({32, 32})).square().mean();
    };
    const at::Tensor before = judge();
    at::Tensor loss = layers(all, at::randn({32, 32})).square().mean();
    const at::Tensor between = judge();
    loss.backward();
    return loss + before + between;
  }));
}

TEST(RecomputedPrograms, MayUseWhatEarlierStepsMade) {
  check([] {
    Program program;
    program.weights = three_weights();
    auto state = std::make_shared<at::Tensor>(at::ones({32, 32}));
    program.step = [all = program.weights, state](Step*, int) {
      const at::Tensor x = layers(all, state->sin() * 2);
      *state = x.detach();  // Read by the next step.
      at::Tensor loss = (x * x.cos()).mean();
      loss.backward();
      return loss;
    };
    return program;
  });
}

TEST(RecomputedPrograms, KeepWhatIsDemotedIfTheHostTierIsFull) {
  SessionOptions options = with_rules(
      "[[rule]]\naction = \"recompute\"\nsecond = \"offload\"\n[limits]\nhost = \"1 KiB\"\n");
  Session session(std::move(options));
  const auto scribble = [](const at::Tensor& x) {
    static_cast<float*>(x.data_ptr())[5] = 7;  // As a kernel that the dispatcher does not see.
  };
  EXPECT_EQ(difference_of(program_of([&](std::vector<at::Tensor>& all, Step*, int) {
                            at::Tensor x = layers(all, at::randn({32, 32})).sin();
                            scribble(x);
                            x = x.exp() * x;
                            at::Tensor loss = layers(all, x).square().mean();
                            loss.backward();
                            return loss;
                          }),
                          session),
            0);
  const SessionReport report = session.report();
  EXPECT_FALSE(report.demoted.empty()) << report;
  EXPECT_GT(report.repeated_calls, 0U) << report;
  EXPECT_TRUE(report.fallbacks.contains("the host tier is full")) << report;
}

TEST(RecomputedPrograms, KeepWhatCannotBeRepeatedAfterAll) {
  // It gives another size each time, and another error than other bits.
  static int calls = 0;
  static const auto registration = c10::RegisterOperators().op(
      "spillway_test::grows(Tensor x) -> Tensor", [](const at::Tensor& x) {
        const at::AutoDispatchBelowAutograd below;
        return at::cat({x, at::zeros({++calls, 32})}).sin();
      });
  calls = 0;
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(program_of([](std::vector<at::Tensor>& all, Step*, int i) {
                            calls = i;
                            at::Tensor x = layers(all, at::randn({32, 32}));
                            at::Tensor grown;
                            {
                              const at::NoGradGuard guard;
                              grown = c10::Dispatcher::singleton()
                                          .findSchemaOrThrow("spillway_test::grows", "")
                                          .typed<at::Tensor(const at::Tensor&)>()
                                          .call(x.detach());
                            }
                            at::Tensor loss = (grown * at::cat({x, x}).slice(0, 0, 33 + i)).mean();
                            grown.reset();
                            x.reset();
                            loss.backward();
                            return loss;
                          }),
                          session),
            0);
  const SessionReport report = session.report();
  ASSERT_FALSE(report.demoted.empty()) << report;
  EXPECT_THAT(report.demoted[0],
              ::testing::HasSubstr("not recomputable: [recompute] spillway_test::grows gave"));
  EXPECT_GT(report.repeated_calls, 0U) << report;
}

TEST(RecomputedPrograms, MayMixWithOffloadedRoots) {
  for (const char* const roots : {"*mm*", "*gelu*", "*mul*"}) {
    Session session(with_rules(std::string("[[rule]]\nproducer = \"") + roots +
                               "\"\naction = \"offload\"\n[[rule]]\naction = \"recompute\"\n"
                               "[limits]\nin_flight = \"1 KiB\"\nahead = \"8 KiB\"\n"));
    EXPECT_EQ(
        difference_of(
            program_of([](std::vector<at::Tensor>& all, Step*, int) {
              at::Tensor total = at::zeros({});
              for (int micro = 0; micro < 3; ++micro) {
                at::Tensor loss = layers(all, layers(all, at::randn({32, 32}))).square().mean();
                loss.backward();
                total = total + loss.detach();
              }
              return total;
            }),
            session),
        0);
    expect_recomputed(session);
    EXPECT_GT(session.report().bytes_out, 0_B) << session.report();
  }
}

}  // namespace
}  // namespace spillway
