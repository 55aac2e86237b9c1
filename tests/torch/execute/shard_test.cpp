// Sessions that shard over ranks that do what this one does: buffers whose originals the program
// still holds, changes or moves. Their results must be those without a session.
#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "torch/support/equal_parts.hpp"
#include "torch/support/program.hpp"
#include "torch/support/resized_storage.hpp"

namespace spillway {
namespace {

using ::testing::IsEmpty;
using testing::Program;

constexpr int kRanks = 2;
constexpr int kLayers = 4;
constexpr std::int64_t kSide = 64;
constexpr int kSteps = 5;  // The first ones record, and verify what is to be sharded.

using Held = std::vector<at::Tensor>;

/// Layers whose saved products have equal halves, as EqualParts wants them. `between` gets those of
/// the last step after its forward.
testing::MakeProgram layers(std::function<void(Held&)> between) {
  return [between = std::move(between)] {
    Program program;
    at::Tensor weight = testing::weight({kSide / kRanks, kSide}).detach().repeat({kRanks, 1});
    program.weights = {weight.set_requires_grad(true)};
    program.step = [weight, between](Step*, int i) {
      Held held;
      at::Tensor x = weight;
      for (int layer = 0; layer < kLayers; ++layer) {
        const at::Tensor product = x * 1.5;
        held.push_back(product.detach());
        x = product.sin();
      }
      if (i + 1 < kSteps) held.clear();
      between(held);
      at::Tensor loss = x.sum() * (1 + i);
      loss.backward();
      return loss;
    };
    return program;
  };
}

std::span<float> floats(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// By no operator: neither autograd nor the session sees it.
void write(const at::Tensor& tensor) {
  for (float& each : floats(tensor)) each *= 1.25F;
}

void move(const at::Tensor& tensor) {
  const std::vector<float> bits(floats(tensor).begin(), floats(tensor).end());
  testing::resize_storage(tensor.storage(), 0);
  testing::resize_storage(tensor.storage(), bits.size() * sizeof(float));
  std::ranges::copy(bits, floats(tensor).begin());
}

class ShardedOriginals : public ::testing::TestWithParam<const char*> {
 protected:
  static SessionReport run(const std::function<void(Held&)>& between) {
    Session session(testing::with_rules("[[rule]]\naction = \"" + std::string(GetParam()) +
                                        "\"\nshard = true\n"));
    session.set_shard_group(std::make_shared<testing::EqualParts>(kRanks));
    EXPECT_EQ(testing::difference_of(layers(between), session, kSteps), 0);
    SessionReport report = session.report();
    EXPECT_TRUE(report.shard.has_value());
    EXPECT_EQ(report.shard->buffers, static_cast<std::uint64_t>(kLayers)) << report;
    // The other ranks need this one's parts, whatever it reads itself.
    EXPECT_EQ(report.shard->gathers, static_cast<std::uint64_t>(kLayers)) << report;
    return report;
  }
};

TEST_P(ShardedOriginals, AreGatheredWhereNobodyHoldsThem) {
  const SessionReport report = run([](Held& held) { held.clear(); });
  // What the last answer gave up is freed after the lock, under which it is gathered.
  EXPECT_EQ(report.used_in_place, 1U) << report;
  EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
}

TEST_P(ShardedOriginals, AreAdoptedWhereTheProgramHoldsThem) {
  const SessionReport report = run([](Held&) {});
  EXPECT_EQ(report.used_in_place, static_cast<std::uint64_t>(kLayers)) << report;
  EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
}

TEST_P(ShardedOriginals, AreReadAsTheProgramHasChangedThem) {
  const SessionReport report = run([](Held& held) {
    for (const at::Tensor& each : held) write(each);
  });
  EXPECT_EQ(report.used_in_place, static_cast<std::uint64_t>(kLayers)) << report;
}

TEST_P(ShardedOriginals, AreReadWhereTheProgramHasPutThem) {
  const SessionReport report = run([](Held& held) {
    for (const at::Tensor& each : held) {
      move(each);
      write(each);
    }
  });
  EXPECT_EQ(report.used_in_place, static_cast<std::uint64_t>(kLayers)) << report;
}

TEST_P(ShardedOriginals, AreGatheredOrAdoptedEachByItself) {
  const SessionReport report = run([](Held& held) {
    for (std::size_t i = 0; i < held.size(); i += 2) held[i].reset();
  });
  EXPECT_EQ(report.used_in_place, static_cast<std::uint64_t>(kLayers / 2)) << report;
  EXPECT_THAT(report.fallbacks, IsEmpty()) << report;
}

INSTANTIATE_TEST_SUITE_P(, ShardedOriginals, ::testing::Values("keep", "offload"));

}  // namespace
}  // namespace spillway
