// Every file of examples/rules in a session: the same bits, whatever it recomputes and moves.
#include <algorithm>
#include <filesystem>
#include <memory>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spillway/models/llama.hpp"
#include "spillway/torch/session.hpp"
#include "torch/support/tiny_model.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::TinyModel;

constexpr int kLayers = 8;
constexpr int kSteps = 4;
constexpr int kMicroBatches = 2;
constexpr std::int64_t kTokens = 32;

/// How many buffers a file's rules decide on a model, by action; every file decides something.
struct Expected {
  bool recomputes = false;
  bool offloads = false;
};

constexpr Expected kOffloads = {.offloads = true};
constexpr Expected kRecomputes = {.recomputes = true};
constexpr Expected kBoth = {.recomputes = true, .offloads = true};

struct Example {
  const char* file;
  Expected llama;
  Expected tiny;
};

std::ostream& operator<<(std::ostream& out, const Example& example) { return out << example.file; }

constexpr Example kExamples[] = {
    {"demo", kOffloads, kOffloads},
    {"dropout-masks", kRecomputes, kRecomputes},
    {"first-layers-offloaded", kBoth, kBoth},
    {"full-recompute", kRecomputes, kRecomputes},
    {"internevo", kBoth, kBoth},
    {"megatron", kBoth, kBoth},
    {"megatron-experts", kBoth, kBoth},
    {"megatron-full", kRecomputes, kRecomputes},
    {"mixed", kBoth, kBoth},
    {"mlp-recompute-offload-small", kBoth, kBoth},
    {"norms-and-activations", kRecomputes, kRecomputes},
    {"norms-and-activations-offload-small", kBoth, kBoth},
    {"offload-attention", kOffloads, kOffloads},
    {"offload-everything", kOffloads, kOffloads},
    {"offload-layer-inputs", kBoth, kBoth},
    {"paddle", kBoth, kBoth},
    {"selective-attention-kept", kRecomputes, kRecomputes},
    {"selective-attention-offloaded", kBoth, kBoth},
};

/// The sizes in the files are those of large models.
constexpr std::uint64_t kSmaller = 4096;

SessionOptions options_of(const std::string& file) {
  const auto path = std::filesystem::path(SPILLWAY_EXAMPLE_RULES) / (file + ".toml");
  SessionOptions options;
  options.rules = translate(load_rules(path), shape_of(kLayers));
  for (Rule& rule : options.rules.rules) {
    if (rule.min_size) rule.min_size = Bytes(rule.min_size->count() / kSmaller);
    if (rule.max_size) rule.max_size = Bytes(rule.max_size->count() / kSmaller);
    if (rule.min_elements) *rule.min_elements /= kSmaller;
  }
  options.rules.limits = {.host = 64_MiB,
                          .offload_window = 16_KiB,
                          .prefetch_window = 32_KiB,
                          .min_size = {},
                          .slowdown = {},
                          .recompute_cache = {}};
  options.device = at::kCPU;
  options.small = 1_KiB;
  return options;
}

/// A model, and the loss of a batch that differs in each step and micro-batch.
class Subject {
 public:
  virtual ~Subject() = default;
  [[nodiscard]] virtual at::Tensor loss(int batch) const = 0;
  [[nodiscard]] virtual std::vector<at::Tensor> parameters() const = 0;
  [[nodiscard]] virtual std::vector<at::Tensor> buffers() const = 0;
};

class LlamaSubject final : public Subject {
 public:
  [[nodiscard]] at::Tensor loss(int batch) const override {
    const auto length = std::vector<std::int64_t>{1, kTokens};
    const at::Tensor tokens = (at::arange(kTokens, at::kLong) * (batch + 3) % 50).view(length);
    return model_.loss(tokens, (tokens + 1) % 50);
  }
  [[nodiscard]] std::vector<at::Tensor> parameters() const override { return model_.parameters(); }
  [[nodiscard]] std::vector<at::Tensor> buffers() const override { return model_.buffers(); }

