#include "spillway/comm/shard.hpp"

#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

std::string text_of(const Shard& shard) {
  std::string text;
  for (const std::int64_t block : shard.blocks) {
    text += (text.empty() ? "" : " + ") + std::to_string(block);
  }
  return text;
}

void require_size(const Shard& shard, std::int64_t size) {
  const auto sum = std::accumulate(shard.blocks.begin(), shard.blocks.end(), std::int64_t{0});
  if (sum == size) return;
  throw InvalidArgument("shard", "blocks of " + text_of(shard) + " = " + std::to_string(sum) +
                                     " do not make up a dimension of " + std::to_string(size));
}

void require_divisible(const Shard& shard, int ranks) {
  for (const std::int64_t block : shard.blocks) {
    if (block % ranks == 0) continue;
    throw InvalidArgument("shard", std::to_string(block) + " / " + std::to_string(ranks) +
                                       " leaves " + std::to_string(block % ranks) + " of blocks " +
                                       text_of(shard) +
                                       "; every rank has an equal part: take another size, or "
                                       "another number of tensor-parallel ranks");
  }
}

}  // namespace

at::Tensor part_of(const at::Tensor& whole, const Shard& shard, int rank, int ranks) {
  require_size(shard, whole.size(shard.dimension));
  require_divisible(shard, ranks);
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> mine;
  std::int64_t begin = 0;
  for (const std::int64_t block : shard.blocks) {
    mine.push_back(whole.narrow(shard.dimension, begin + rank * (block / ranks), block / ranks));
    begin += block;
  }
  return at::cat(mine, shard.dimension);
}

at::Tensor whole_of(const std::vector<at::Tensor>& parts, const Shard& shard) {
  const auto ranks = static_cast<int>(parts.size());
  require_divisible(shard, ranks);
  std::int64_t size = 0;
  for (const at::Tensor& part : parts) size += part.size(shard.dimension);
  require_size(shard, size);
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  for (const std::int64_t block : shard.blocks) {
    for (const at::Tensor& part : parts) {
      pieces.push_back(part.narrow(shard.dimension, begin, block / ranks));
    }
    begin += block / ranks;
  }
  return at::cat(pieces, shard.dimension);
}

at::Tensor gather_buffer(const Group& group, const at::Tensor& part, const Shard& shard) {
  if (group.size() == 1) return part.detach();
  return whole_of(group.all_gather(part.detach()).unbind(), shard);
}

}  // namespace spillway
