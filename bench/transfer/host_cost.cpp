#include <array>
#include <memory>
#include <string>

#include "measures.hpp"
#include "spillway/core/error.hpp"
#include "spillway/memory/host_tier.hpp"
#include "spillway/memory/slab.hpp"
#include "spillway/transfer/engine.hpp"

namespace spillway::bench {
namespace {

// A hundred buffers of few operations each do not fill the queue of a stream, which would block.
constexpr std::size_t kBuffers = 100;
constexpr std::size_t kWindow = 32;  // Buffers being copied while a step continues.
constexpr Bytes kSmall{64ULL << 10U};
constexpr Bytes kLarge{1ULL << 20U};
constexpr double kWantedHostMicroseconds = 4;

/// Buffers, streams and an engine; measures batches of kBuffers on an idle device. All costs are
/// microseconds of the calling thread for one buffer.
class HostCost {
 public:
  HostCost(Device& device, Bytes block)
      : device_(&device),
        block_(block),
        slab_(device, {.capacity = block * kBuffers * 2, .prepare = block * kBuffers * 2}),
        tier_(slab_),
        source_(device.allocate(block * kBuffers)),
        destination_(device.allocate(block * kBuffers)),
        compute_(device.make_stream("compute")),
        out_(device.make_stream("bare out")),
        back_(device.make_stream("bare back")),
        point_(device.make_event(Timing::kOff)),
        engine_(device, tier_),
        tickets_(kBuffers) {
    slab_.wait_until_prepared();
    for (std::size_t i = 0; i < kBuffers; ++i) {
      stored_.push_back(device.make_event(Timing::kOff));
      loaded_.push_back(device.make_event(Timing::kOff));
    }
  }

  /// All calls of one buffer, ticket destruction included, before those of the next.
  double one_at_a_time() {
    return timed([this](std::size_t i) {
      offload(i);
      engine_.release(tickets_[i], *compute_);
      engine_.reload(tickets_[i], destination(i), *compute_);
      engine_.ready(tickets_[i], *compute_);
      tickets_[i] = Ticket();
    });
  }

  /// The same calls in the order of a step: first all buffers are offloaded, each released after
  /// kWindow later offloads; then all are reloaded, each requested kWindow buffers before its use.
  double in_step_order() {
    const double forward = timed([this](std::size_t i) {
      offload(i);
      if (i >= kWindow) engine_.release(tickets_[i - kWindow], *compute_);
    });
    const double between = timed([this](std::size_t i) {
      if (i >= kBuffers - kWindow) engine_.release(tickets_[i], *compute_);
      if (i < kWindow) engine_.reload(tickets_[i], destination(i), *compute_);
    });
    const double backward = timed([this](std::size_t i) {
      if (i + kWindow < kBuffers) {
        engine_.reload(tickets_[i + kWindow], destination(i + kWindow), *compute_);
      }
      engine_.ready(tickets_[i], *compute_);
      tickets_[i] = Ticket();
    });
    return forward + between + backward;
  }

  /// Each call by itself: offload, release, reload, ready, ticket destruction.
  std::array<double, 5> calls() {
    std::array<double, 5> cost{};
    cost[0] = timed([this](std::size_t i) { offload(i); });
    cost[1] = timed([this](std::size_t i) { engine_.release(tickets_[i], *compute_); });
    cost[2] =
        timed([this](std::size_t i) { engine_.reload(tickets_[i], destination(i), *compute_); });
    cost[3] = timed([this](std::size_t i) { engine_.ready(tickets_[i], *compute_); });
    cost[4] = timed([this](std::size_t i) { tickets_[i] = Ticket(); });
    return cost;
  }

  /// The copies, event records and waits of one buffer without an engine.
  double bare() {
    std::optional<Lease> lease = slab_.allocate(block_ * kBuffers);
    if (!lease) throw OutOfMemory("host cost", "the slab is full: tickets were not destroyed");
    lease->acquire(*out_);
    const double cost = timed([this, host = lease->data()](std::size_t i) {
      std::byte* const block = host + i * block_.count();
      compute_->record(*point_);
      out_->wait(*point_);
      out_->copy(block, source(i).data(), block_, CopyKind::kToHost);
      out_->record(*stored_[i]);
      compute_->wait(*stored_[i]);
      compute_->record(*point_);
      back_->wait(*point_);
      back_->copy(destination(i).data(), block, block_, CopyKind::kToDevice);
      back_->record(*loaded_[i]);
      compute_->wait(*loaded_[i]);
    });
    return cost;
  }

