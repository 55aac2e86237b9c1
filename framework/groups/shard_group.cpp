#include "spillway/groups/shard_group.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

/// The CPU, unless the group takes CUDA tensors only.
at::Device device_for_words(const Group& group) {
  if (group.process_group() == nullptr) return at::kCPU;
  const std::vector<c10::Device> devices = group.process_group()->getDeviceTypes();
  const bool host = std::any_of(devices.begin(), devices.end(),
                                [](const c10::Device& each) { return each.is_cpu(); });
  return host ? at::kCPU : at::kCUDA;
}

class PendingGather final : public ShardGroup::Gather {
 public:
  explicit PendingGather(Pending pending) : pending_(std::move(pending)) {}
  void wait() override { pending_.wait(); }

 private:
  Pending pending_;
};

class PendingExchange final : public ShardGroup::Exchange {
 public:
  PendingExchange(const Group& group, std::span<const std::uint64_t> words) {
    const auto count = static_cast<std::int64_t>(words.size());
    const at::Tensor mine = at::empty({count}, at::kLong);
    std::memcpy(mine.data_ptr(), words.data(), words.size_bytes());
    const at::Tensor sent = mine.to(device_for_words(group));
    all_ = at::empty({count * group.size()}, sent.options());
    pending_ = group.all_gather_async(all_, sent);
  }

  [[nodiscard]] std::vector<std::uint64_t> read() override {
    pending_.wait();
    const at::Tensor host = all_.cpu();
    std::vector<std::uint64_t> words(static_cast<std::size_t>(host.numel()));
    std::memcpy(words.data(), host.data_ptr(), host.nbytes());
    return words;
  }

 private:
  at::Tensor all_;
  Pending pending_;
};

class GroupOfShards final : public ShardGroup {
 public:
  GroupOfShards(Group group, Group words) : group_(std::move(group)), words_(std::move(words)) {}

  [[nodiscard]] int rank() const override { return group_.rank(); }
  [[nodiscard]] int size() const override { return group_.size(); }

  [[nodiscard]] std::unique_ptr<Gather> gather(at::Tensor whole, at::Tensor part) override {
    return std::make_unique<PendingGather>(group_.all_gather_async(whole, part));
  }

  [[nodiscard]] std::unique_ptr<Exchange> exchange(std::span<const std::uint64_t> words) override {
    return std::make_unique<PendingExchange>(words_, words);
  }

 private:
  Group group_;
  Group words_;
};

}  // namespace

std::shared_ptr<ShardGroup> shard_group(const Group& group) { return shard_group(group, group); }

std::shared_ptr<ShardGroup> shard_group(const Group& group, const Group& words) {
  if (group.ranks() != words.ranks()) {
    throw InvalidArgument("shard_group", "group " + group.name() + " and group " + words.name() +
                                             " have different members; make both of one partition");
  }
  return std::make_shared<GroupOfShards>(group, words);
}

}  // namespace spillway
