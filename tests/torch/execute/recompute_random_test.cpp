// Random programs under random rules: whatever is recomputed, offloaded or kept, the bits are those
// of a run without Spillway.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_cases.hpp"
#include "torch/support/program.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Program;

using Random = std::mt19937;

std::size_t choose(Random& random, std::size_t count) { return random() % count; }

/// One operator, or a few, on tensors of [16, 16].
at::Tensor some_operator(Random& random, const at::Tensor& a, const at::Tensor& b) {
  switch (choose(random, 20)) {
    case 0:
      return a + b;
    case 1:
      return a * b;
    case 2:
      return at::mm(a, b) * 0.1;
    case 3:
      return a.tanh();
    case 4:
      return at::dropout(a, 0.3, true);
    case 5:
      return at::gelu(a);
    case 6:
      return a.t();
    case 7:
      return at::cat({a, b}).slice(0, 8, 24);
    case 8:
      return at::softmax(a, -1);
    case 9:
      return (a * 1.5).add_(b.detach());
    case 10:
      return a.detach().sin();
    case 11: {
      at::Tensor changed = a + 0.5;
      changed.slice(0, 2, 5).mul_(2);
      return changed;
    }
    case 12:
      return at::layer_norm(a, {16}, {}, {}, 1e-5);
    case 13:
      return at::where(a > b, a, b * 0.5);
    case 14:
      return a + at::arange(16) * 0.1 - at::ones({16, 16}).tril();
    case 15:
      return a.index_select(0, at::randperm(16));
    case 16:
      return a.clone().relu_();
    case 17:
      return at::rand_like(a) * a;
    case 18: {
      const at::NoGradGuard guard;
      return (a * 2).sigmoid_().add_(b).fill_diagonal_(0.5);
    }
    default:
      return at::linear(at::silu(a), b, a.select(0, 3)) * 0.1;
  }
}

/// The same for the same seed.
at::Tensor random_loss(const std::vector<at::Tensor>& weights, std::uint32_t seed) {
  Random random(seed);
  std::vector<at::Tensor> pool = weights;
  pool.push_back(at::randn({16, 16}));
  for (int i = 0; i < 40; ++i) {
    const at::Tensor a = pool[choose(random, pool.size())];
    const at::Tensor b = pool[choose(random, pool.size())];
    at::Tensor result = some_operator(random, a, b);
    // Some tensors are freed soon, some live long; the weights live throughout.
    if (pool.size() > 8) {
      pool[weights.size() + choose(random, pool.size() - weights.size())] = std::move(result);
    } else {
      pool.push_back(std::move(result));
    }
  }
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& each : pool) loss = loss + at::mm(each, weights[0]).square().mean();
  return loss;
}

std::string random_rules(Random& random) {
  const auto action = [&]() -> std::string {
    switch (choose(random, 5)) {
      case 0:
        return "action = \"keep\"\n";
      case 1:
        return "action = \"offload\"\n";
      case 2:
        return "action = \"recompute\"\nfallback = \"offload\"\n";
      default:
        return "action = \"recompute\"\n";
    }
  };
  std::string rules;
  for (const char* const producer :
       {"*mul*", "*add*", "*mm*", "*tanh*", "*softmax*", "*norm*", "*cat*", "*_", "*"}) {
    rules += std::string("[[rule]]\nproducer = \"") + producer + "\"\n" + action();
  }
  return rules;
}

class RandomPrograms : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RandomPrograms, GiveTheSameBits) {
  std::uint64_t repeated = 0;
  for (std::uint32_t seed = GetParam() * 10; seed < GetParam() * 10 + 10; ++seed) {
    Random random(seed);
    SessionOptions options = testing::with_rules(random_rules(random));
    options.small = 256_B;
    options.offload_window = choose(random, 2) == 0 ? 1_KiB : 8_KiB;
    options.prefetch_window = 2_KiB;
    options.recompute_cache = choose(random, 2) == 0 ? 1_B : 4_KiB;
    const int micro_batches = 1 + static_cast<int>(choose(random, 3));
    const bool together = choose(random, 2) == 0;
    Session session(std::move(options));
    const auto make = [=] {
      Program program;
      program.weights = {testing::weight({16, 16}), testing::weight({16, 16})};
      program.step = [=, all = program.weights](Step* step, int) {
        at::Tensor total = at::zeros({});
        std::vector<at::Tensor> losses;
        for (int micro = 0; micro < micro_batches; ++micro) {
          if (together && step != nullptr) step->pass(0, micro);
          at::Tensor loss = random_loss(all, seed);
          total = total + loss.detach();
          if (together) {
            losses.push_back(std::move(loss));
          } else {
            loss.backward();
          }
        }
        for (const at::Tensor& loss : losses) loss.backward();
        return total;
      };
      return program;
    };
    EXPECT_EQ(testing::difference_of(make, session), 0) << "seed " << seed;
    const SessionReport report = session.report();
    // Unused parts of a graph are freed before backward, and with them roots of replays; and before
    // the first save of a pass calls cannot be matched, so that no anchor can be held. Neither
    // changes bits.
    for (const std::string& demoted : report.demoted) {
      EXPECT_THAT(demoted, HasSubstr("not recomputable: ")) << "seed " << seed << "\n" << report;
    }
    for (const auto& [reason, count] : report.fallbacks) {
      EXPECT_THAT(reason, AnyOf(HasSubstr("not recomputable: "), HasSubstr("was gone before")))
          << "seed " << seed << "\n"
          << report;
    }
    repeated += report.repeated_calls;
  }
  EXPECT_GT(repeated, 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms,
                         ::testing::Range(1U, 1U + static_cast<unsigned>(testing::cases_of(8, 3))));

}  // namespace
}  // namespace spillway
