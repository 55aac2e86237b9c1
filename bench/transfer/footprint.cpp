#include <algorithm>
#include <deque>
#include <random>
#include <string>

#include "measures.hpp"
#include "spillway/core/error.hpp"
#include "spillway/memory/offset_allocator.hpp"

namespace spillway::bench {
namespace {

constexpr std::uint64_t kHidden = 4096;
constexpr std::uint64_t kHeads = 32;
constexpr std::uint64_t kKeyValueWidth = 1024;  // 8 heads of 128.
constexpr std::uint64_t kFeedForward = 14336;
constexpr std::uint64_t kTokens = 8192;
constexpr std::uint64_t kBf16 = 2;
constexpr std::uint64_t kFloat = 4;
constexpr std::size_t kLayers = 16;
constexpr std::size_t kPendingPasses = 4;
constexpr std::size_t kMicroBatches = 8;
constexpr std::size_t kSteps = 4;
constexpr double kWantedRatio = 1.03;

/// The saved tensors of one Llama-shaped layer, in forward order.
std::vector<Bytes> saved_buffers(std::uint64_t tokens) {
  const auto rows = [tokens](std::uint64_t width, std::uint64_t element) {
    return Bytes(tokens * width * element);
  };
  return {
      rows(kHidden, kBf16),         // input of the attention norm
      rows(1, kFloat),              // reciprocal root mean squares of that norm
      rows(kHidden, kBf16),         // output of that norm, input of the q, k and v projections
      rows(kHidden, kBf16),         // q after rotation
      rows(kKeyValueWidth, kBf16),  // k after rotation
      rows(kKeyValueWidth, kBf16),  // v
      rows(kHidden, kBf16),         // output of attention, input of its projection
      rows(kHeads, kFloat),         // log-sum-exp of attention
      rows(kHidden, kBf16),         // input of the feed-forward norm
      rows(1, kFloat),              // reciprocal root mean squares of that norm
      rows(kHidden, kBf16),         // output of that norm, input of gate and up
      rows(kFeedForward, kBf16),    // gate, input of SiLU
      rows(kFeedForward, kBf16),    // SiLU of the gate
      rows(kFeedForward, kBf16),    // up
      rows(kFeedForward, kBf16),    // product of SiLU and up, input of down
  };
}

/// Passes of the first stage of a 1F1B pipeline; counts the live bytes.
class Passes {
 public:
  void forward(std::uint64_t tokens) {
    std::vector<Extent>& pass = live_.emplace_back();
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      for (const Bytes size : saved_buffers(tokens)) {
        const std::optional<Extent> extent = allocator_.allocate(size);
        if (!extent) throw OutOfMemory("footprint", "the trace needs more than the address range");
        pass.push_back(*extent);
        used_ += size;
        sizes_.push_back(size);
      }
    }
    peak_ = std::max(peak_, used_);
  }

  /// Of the oldest pass. Frees buffers in the order of backward, the last first.
  void backward() {
    std::vector<Extent>& pass = live_.front();
    used_ -= total_of(pass.size());
    while (!pass.empty()) {
      allocator_.free(pass.back());
      pass.pop_back();
    }
    live_.pop_front();
  }

  [[nodiscard]] double ratio() const {
    return static_cast<double>(allocator_.footprint().count()) / static_cast<double>(peak_.count());
  }
  [[nodiscard]] double peak_gib() const {
    return static_cast<double>(peak_.count()) / (1ULL << 30U);
  }

 private:
  Bytes total_of(std::size_t buffers) {
    Bytes total;
    for (std::size_t i = 0; i < buffers; ++i) {
      total += sizes_.front();
      sizes_.pop_front();
    }
    return total;
  }

  OffsetAllocator allocator_{Bytes(1ULL << 42U)};
  std::deque<std::vector<Extent>> live_;
  std::deque<Bytes> sizes_;
  Bytes used_;
  Bytes peak_;
};

/// Several steps of 1F1B; `tokens` gives the length of each micro-batch.
template <typename F>
Passes run_steps(F&& tokens) {
  Passes passes;
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kMicroBatches; ++i) {
      passes.forward(tokens());
      if (i + 1 >= kPendingPasses) passes.backward();
    }
    for (std::size_t i = 0; i + 1 < kPendingPasses; ++i) passes.backward();
  }
  return passes;
}

Figure figure_of(const char* id, const char* text, const std::vector<Passes>& runs) {
  std::vector<double> ratios;
  std::vector<double> peaks;
  for (const Passes& run : runs) {
    ratios.push_back(run.ratio());
    peaks.push_back(run.peak_gib());
  }
  Figure figure;
  figure.id = "footprint." + std::string(id);
  figure.found = {"slab footprint / live peak, " + std::string(text), "x", 3,
                  app::spread_of(ratios)};
  figure.beside = {{"live peak", "GiB", 1, app::spread_of(peaks)}};
  return figure;
}

}  // namespace

std::vector<Figure> measure_footprint(const Settings& /*settings*/) {
  constexpr std::uint64_t kSeeds = 20;
  std::vector<Passes> same;
  same.push_back(run_steps([] { return kTokens; }));
  std::vector<Passes> mixed;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    mixed.push_back(run_steps([&random] { return kTokens / 2 + random() % (kTokens / 2 + 1); }));
  }
  Figure first = figure_of("same_length", "16 layers, 4 pending passes", same);
  first.wanted = Wanted{Wanted::Kind::kAtMost, kWantedRatio, true};
  return {first, figure_of("mixed_length", "the same, 4096 to 8192 tokens a pass", mixed)};
}

}  // namespace spillway::bench
