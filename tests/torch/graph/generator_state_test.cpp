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

/// A generator off the CPU whose state can be set once.
class SetOnce final : public c10::GeneratorImpl {
 public:
  SetOnce() : GeneratorImpl(at::kMeta, c10::DispatchKeySet(c10::DispatchKey::Meta)) {}
  void set_state(const c10::TensorImpl& /*state*/) override {
    if (set_++ > 0) throw std::runtime_error("as the test wants it");
  }
  [[nodiscard]] c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return at::zeros({8}, at::kByte).getIntrusivePtr();
  }
  void set_current_seed(std::uint64_t /*seed*/) override {}
  void set_offset(std::uint64_t /*offset*/) override {}
  [[nodiscard]] std::uint64_t get_offset() const override { return 0; }
  [[nodiscard]] std::uint64_t current_seed() const override { return 0; }
  std::uint64_t seed() override { return 0; }

 private:
  [[nodiscard]] GeneratorImpl* clone_impl() const override { return new SetOnce(); }

  int set_ = 0;
};

TEST(GeneratorState, ThatCannotBeRestoredIsAnErrorOfRestore) {
  const GeneratorState state(at::make_generator<SetOnce>());
  GeneratorState::Applied applied(state);
  EXPECT_THROW(applied.restore(), std::runtime_error);
  // Its destructor does not end the process.
}

}  // namespace
}  // namespace spillway
