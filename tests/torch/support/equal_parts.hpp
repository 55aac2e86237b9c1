/// A shard group within one process and thread, of ranks that do what this one does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/torch/shard_group.hpp"

namespace spillway::testing {

/// The first of several ranks. It takes the others' parts to be equal to its own: where all parts
/// of every buffer are, what it gathers has the right bits; elsewhere only sizes and order are.
class EqualParts final : public ShardGroup {
 public:
  explicit EqualParts(int ranks) : ranks_(ranks) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return ranks_; }
  [[nodiscard]] std::unique_ptr<Gather> gather(at::Tensor whole, at::Tensor part) override {
    struct Done final : Gather {
      void wait() override {}
    };
    for (at::Tensor& each : whole.chunk(ranks_)) each.copy_(part);
    return std::make_unique<Done>();
  }
  [[nodiscard]] std::unique_ptr<Exchange> exchange(std::span<const std::uint64_t> words) override {
    struct Echo final : Exchange {
      std::vector<std::uint64_t> words;
      [[nodiscard]] std::vector<std::uint64_t> read() override { return std::move(words); }
    };
    auto all = std::make_unique<Echo>();
    for (int i = 0; i < ranks_; ++i) {
      all->words.insert(all->words.end(), words.begin(), words.end());
    }
    return all;
  }

 private:
  int ranks_;
};

}  // namespace spillway::testing
