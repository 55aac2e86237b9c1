#include "link_speed.hpp"

#include <algorithm>
#include <memory>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

constexpr Bytes kMost{32ULL << 20U};
constexpr Bytes kLeast{4ULL << 10U};
constexpr int kRounds = 4;
constexpr double kUnforeseenShare = 0.002;
constexpr double kSlowest = 0.95;

struct Lane {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> begin;
  std::unique_ptr<Event> end;
  DeviceBuffer buffer;
  Lease lease;
  bool out = false;

  /// Whether there is room for it.
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

  void run() {
    stream->record(*begin);
    for (int i = 0; i < kRounds; ++i) {
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

}  // namespace

LinkSpeed measure_link(TorchDevice& torch_device, Tier& tier) {
  LinkSpeed speed;
  Lane out;
  Lane back;
  out.out = true;
  // A model that just fits leaves little room to measure.
  Bytes size = std::min(kMost, Bytes(tier.capacity().count() / 2));
  while (size >= kLeast && !(out.make(torch_device.device(), tier, size) &&
                             back.make(torch_device.device(), tier, size))) {
    size = Bytes(size.count() / 2);
  }
  if (size < kLeast) return speed;
  for (Lane* lane : {&out, &back}) {
    lane->run();  // Warms up.
    lane->stream->synchronize();
  }
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
  return speed;
}

bool slow_down(double& alone, double& with_other, Bytes bytes, double unforeseen_ns,
               double step_ns) {
  if (unforeseen_ns < kUnforeseenShare * step_ns || bytes == Bytes(0) || alone <= 0) return false;
  const double foreseen_ns = static_cast<double>(bytes.count()) / alone * 1e9;
  const double share = std::max(kSlowest, foreseen_ns / (foreseen_ns + unforeseen_ns));
  alone *= share;
  with_other *= share;
  return true;
}

}  // namespace spillway
