#include "train/data/batch.hpp"

#include <ATen/ops/empty.h>

namespace spillway::app {

Batch read_batch(const Corpus& corpus, std::uint64_t first, std::int64_t count, std::int64_t tokens,
                 at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda());
  const at::Tensor text = at::empty({count, tokens + 1}, options);
  const auto length = static_cast<std::size_t>(tokens + 1);
  auto* const data = text.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    corpus.read(first + static_cast<std::uint64_t>(i),
                std::span(data + static_cast<std::size_t>(i) * length, length));
  }
  const at::Tensor moved = text.to(device, /*non_blocking=*/true);
  return {moved.narrow(1, 0, tokens).contiguous(), moved.narrow(1, 1, tokens).contiguous()};
}

}  // namespace spillway::app