 private:
  Llama model_{{.layers = kLayers,
                .hidden = 64,
                .heads = 4,
                .kv_heads = 2,
                .ffn = 96,
                .tokens = kTokens,
                .vocabulary = 50,
                .dropout = 0.1,
                .dtype = at::kFloat}};
};

class TinySubject final : public Subject {
 public:
  [[nodiscard]] at::Tensor loss(int batch) const override {
    return model_.loss(model_.tokens(1, kTokens, batch));
  }
  [[nodiscard]] std::vector<at::Tensor> parameters() const override { return model_.parameters(); }
  [[nodiscard]] std::vector<at::Tensor> buffers() const override { return model_.buffers(); }

 private:
  TinyModel model_{{.layers = kLayers, .dropout = 0.1}};
};

/// Losses and gradients of all steps.
template <typename Model>
std::vector<at::Tensor> train(Session* session) {
  at::set_num_threads(1);
  const Model model;
  if (session != nullptr) session->register_model(model);
  std::vector<at::Tensor> parameters = model.parameters();
  std::vector<at::Tensor> values;
  for (int i = 0; i < kSteps; ++i) {
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
    at::manual_seed(static_cast<std::uint64_t>(i));
    {
      std::optional<Step> step;
      if (session != nullptr) step.emplace(session->step());
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        const at::Tensor loss = model.loss(kMicroBatches * i + micro);
        loss.backward();
        values.push_back(loss.detach().clone());
      }
    }
    const at::NoGradGuard guard;
    for (at::Tensor& parameter : parameters) {
      values.push_back(parameter.grad().clone());
      parameter.add_(parameter.grad(), -0.05);
    }
  }
  return values;
}

template <typename Model>
const std::vector<at::Tensor>& without_session() {
  static const std::vector<at::Tensor> values = train<Model>(nullptr);
  return values;
}

template <typename Model>
void check(const char* file, const Expected& expected) {
  SCOPED_TRACE(file);
  const testing::Deterministic deterministic;
  const std::vector<at::Tensor>& without = without_session<Model>();
  Session session(options_of(file));
  EXPECT_EQ(testing::count_different(without, train<Model>(&session)), 0);
  const SessionReport report = session.report();
  EXPECT_EQ(report.repeated_calls > 0, expected.recomputes) << report;
  EXPECT_EQ(report.actions.contains("recompute"), expected.recomputes) << report;
  EXPECT_EQ(report.bytes_recomputed > 0_B, expected.recomputes) << report;
  EXPECT_EQ(report.bytes_out > 0_B, expected.offloads) << report;
  EXPECT_EQ(report.saved_peak_with < report.saved_peak_without,
            expected.recomputes || expected.offloads)
      << report;
  EXPECT_TRUE(report.demoted.empty()) << report;
  EXPECT_TRUE(report.fallbacks.empty()) << report;
  EXPECT_EQ(report.recorded_steps, 1U) << report;
}

class ExampleRules : public ::testing::TestWithParam<Example> {};

TEST_P(ExampleRules, GiveTheSameBitsOnALlama) {
  check<LlamaSubject>(GetParam().file, GetParam().llama);
}

TEST_P(ExampleRules, GiveTheSameBitsOnAModelOfOtherParts) {
  check<TinySubject>(GetParam().file, GetParam().tiny);
}

INSTANTIATE_TEST_SUITE_P(Files, ExampleRules, ::testing::ValuesIn(kExamples), [](const auto& each) {
  std::string name = each.param.file;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ExampleRulesTable, HasEveryFile) {
  std::vector<std::string> known;
  for (const Example& each : kExamples) known.emplace_back(each.file);
  std::vector<std::string> found;
  for (const auto& each : std::filesystem::directory_iterator(SPILLWAY_EXAMPLE_RULES)) {
    if (each.path().extension() == ".toml") found.push_back(each.path().stem());
  }
  EXPECT_THAT(known, ::testing::UnorderedElementsAreArray(found));
}

}  // namespace
}  // namespace spillway
