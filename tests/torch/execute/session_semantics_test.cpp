#include <thread>

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "support/error_text.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::count_different;
using testing::difference;
using testing::error_text;
using ::testing::HasSubstr;
using testing::offload_everything;
using testing::single_step;
using testing::TinyModel;
using testing::TinyOptions;

TEST(Session, GivesTheSameBitsWithTiedWeightsInLowPrecision) {
  Session session(offload_everything());
  TinyOptions shape;
  shape.tied = true;
  shape.dtype = at::kBFloat16;
  EXPECT_EQ(difference(shape, session, 3, single_step), 0);
}

TEST(Session, LetsAGraphBeUsedTwiceAndOutliveIt) {
  const testing::Deterministic deterministic;
  const auto gradients_of = [](bool managed) {
    TinyModel model({});
    at::Tensor loss;
    {
      std::optional<Session> session;
      std::optional<Step> step;
      if (managed) {
        session.emplace(offload_everything());
        session->register_model(model);
        step.emplace(session->step());
      }
      at::manual_seed(5);
      loss = model.loss(model.tokens(2, 32, 1));
      loss.backward({}, /*retain_graph=*/true);
    }
    // The session is destroyed; its hooks still exist.
    loss.backward();
    return model.gradients();
  };
  EXPECT_EQ(count_different(gradients_of(false), gradients_of(true)), 0);
}

TEST(Session, IgnoresADoubleBackward) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 3,
                       [](TinyModel& model, Step*, int i) {
                         const at::Tensor x = model.parameters()[1];
                         const at::Tensor loss = (x.exp() * x).square().mean() + 0 * i;
                         const auto gradients = torch::autograd::grad({loss}, {x}, {}, true, true);
                         at::Tensor penalty = loss + gradients[0].square().sum();
                         penalty.backward();
                         return penalty;
                       }),
            0);
}

TEST(Session, GivesTheSameBitsThroughAutogradGrad) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 4,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor loss = model.loss(model.tokens(2, 32, i));
                         const std::vector<at::Tensor> parameters = model.parameters();
                         const auto gradients = torch::autograd::grad({loss}, parameters);
                         for (std::size_t k = 0; k < parameters.size(); ++k) {
                           parameters[k].mutable_grad() = gradients[k];
                         }
                         return loss;
                       }),
            0);
  EXPECT_GT(session.report().bytes_back, 100_KiB) << session.report();
}

TEST(Session, MovesABufferOnceWhateverViewsWereSaved) {
  SessionOptions options = offload_everything();
  options.offload_window = 0_B;
  Session session(std::move(options));
  const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
  session.register_fixed(weight, FixedReason::kParameter);
  for (int i = 0; i < 3; ++i) {
    const auto step = session.step();
    at::Tensor loss;
    {
      const at::Tensor x = at::randn({64, 64}) * weight;
      loss = x.narrow(0, 0, 32).square().sum() + x.narrow(0, 32, 32).square().sum() +
             x.t().square().sum();
    }
    loss.backward();
  }
  // The random factor and x.
  EXPECT_EQ(session.report().bytes_out, 32_KiB) << session.report();
  EXPECT_EQ(session.report().bytes_back, 32_KiB) << session.report();
}

TEST(Session, ThrowsAutogradsOwnErrorForAChangeInPlace) {
  for (const bool offload : {true, false}) {
    SessionOptions options = offload_everything();
    if (!offload) options.rules = {};
    Session session(std::move(options));
    const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
    for (int i = 0; i < 3; ++i) {
      const auto step = session.step();
      const at::Tensor x = at::randn({64, 64}) * weight;
      const at::Tensor y = x.exp();
      y.add_(1);
      EXPECT_THAT(error_text<c10::Error>([&] { y.sum().backward(); }),
                  HasSubstr("modified by an inplace operation"));
    }
  }
}

