#include "emulated_shards.hpp"

#include <mutex>
#include <utility>

#include "support/paced_stream.hpp"

namespace spillway::bench {
namespace {

/// Threads: autograd threads may wait for gathers.
struct Link {
  Link(c10::Device wanted, double bytes_per_second)
      : device(make_torch_device(wanted)), stream(*device, bytes_per_second) {}

  std::mutex mutex;
  std::unique_ptr<TorchDevice> device;
  PacedStream stream;
};

class PacedGather final : public ShardGroup::Gather {
 public:
  PacedGather(std::shared_ptr<Link> link, EventRef end)
      : link_(std::move(link)), end_(std::move(end)) {}

  void wait() override {
    const std::lock_guard lock(link_->mutex);
    link_->stream.wait_for(*end_);
  }

 private:
  std::shared_ptr<Link> link_;
  EventRef end_;
};

class OwnExchange final : public ShardGroup::Exchange {
 public:
  OwnExchange(std::span<const std::uint64_t> words, int ranks) {
    for (int i = 0; i < ranks; ++i) all_.insert(all_.end(), words.begin(), words.end());
  }
  [[nodiscard]] std::vector<std::uint64_t> read() override { return std::move(all_); }

 private:
  std::vector<std::uint64_t> all_;
};

class EmulatedShards final : public ShardGroup {
 public:
  EmulatedShards(c10::Device device, int ranks, double bytes_per_second)
      : ranks_(ranks), link_(std::make_shared<Link>(device, bytes_per_second)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return ranks_; }

  [[nodiscard]] std::unique_ptr<Gather> gather(at::Tensor whole, at::Tensor part) override {
    const std::lock_guard lock(link_->mutex);
    const Bytes others(whole.nbytes() - part.nbytes());
    return std::make_unique<PacedGather>(link_, link_->stream.start(whole, part, others).end);
  }

  [[nodiscard]] std::unique_ptr<Exchange> exchange(std::span<const std::uint64_t> words) override {
    return std::make_unique<OwnExchange>(words, ranks_);
  }

 private:
  int ranks_;
  std::shared_ptr<Link> link_;
};

}  // namespace

std::shared_ptr<ShardGroup> emulated_shards(c10::Device device, int ranks,
                                            double bytes_per_second) {
  return std::make_shared<EmulatedShards>(device, ranks, bytes_per_second);
}

}  // namespace spillway::bench
