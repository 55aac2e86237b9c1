#include "devices/link_test.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "devices/test_pattern.hpp"
#include "spillway/core/error.hpp"
#include "spillway/transfer/windows.hpp"

namespace spillway::app {
namespace {

constexpr Bytes kPage{4096};
constexpr Bytes kStaging{1ULL << 20U};
constexpr std::byte kCleared{0xEE};

SlabOptions twice(Bytes area) {
  SlabOptions options;
  options.capacity = area * 2;
  options.prepare = options.capacity;
  return options;
}

/// At most eight indices below `count`, the first and the last among them.
std::vector<std::uint64_t> sample_of(std::uint64_t count) {
  const std::uint64_t samples = std::min<std::uint64_t>(count, 8);
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < samples; ++i) {
    indices.push_back(samples == 1 ? 0 : i * (count - 1) / (samples - 1));
  }
  return indices;
}

}  // namespace

LinkRound make_round(Bytes area, Bytes block, std::uint64_t most_blocks, std::uint64_t turn) {
  if (block == Bytes(0) || block.count() % kPage.count() != 0 || block > area) {
    throw InvalidArgument("link test", "copies of " + std::to_string(block.count()) +
                                           " bytes wanted; they must be a multiple of 4096 and at "
                                           "most " +
                                           to_string(area) + ", the area they walk over");
  }
  LinkRound round;
  round.block = block;
  round.blocks = std::min(area.count() / block.count(), most_blocks);
  round.first = turn * round.blocks;
  round.window = std::max(Bytes(round.total().count() / 8), block * 4);
  return round;
}

double gigabytes_per_second(Bytes size, Nanoseconds time) noexcept {
  return static_cast<double>(size.count()) / static_cast<double>(time.count());
}

LinkTest::LinkTest(Device& device, Bytes area)
    : device_(&device),
      area_(round_up(area, kPage)),
      slab_(device, twice(area_)),
      tier_(slab_),
      source_(device.allocate(area_)),
      destination_(device.allocate(area_)),
      compute_(device.make_stream("compute")),
      out_(device.make_stream("bare out")),
      back_(device.make_stream("bare back")),
      engine_(device, tier_),
      staging_(kStaging.count()) {
  write_source();
  slab_.wait_until_prepared();
}

LinkTest::~LinkTest() {
  try {
    device_->synchronize();
  } catch (const Error&) {
    // Whoever met this error first has thrown it.
  }
}

template <typename F>
Nanoseconds LinkTest::timed(F&& work) {
  const SteadyClock clock;
  const Nanoseconds begin = clock.now();
  work();
  synchronize();
  return clock.now() - begin;
}

LinkTimes LinkTest::bare(const LinkRound& round) {
  const std::vector<Lease> first = take_blocks(round);
  const std::vector<Lease> second = take_blocks(round);
  LinkTimes times;
  clear_destination();
  times.out = timed([&] {
    for (std::uint64_t i = 0; i < round.blocks; ++i)
      copy_out(first[i], block_at(source_, round, i));
  });
  times.back = timed([&] {
    for (std::uint64_t i = 0; i < round.blocks; ++i) {
      copy_back(first[i], block_at(destination_, round, i));
    }
  });
  check_destination(round, "bare copies");
  clear_destination();
  times.both = timed([&] {
    for (std::uint64_t i = 0; i < round.blocks; ++i) {
      copy_out(second[i], block_at(source_, round, i));
      copy_back(first[i], block_at(destination_, round, i));
    }
  });
  check_destination(round, "bare copies");
  return times;
}

LinkTimes LinkTest::engine(const LinkRound& round) {
  LinkTimes times;
  std::vector<Ticket> tickets;
  clear_destination();
  times.out = timed([&] { tickets = drive(round, Send::kYes, {}); });
  times.back = timed([&] { tickets = drive(round, Send::kNo, std::move(tickets)); });
  check_destination(round, "the engine");
  clear_destination();
  tickets = drive(round, Send::kYes, {});
  synchronize();
  times.both = timed([&] { tickets = drive(round, Send::kYes, std::move(tickets)); });
  check_destination(round, "the engine");
  return times;
}