TEST(Session, IgnoresUnsupportedTensors) {
  Session session(offload_everything());
  const at::Tensor dense = at::randn({32, 32}).set_requires_grad(true);
  for (int i = 0; i < 3; ++i) {
    dense.mutable_grad() = at::Tensor();
    const auto step = session.step();
    const at::Tensor sparse = at::eye(32).to_sparse();
    const at::Tensor empty = at::zeros({0, 32}).set_requires_grad(true);
    const at::Tensor y = at::mm(sparse, dense);
    (y * y).sum().backward();
    (empty * empty).sum().backward();
    EXPECT_TRUE(at::equal(dense.grad(), 2 * dense));
    const at::Tensor elsewhere =
        at::ones({64, 64}, at::TensorOptions().device(at::kMeta)).set_requires_grad(true);
    (elsewhere * elsewhere).sum().backward();
    EXPECT_TRUE(elsewhere.grad().defined());
    const at::Tensor wave = at::randn({32, 32}, at::kComplexFloat).set_requires_grad(true);
    at::real(wave.conj() * wave).sum().backward();
    EXPECT_TRUE(at::equal(wave.grad(), 2 * wave.detach()));
  }
}

TEST(Session, DoesNotMoveCallerOwnedBuffers) {
  Session session(offload_everything());
  const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
  const at::Tensor batch = at::randn({256, 64});
  session.register_fixed(weight, FixedReason::kParameter);
  for (int i = 0; i < 3; ++i) {
    const auto step = session.step();
    const at::Tensor returned = at::mm(batch, weight);
    returned.square().sum().backward();
  }
  EXPECT_EQ(session.report().bytes_out, 0_B) << session.report();
  EXPECT_EQ(session.report().saved_peak_without, 0_B) << session.report();
  int held = 0;
  for (const BufferProfile& buffer : session.profile()->chunks[0].buffers) {
    held += buffer.fixed == FixedReason::kCallerOwned ? 1 : 0;
  }
  EXPECT_EQ(held, 2);  // The batch and what was returned.
}

TEST(Session, WorksOnSeveralThreadsAtOnce) {
  const auto work = [](int* different) {
    Session session(offload_everything());
    TinyOptions shape;
    shape.dropout = 0;  // The random numbers of the process are shared.
    TinyModel model(shape);
    session.register_model(model);
    const at::Tensor tokens = at::arange(64, at::kLong).view({2, 32});
    at::Tensor first;
    for (int i = 0; i < 6; ++i) {
      model.zero_gradients();
      const auto step = session.step();
      model.loss(tokens).backward();
      const at::Tensor gradient = model.gradients()[1];
      if (i == 0) first = gradient;
      *different += at::equal(first, gradient) ? 0 : 1;
    }
  };
  int one = 0;
  int two = 0;
  {
    const std::jthread a(work, &one);
    const std::jthread b(work, &two);
  }
  EXPECT_EQ(one + two, 0);
}

/// Other saved-tensor hooks, as a checkpoint pushes them. A C++ program has no engine that calls
/// them, so what is saved meanwhile is saved as without any.
class OtherHooks {
 public:
  OtherHooks() {
    at::SavedTensorDefaultHooks::lazy_initialize();
    at::SavedTensorDefaultHooks::push_hooks({nullptr, nullptr}, {nullptr, nullptr});
  }
  OtherHooks(const OtherHooks&) = delete;
  OtherHooks& operator=(const OtherHooks&) = delete;
  ~OtherHooks() { (void)at::SavedTensorDefaultHooks::pop_hooks(); }
};

TEST(Session, IgnoresWhatIsSavedUnderOtherHooks) {
  const auto sites = [](bool hooked) {
    Session session(offload_everything());
    EXPECT_EQ(difference({}, session, 4,
                         [hooked](TinyModel& model, Step*, int i) {
                           at::Tensor hidden = model.hidden(model.tokens(2, 32, i));
                           std::optional<OtherHooks> hooks;
                           if (hooked) hooks.emplace();
                           at::Tensor loss = (hidden.tanh() * hidden.sigmoid()).square().mean();
                           hooks.reset();
                           loss.backward();
                           return loss;
                         }),
              0);
    EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
    return session.profile()->chunks[0].sites.size();
  };
  EXPECT_EQ(sites(false) - sites(true), 5U);  // tanh, sigmoid, both factors, square.
}