 private:
  /// Time of the host only; synchronizes the device afterwards.
  template <typename F>
  double timed(F&& calls_of) {
    const SteadyClock clock;
    const Nanoseconds begin = clock.now();
    for (std::size_t i = 0; i < kBuffers; ++i) calls_of(i);
    const Nanoseconds time = clock.now() - begin;
    device_->synchronize();
    return static_cast<double>(time.count()) / 1e3 / kBuffers;
  }

  void offload(std::size_t i) {
    std::optional<Ticket> ticket = engine_.offload(source(i), *compute_);
    if (!ticket) throw OutOfMemory("host cost", "the slab is too small for its blocks");
    tickets_[i] = std::move(*ticket);
  }
  [[nodiscard]] std::span<std::byte> source(std::size_t i) const {
    return source_.span().subspan(i * block_.count(), block_.count());
  }
  [[nodiscard]] std::span<std::byte> destination(std::size_t i) const {
    return destination_.span().subspan(i * block_.count(), block_.count());
  }

  Device* device_;
  Bytes block_;
  Slab slab_;
  HostTier tier_;
  DeviceBuffer source_;
  DeviceBuffer destination_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> back_;
  std::unique_ptr<Event> point_;
  std::vector<std::unique_ptr<Event>> stored_;
  std::vector<std::unique_ptr<Event>> loaded_;
  TransferEngine engine_;
  std::vector<Ticket> tickets_;
};

struct Samples {
  std::vector<double> one_at_a_time;
  std::vector<double> in_step_order;
  std::vector<double> bare;
  std::array<std::vector<double>, 5> calls;
};

/// The variants take turns, so that drift affects all of them.
Samples measure(Device& device, Bytes block, int batches) {
  constexpr int kWarmUp = 10;
  HostCost cost(device, block);
  Samples samples;
  for (int i = 0; i < batches + kWarmUp; ++i) {
    const double one = cost.one_at_a_time();
    const double bare = cost.bare();
    const double step = cost.in_step_order();
    const std::array<double, 5> calls = cost.calls();
    if (i < kWarmUp) continue;
    samples.one_at_a_time.push_back(one);
    samples.bare.push_back(bare);
    samples.in_step_order.push_back(step);
    for (std::size_t k = 0; k < calls.size(); ++k) samples.calls[k].push_back(calls[k]);
  }
  return samples;
}

Figure figure_of(const char* id, const std::string& text, const std::vector<double>& found,
                 const Samples& samples, const Settings& settings) {
  Figure figure;
  figure.id = "host_cost." + std::string(id);
  figure.found = {"host cost of one buffer, " + text, "us", 2, app::spread_of(found)};
  figure.wanted = Wanted{Wanted::Kind::kAtMost, kWantedHostMicroseconds, settings.judge_device};
  figure.beside.push_back({"bare calls", "us", 2, app::spread_of(samples.bare)});
  return figure;
}

void add_calls(Figure& figure, const Samples& samples) {
  constexpr std::array<const char*, 5> kNames = {"offload", "release", "reload", "ready",
                                                 "ticket destruction"};
  for (std::size_t k = 0; k < kNames.size(); ++k) {
    figure.beside.push_back({kNames[k], "us", 2, app::spread_of(samples.calls[k])});
  }
}

}  // namespace

std::vector<Figure> measure_host_cost(Device& device, const Settings& settings) {
  const int batches = settings.quick ? 30 : 300;
  std::vector<Figure> figures;
  const Samples small = measure(device, kSmall, batches);
  const Samples large = measure(device, kLarge, batches);
  figures.push_back(
      figure_of("step_small", "as in a step, 64 KiB", small.in_step_order, small, settings));
  add_calls(figures.back(), small);
  figures.push_back(
      figure_of("step_large", "as in a step, 1 MiB", large.in_step_order, large, settings));
  add_calls(figures.back(), large);
  figures.push_back(
      figure_of("alone_small", "one at a time, 64 KiB", small.one_at_a_time, small, settings));
  return figures;
}

}  // namespace spillway::bench
