#include "torch/device/link_speed.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr Bytes kMaxSize{32ULL << 20U};
constexpr Bytes kMinSize{4ULL << 10U};
/// The first measurement, which tells what size takes kCopyTime.
constexpr Bytes kProbeSize{1ULL << 20U};
/// A copy this long shows the speed of the link and not the cost of its start.
constexpr std::chrono::duration<double> kCopyTime{0.6e-3};
constexpr int kRounds = 4;
/// Repetitions of measuring how much copies slow operators down; the median is taken, because
/// single measurements are off by half a percent.
constexpr int kSlowdownRounds = 9;
/// How much longer the copies take than the work that they run beside.
constexpr double kLonger = 1.5;
constexpr double kMaxCopies = 1000;
constexpr double kMaxSlowdown = 0.5;  // As profiles may have it.
constexpr double kMaxSpread = 0.02;
/// Work that takes less was skipped for lack of memory.
constexpr Nanoseconds kMinWork = std::chrono::milliseconds(1);

struct Lane {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> begin;
  std::unique_ptr<Event> end;
  DeviceBuffer buffer;
  Lease lease;
  bool out = false;

  /// Returns false if there is no room for it.
  [[nodiscard]] bool make(Device& device, Tier& tier, Bytes size) {
    buffer = {};
    lease = {};
    try {
      std::optional<Lease> found = tier.allocate(size);
      if (!found) return false;
      lease = std::move(*found);
      buffer = device.allocate(size);
      if (stream == nullptr) {
        stream = device.make_stream("link");
        begin = device.make_event(Timing::kOn);
        end = device.make_event(Timing::kOn);
      }
      lease.acquire(*stream);
    } catch (const OutOfMemory&) {
      return false;
    }
    return true;
  }

  void run(int rounds = kRounds) {
    stream->record(*begin);
    for (int i = 0; i < rounds; ++i) {
      lease.for_each_piece([&](std::byte* host, std::uint64_t offset, Bytes size) {
        std::byte* const device = buffer.data() + offset;
        if (out) {
          stream->copy(host, device, size, CopyKind::kToHost);
        } else {
          stream->copy(device, host, size, CopyKind::kToDevice);
        }
      });
    }
    stream->record(*end);
  }

  [[nodiscard]] double speed() const {
    end->synchronize();
    const std::chrono::duration<double> time = end->elapsed_since(*begin);
    return static_cast<double>(lease.size().count()) * kRounds / time.count();
  }
};

/// Nanoseconds that some work takes while a lane makes `copies` copies, or without copies; empty if
/// the copies ended first.
std::optional<double> time_of_work(TorchDevice& torch_device, Lane* lane = nullptr,
                                   int copies = 0) {
  torch_device.current_stream().synchronize();
  if (lane != nullptr) lane->run(copies);
  const TimeMark begin = torch_device.now();
  torch_device.keep_busy();
  const TimeMark end = torch_device.now();
  const Nanoseconds time = torch_device.elapsed(begin, end);
  if (time < kMinWork) return std::nullopt;
  if (lane != nullptr) {
    lane->end->synchronize();
    if (lane->end->elapsed_since(*end.event) < Nanoseconds(0)) return std::nullopt;
  }
  return static_cast<double>(time.count());
}

/// The median, not below zero; empty if the middle half spreads by more than kMaxSpread, as when
/// another process uses the device.
std::optional<double> middle_of(std::vector<double> shares) {
  std::sort(shares.begin(), shares.end());
  const std::size_t quarter = shares.size() / 4;
  if (shares[shares.size() - 1 - quarter] - shares[quarter] > kMaxSpread) return std::nullopt;
  return std::clamp(shares[shares.size() / 2], 0.0, kMaxSlowdown);
}

/// Sets both shares, or neither. Alternates the measurements, because a device's clock drifts.
void measure_slowdown(TorchDevice& torch_device, Lane& out, Lane& back, LinkSpeed& speed) {
  if (!torch_device.computes_beside()) return;
  (void)time_of_work(torch_device);  // Warms up.
  const std::optional<double> work = time_of_work(torch_device);
  if (!work) return;
  const auto copies = [&](const Lane& lane, double bytes_per_second) {
    const double each_ns = static_cast<double>(lane.lease.size().count()) / bytes_per_second * 1e9;
    return static_cast<int>(std::min(kMaxCopies, std::ceil(kLonger * *work / each_ns)));
  };
  std::vector<double> outward;
  std::vector<double> inward;
  for (int i = 0; i < kSlowdownRounds; ++i) {
    const std::optional<double> alone = time_of_work(torch_device);
    const std::optional<double> with_out = time_of_work(torch_device, &out, copies(out, speed.out));
    const std::optional<double> with_back =
        time_of_work(torch_device, &back, copies(back, speed.back));
    if (!alone || !with_out || !with_back) return;
    outward.push_back(*with_out / *alone - 1);
    inward.push_back(*with_back / *alone - 1);
  }
  const std::optional<double> slows_out = middle_of(std::move(outward));
  const std::optional<double> slows_back = middle_of(std::move(inward));
  if (!slows_out || !slows_back) return;
  speed.slows_out = slows_out;
  speed.slows_back = slows_back;
}

/// Makes both lanes of `size`, or of half of it and so on: a model that just fits leaves little
/// room to measure. Returns false if there is none. Copies once each way, to warm up.
[[nodiscard]] bool make_lanes(Device& device, Tier& tier, Bytes size, Lane& out, Lane& back) {
  while (size >= kMinSize && !(out.make(device, tier, size) && back.make(device, tier, size))) {
    size = Bytes(size.count() / 2);
  }
  if (size < kMinSize) return false;
  for (Lane* lane : {&out, &back}) {
    lane->run();
    lane->stream->synchronize();
  }
  return true;
}

/// The size whose copy takes kCopyTime on the faster lane.
[[nodiscard]] Bytes size_to_measure(Lane& out, Lane& back) {
  double fastest = 0;
  for (Lane* lane : {&out, &back}) {
    lane->run();
    fastest = std::max(fastest, lane->speed());
  }
  const double wanted = fastest * kCopyTime.count();
  return wanted < static_cast<double>(kMaxSize.count())
             ? std::max(kProbeSize, Bytes(static_cast<std::uint64_t>(wanted)))
             : kMaxSize;
}

}  // namespace

LinkSpeed measure_link(TorchDevice& torch_device, Tier& tier) {
  LinkSpeed speed;
  Lane out;
  Lane back;
  out.out = true;
  Device& device = torch_device.device();
  const Bytes most(tier.capacity().count() / 2);
  if (!make_lanes(device, tier, std::min(kProbeSize, most), out, back)) return speed;
  const Bytes size = size_to_measure(out, back);
  if (!make_lanes(device, tier, std::min(size, most), out, back)) return speed;
  torch_device.keep_busy();
  out.run();
  speed.out = out.speed();
  torch_device.keep_busy();
  back.run();
  speed.back = back.speed();
  torch_device.keep_busy();
  out.run();
  back.run();
  speed.out_with_back = out.speed();
  speed.back_with_out = back.speed();
  measure_slowdown(torch_device, out, back, speed);
  return speed;
}

}  // namespace spillway
