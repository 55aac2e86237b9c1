// What programs do with graphs whose buffers are recomputed: results are those of a run without
// Spillway.
#include <stdexcept>
#include <thread>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "torch/support/program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::check;
using testing::difference_of;
using testing::expect_recomputed;
using testing::layers;
using testing::Program;
using testing::program_of;
using testing::recompute_everything;
using testing::three_weights;
using testing::with_rules;

TEST(RecomputedPrograms, MayUseAGraphTwice) {
  check(program_of([](std::vector<at::Tensor>& all, Step*, int) {
    at::Tensor loss = layers(all, at::randn({32, 32})).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return loss;
  }));
}

TEST(RecomputedPrograms, MayRunBackwardFromTwoOutputs) {
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

TEST(RecomputedPrograms, MayInterleaveSeveralChunks) {
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
      "[[rule]]\naction = \"recompute\"\nfallback = \"offload\"\n[limits]\nhost = \"1 KiB\"\n");
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

TEST(RecomputedPrograms, KeepWhatFailsToRepeat) {
  // It returns another size each time, which is another error than a mismatch.
  static int calls = 0;
  static const auto kRegistration = c10::RegisterOperators().op(
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
              ::testing::HasSubstr("not recomputable: [recompute] spillway_test::grows returned"));
  EXPECT_GT(report.repeated_calls, 0U) << report;
}

TEST(RecomputedPrograms, MayModifyBuffersUnseenByAutograd) {
  Session session(recompute_everything());
  EXPECT_EQ(difference_of(program_of([](std::vector<at::Tensor>& all, Step*, int) {
                            at::Tensor x = layers(all, at::randn({32, 32}));
                            x.add_(1);
                            // The same memory with a version counter of its own, which starts at 0.
                            at::Tensor y = x.variable_data() * 3;
                            at::Tensor loss = (at::mm(y, all[0]) * x).mean();
                            y.reset();
                            x.reset();
                            loss.backward();
                            return loss;
                          }),
                          session),
            0);
  EXPECT_GT(session.report().repeated_calls, 0U) << session.report();
}

TEST(RecomputedPrograms, MayRunOnSeveralThreadsAtOnce) {
  const testing::Deterministic deterministic;
  const auto run = [](Session* session) {
    std::vector<at::Tensor> all;
    for (int i = 1; i <= 3; ++i) {
      all.push_back((at::ones({32, 32}).tril() * 0.01 * i).detach().set_requires_grad(true));
      if (session != nullptr) session->register_fixed(all.back(), FixedReason::kParameter);
    }
    std::vector<at::Tensor> gradients;
    for (int i = 0; i < 6; ++i) {
      for (at::Tensor& each : all) each.mutable_grad() = at::Tensor();
      {
        std::optional<Step> step;
        if (session != nullptr) step.emplace(session->step());
        at::Tensor x = at::ones({32, 32}) * i;
        for (const at::Tensor& each : all) x = at::gelu(at::mm(x.sin(), each)).exp();
        x.square().mean().backward();
      }
      for (const at::Tensor& each : all) gradients.push_back(each.grad().clone());
    }
    return gradients;
  };
  const std::vector<at::Tensor> expected = run(nullptr);
  std::vector<int> different(3, -1);
  std::vector<std::uint64_t> repeated(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < different.size(); ++i) {
    threads.emplace_back([&, i] {
      at::set_num_threads(1);
      Session session(recompute_everything());
      different[i] = testing::count_different(expected, run(&session));
      repeated[i] = session.report().repeated_calls;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_THAT(different, ::testing::Each(0));
  EXPECT_THAT(repeated, ::testing::Each(::testing::Gt(0U)));
}

TEST(RecomputedPrograms, MayMixWithOffloadedRoots) {
  for (const char* const roots : {"*mm*", "*gelu*", "*mul*"}) {
    Session session(
        with_rules(std::string("[[rule]]\nproducer = \"") + roots +
                   "\"\naction = \"offload\"\n[[rule]]\naction = \"recompute\"\n"
                   "[limits]\noffload_window = \"1 KiB\"\nprefetch_window = \"8 KiB\"\n"));
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
