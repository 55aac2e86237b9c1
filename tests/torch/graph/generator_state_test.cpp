// States of generators.
#include "torch/graph/generator_state.hpp"

#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(GeneratorState, IsAppliedWhileTheGuardLives) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const GeneratorState state(generator);
  const at::Tensor first = at::rand({5}, generator);
  const at::Tensor second = at::rand({5}, generator);
  const at::Tensor now = generator.get_state();
  {
    const GeneratorState::Applied applied(state);
    EXPECT_TRUE(at::equal(at::rand({5}, generator), first));
    EXPECT_TRUE(at::equal(at::rand({5}, generator), second));
  }
  EXPECT_TRUE(at::equal(generator.get_state(), now));
  const GeneratorState::Applied again(state);
  EXPECT_TRUE(at::equal(at::rand({5}, generator), first));
}

TEST(GeneratorState, RemembersTheSecondOfAPairOfNormalNumbers) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  (void)at::randn({1}, generator);  // Numbers are drawn in pairs; the second one is pending.
  const GeneratorState state(generator);
  const at::Tensor next = at::randn({3}, generator);
  const GeneratorState::Applied applied(state);
  EXPECT_TRUE(at::equal(at::randn({3}, generator), next));
}

TEST(GeneratorState, IsRestoredAfterAnException) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const GeneratorState state(generator);
  (void)at::rand({5}, generator);
  const at::Tensor now = generator.get_state();
  try {
    const GeneratorState::Applied applied(state);
    throw std::runtime_error("an operator");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(at::equal(generator.get_state(), now));
}

}  // namespace
}  // namespace spillway