/// Offloads every block of the round if `send` says so, and reloads those in `stored`. Returns the
/// tickets of the offloaded blocks.
std::vector<Ticket> LinkTest::drive(const LinkRound& round, Send send, std::vector<Ticket> stored) {
  std::vector<Ticket> sent;
  sent.reserve(round.blocks);
  OffloadWindow<std::uint64_t> offloads(round.window);
  ReloadWindow<std::uint64_t> reloads(round.window);
  for (std::uint64_t i = 0; i < stored.size(); ++i) reloads.append(i, round.block);
  for (std::uint64_t i = 0; i < round.blocks; ++i) {
    if (send == Send::kYes) {
      sent.push_back(send_out(block_at(source_, round, i)));
      offloads.push(i, round.block);
      while (const auto overdue = offloads.pop_overdue())
        engine_.release(sent[*overdue], *compute_);
    }
    while (const auto next = reloads.next()) {
      engine_.reload(stored[*next], block_at(destination_, round, *next), *compute_);
    }
    if (i < stored.size()) {
      engine_.ready(stored[i], *compute_);
      stored[i] = Ticket();
      reloads.finished(round.block);
    }
  }
  while (const auto rest = offloads.pop_oldest()) engine_.release(sent[*rest], *compute_);
  return sent;
}

Ticket LinkTest::send_out(std::span<const std::byte> source) {
  std::optional<Ticket> ticket = engine_.offload(source, *compute_);
  if (!ticket) {
    throw OutOfMemory("link test", "the slab has no room for " + to_string(Bytes(source.size())) +
                                       "; the machine could not lock enough memory");
  }
  return std::move(*ticket);
}

std::vector<Lease> LinkTest::take_blocks(const LinkRound& round) {
  std::vector<Lease> leases;
  leases.reserve(round.blocks);
  for (std::uint64_t i = 0; i < round.blocks; ++i) {
    std::optional<Lease> lease = slab_.allocate(round.block);
    if (!lease) {
      throw OutOfMemory("link test", "the slab has no room for " + to_string(round.total()) +
                                         " twice; the machine could not lock enough memory");
    }
    lease->acquire(*out_);
    leases.push_back(std::move(*lease));
  }
  synchronize();
  return leases;
}

void LinkTest::copy_out(const Lease& lease, std::span<const std::byte> from) {
  lease.for_each_piece([&](std::byte* host, std::uint64_t offset, Bytes size) {
    out_->copy(host, from.data() + offset, size, CopyKind::kToHost);
  });
}

void LinkTest::copy_back(const Lease& lease, std::span<std::byte> to) {
  lease.for_each_piece([&](std::byte* host, std::uint64_t offset, Bytes size) {
    back_->copy(to.data() + offset, host, size, CopyKind::kToDevice);
  });
}

std::span<std::byte> LinkTest::block_at(const DeviceBuffer& buffer, const LinkRound& round,
                                        std::uint64_t index) const {
  const std::uint64_t blocks = area_.count() / round.block.count();
  const std::uint64_t at = (round.first + index) % blocks * round.block.count();
  return buffer.span().subspan(at, round.block.count());
}

void LinkTest::synchronize() {
  for (Stream* stream : {compute_.get(), out_.get(), back_.get()}) stream->synchronize();
}

void LinkTest::write_source() {
  for (std::uint64_t at = 0; at < area_.count(); at += kStaging.count()) {
    const std::uint64_t size = std::min(kStaging.count(), area_.count() - at);
    write_pattern({staging_.data(), size}, at);
    compute_->copy(source_.data() + at, staging_.data(), Bytes(size), CopyKind::kToDevice);
    compute_->synchronize();
  }
}

void LinkTest::clear_destination() {
  compute_->fill(destination_.data(), kCleared, area_);
  compute_->synchronize();
}

void LinkTest::check_destination(const LinkRound& round, const char* side) {
  for (const std::uint64_t index : sample_of(round.blocks)) {
    const std::span<std::byte> block = block_at(destination_, round, index);
    const std::uint64_t size = std::min<std::uint64_t>(block.size(), kStaging.count());
    // Begin, middle and end of a large block; all of a small one.
    for (const std::uint64_t at :
         {std::uint64_t{0}, (block.size() - size) / 2 / 8 * 8, block.size() - size}) {
      compute_->copy(staging_.data(), block.data() + at, Bytes(size), CopyKind::kToHost);
      compute_->synchronize();
      const auto offset = static_cast<std::uint64_t>(block.data() + at - destination_.data());
      if (!holds_pattern({staging_.data(), size}, offset)) {
        throw DeviceError("check", "a block of " + to_string(round.block) + " moved by " + side +
                                       " came back with wrong bytes; do not trust this machine's "
                                       "transfers, and report this");
      }
      if (at + size == block.size()) break;
    }
  }
}

}  // namespace spillway::app
