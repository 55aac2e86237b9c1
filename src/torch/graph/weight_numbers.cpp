#include "torch/graph/weight_numbers.hpp"

namespace spillway {

void WeightNumbers::begin_step(bool records) {
  records_ = records;
  unknown_.clear();
  if (!records) return;
  std::erase_if(recorded_, [](const auto& each) { return each.second.weight.expired(); });
  if (recorded_.empty()) last_ = 0;
}

std::uint64_t WeightNumbers::of(const at::Tensor& weight) {
  const c10::TensorImpl* const address = weight.unsafeGetTensorImpl();
  if (const auto found = recorded_.find(address); found != recorded_.end()) {
    return found->second.number;
  }
  if (const auto found = unknown_.find(address); found != unknown_.end()) {
    return found->second.number;
  }
  const std::uint64_t number = records_ ? ++last_ : unknown_.size() + 1;
  Numbers& numbers = records_ ? recorded_ : unknown_;
  numbers.emplace(address, Entry{Weak(weight.getIntrusivePtr()), number});
  return number;
}

}  // namespace spillway
