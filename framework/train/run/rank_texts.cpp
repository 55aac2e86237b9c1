#include "train/run/rank_texts.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

namespace spillway::app {

std::vector<std::string> gather_texts(const Group& group, const std::string& text,
                                      c10::Device device) {
  const auto length = static_cast<std::int64_t>(text.size());
  const at::Tensor lengths =
      group.all_gather(at::full({1}, length, at::TensorOptions(device).dtype(at::kLong))).cpu();
  const auto longest = std::max<std::int64_t>(lengths.max().item<std::int64_t>(), 1);
  at::Tensor mine = at::zeros({longest}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = group.all_gather(mine.to(device)).cpu();
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto* first = static_cast<const char*>(all[rank].const_data_ptr());
    texts.emplace_back(first, static_cast<std::size_t>(lengths[rank].item<std::int64_t>()));
  }
  return texts;
}

}  // namespace spillway::app