/// Runs its layer again in backward, as torch's own checkpoint does.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
    return at::gelu(at::mm(x, weight)).tanh();
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return layer(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved[0].detach().set_requires_grad(true);
    const at::Tensor weight = saved[1].detach().set_requires_grad(true);
    const at::AutoGradMode with_gradients(true);
    const at::Tensor again = layer(x, weight);
    return torch::autograd::grad({again}, {x, weight}, {gradients[0]});
  }
};

TEST(Session, IgnoresTheRecomputedForwardOfACheckpoint) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 4,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor x = model.hidden(model.tokens(2, 32, i)).view({64, 64});
                         const at::Tensor weight = model.parameters()[3];  // 64 x 64.
                         for (int layer = 0; layer < 3; ++layer) x = Checkpoint::apply(x, weight);
                         at::Tensor loss = x.square().mean();
                         loss.backward();
                         return loss;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
  for (const BufferProfile& buffer : session.profile()->chunks[0].buffers) {
    for (const auto& save : buffer.saves) EXPECT_NE(save.saver, "aten::tanh");
  }
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

TEST(Session, GivesTheSameBitsWithACustomFunction) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 4,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor x = model.hidden(model.tokens(2, 32, i));
                         x = Swish::apply(Swish::apply(x) * 2);
                         at::Tensor loss = x.square().mean();
                         loss.backward();
                         return loss;
                       }),
            0);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

/// Low precision where autocast thinks it right, on the CPU.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(Session, GivesTheSameBitsUnderAutocast) {
  Session session(offload_everything());
  EXPECT_EQ(difference({}, session, 4,
                       [](TinyModel& model, Step*, int i) {
                         at::Tensor loss;
                         {
                           const Autocast autocast;
                           loss = model.loss(model.tokens(2, 32, i));
                         }
                         loss.backward();
                         return loss;
                       }),
            0);
  bool low = false;
  for (const SiteProfile& site : session.profile()->chunks[0].sites)
    low |= site.dtype == "BFloat16";
  EXPECT_TRUE(low);
  EXPECT_TRUE(session.report().fallbacks.empty()) << session.report();
}

TEST(Session, GivesTheSameBitsWithOffloadedDropoutMasks) {
  Session session(offload_everything());
  TinyOptions shape;
  shape.dropout = 0.5;
  EXPECT_EQ(difference(shape, session, 4, single_step), 0);
  int masks = 0;
  const Plan& plan = *session.plan();
  for (const BufferProfile& buffer : session.profile()->chunks[0].buffers) {
    const Decision& decision = plan.chunks[0].decisions[static_cast<std::size_t>(buffer.id)];
    ASSERT_EQ(decision.buffer, buffer.id);
    const bool mask = buffer.position.saver == "aten::mul";  // Of what it dropped.
    masks += mask && decision.action.kind == ActionKind::kOffload ? 1 : 0;
  }
  EXPECT_EQ(masks, 6);  // Two a layer.
}

TEST(Session, FreesMemoryOutsideItsLock) {
  Session session(offload_everything());
  const at::Tensor weight = at::randn({4096}).set_requires_grad(true);
  session.register_fixed(weight, FixedReason::kParameter);
  int freed = 0;
  constexpr int kFactors = 12;
  for (int i = 1; i <= 3; ++i) {
    const auto step = session.step();
    at::Tensor x = weight;
    for (int k = 0; k < kFactors; ++k) {
      // Freeing it calls the session, as the finaliser of a Python object may.
      auto* const memory = new float[4096]();
      x = x * at::from_blob(memory, {4096}, [&session, &freed](void* data) {
            delete[] static_cast<float*>(data);
            freed += session.report().steps < 100 ? 1 : 0;
          });
    }
    EXPECT_GE(freed, kFactors * (i - 1) + 4);  // The window holds four of them.
    x.sum().backward();
    EXPECT_EQ(freed, kFactors * i);
  }
}

}  // namespace
}  // namespace spillway
