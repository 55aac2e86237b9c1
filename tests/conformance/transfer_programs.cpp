#include "conformance/transfer_programs.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "support/random_cases.hpp"

namespace spillway::testing {
namespace {

using namespace spillway::literals;

constexpr int kStreams = 2;
constexpr int kSlots = 12;
constexpr int kChecks = 64;
constexpr Bytes kSlot = 4_KiB;
constexpr Bytes kChunk = 2_MiB;
constexpr Bytes kRoom = 40_KiB;  // Of the slab, for all programs: often full, always used again.
constexpr std::byte kPoison{0xEE};

/// A buffer as the program knows it.
struct Value {
  Bytes size;
  std::byte front{};
  std::byte back{};
  int slot = -1;  // Its slot on the device, or -1.
  Ticket ticket;
  int reload_slot = -1;
  int reload_stream = -1;
};

struct Check {
  Bytes size;
  std::byte front{};
  std::byte back{};
};

}  // namespace

std::uint64_t scaled_programs(std::uint64_t count) {
  const char* const factor = std::getenv("SPILLWAY_TEST_PROGRAMS");
  const auto cases = static_cast<std::uint64_t>(cases_of(static_cast<int>(count)));
  return factor == nullptr ? cases : count * std::strtoull(factor, nullptr, 10);
}

struct ProgramWorld::Worker {
  Worker(FaultyDevice& on, TransferEngine& with)
      : engine(&with),
        memory(on.allocate(kSlot * kSlots)),
        results(on, kSlot * kChecks),
        event(on.make_event(Timing::kOff)) {
    for (int i = 0; i < kStreams; ++i) streams.push_back(on.make_stream("compute"));
  }

  bool run(std::uint64_t seed, bool may_fail);

  // The steps of a program; each picks what it needs or does nothing.
  void make();
  void offload();
  void release();
  void reload();
  void ready();
  void check_in_place();
  void drop();

  [[nodiscard]] std::byte* at(int slot) const {
    return memory.data() + static_cast<std::uint64_t>(slot) * kSlot.count();
  }
  [[nodiscard]] std::uint64_t pick(std::uint64_t below) { return random() % below; }
  [[nodiscard]] int any_stream() { return static_cast<int>(pick(kStreams)); }
  [[nodiscard]] Stream& stream(int index) { return *streams[static_cast<std::size_t>(index)]; }
  /// A free slot; its memory belongs to the stream that freed it, so that one is used.
  [[nodiscard]] std::optional<int> free_slot();
  void give_up(int slot, int on_stream);
  void give_up_reload(Value& value) {
    if (value.reload_slot >= 0) give_up(value.reload_slot, value.reload_stream);
    value.reload_slot = -1;
  }
  void forget_ticket(Value& value) {
    value.ticket = Ticket();
    give_up_reload(value);
  }
  /// What `later` does from now on comes after what `earlier` has queued.
  void order(int earlier, int later) {
    stream(earlier).record(*event);
    stream(later).wait(*event);
  }
  void check(int slot, int on_stream, const Value& value);
  template <typename Predicate>
  [[nodiscard]] Value* any(Predicate&& matches);
  void finish_checks();

  TransferEngine* engine;
  DeviceBuffer memory;
  RegisteredMemory results;
  std::unique_ptr<Event> event;
  std::vector<std::unique_ptr<Stream>> streams;

  std::mt19937_64 random;
  std::vector<std::unique_ptr<Value>> values;
  std::vector<int> free;
  std::vector<int> owner;  // Of each slot: the stream on which its memory may be used.
  std::vector<Check> checks;
};

std::optional<int> ProgramWorld::Worker::free_slot() {
  if (free.empty()) return std::nullopt;
  const auto chosen = free.begin() + static_cast<std::ptrdiff_t>(pick(free.size()));
  const int slot = *chosen;
  free.erase(chosen);
  return slot;
}

void ProgramWorld::Worker::give_up(int slot, int on_stream) {
  stream(on_stream).fill(at(slot), kPoison, kSlot);
  owner[static_cast<std::size_t>(slot)] = on_stream;
  free.push_back(slot);
}

template <typename Predicate>
Value* ProgramWorld::Worker::any(Predicate&& matches) {
  std::vector<Value*> found;
  for (const auto& value : values) {
    if (matches(*value)) found.push_back(value.get());
  }
  return found.empty() ? nullptr : found[pick(found.size())];
}

void ProgramWorld::Worker::make() {
  const std::optional<int> slot = free_slot();
  if (!slot) return;
  Value value;
  value.size = Bytes(2 + pick(kSlot.count() - 1));
  value.front = std::byte(pick(0xE0));
  value.back = std::byte(pick(0xE0));
  value.slot = *slot;
  Stream& on = stream(owner[static_cast<std::size_t>(*slot)]);
  on.fill(at(*slot), value.front, value.size);
  const std::uint64_t half = value.size.count() / 2;
  on.fill(at(*slot) + half, value.back, Bytes(value.size.count() - half));
  values.push_back(std::make_unique<Value>(std::move(value)));
}

void ProgramWorld::Worker::offload() {
  Value* const value = any([](const Value& v) { return v.slot >= 0 && !v.ticket; });
  if (value == nullptr) return;
  const int on = owner[static_cast<std::size_t>(value->slot)];
  try {
    if (auto ticket = engine->offload({at(value->slot), value->size.count()}, stream(on))) {
      value->ticket = std::move(*ticket);
    }
  } catch (const DeviceError&) {
    // Refused: the value keeps its slot, and the new slot may be overwritten any time.
  }
}

void ProgramWorld::Worker::release() {
  Value* const value = any([](const Value& v) { return v.slot >= 0 && v.ticket; });
  if (value == nullptr) return;
  // Mostly the stream that owns the memory; another one takes the memory over.
  const int before = owner[static_cast<std::size_t>(value->slot)];
  const int on = pick(4) == 0 ? any_stream() : before;
  // What the former owner still reads does not concern the engine.
  order(before, on);
  try {
    engine->release(value->ticket, stream(on));
  } catch (const DeviceError&) {
    forget_ticket(*value);  // The source is the only copy.
    return;
  }
  give_up(std::exchange(value->slot, -1), on);
}

void ProgramWorld::Worker::reload() {
  Value* const value = any([](const Value& v) { return static_cast<bool>(v.ticket); });
  if (value == nullptr) return;
  const std::optional<int> slot = free_slot();
  if (!slot) return;
  const int on = owner[static_cast<std::size_t>(*slot)];
  try {
    engine->reload(value->ticket, {at(*slot), value->size.count()}, stream(on));
  } catch (const DeviceError&) {
    give_up(*slot, on);
    give_up_reload(*value);
    return;
  }
  give_up_reload(*value);
  value->reload_slot = *slot;
  value->reload_stream = on;
}

void ProgramWorld::Worker::ready() {
  Value* const value = any([](const Value& v) { return v.reload_slot >= 0; });
  if (value == nullptr) return;
  const int on = pick(4) == 0 ? any_stream() : value->reload_stream;
  try {
    engine->ready(value->ticket, stream(on));
  } catch (const DeviceError&) {
    give_up_reload(*value);
    return;
  }
  if (pick(4) == 0) return;  // ready() was called, perhaps elsewhere, and the data is never read.
  check(value->reload_slot, on, *value);
  // If the slot was read on a stream that does not own it, its owner waits, as any caller must.
  order(on, value->reload_stream);
}

void ProgramWorld::Worker::check_in_place() {
  const Value* const value = any([](const Value& v) { return v.slot >= 0; });
  if (value != nullptr) check(value->slot, owner[static_cast<std::size_t>(value->slot)], *value);
}

void ProgramWorld::Worker::drop() {
  if (values.empty()) return;
  const auto chosen = values.begin() + static_cast<std::ptrdiff_t>(pick(values.size()));
  const std::unique_ptr<Value> value = std::move(*chosen);
  values.erase(chosen);
  forget_ticket(*value);
  if (value->slot >= 0) give_up(value->slot, owner[static_cast<std::size_t>(value->slot)]);
}

void ProgramWorld::Worker::check(int slot, int on_stream, const Value& value) {
  if (checks.size() == kChecks) return;
  try {
    stream(on_stream).copy(results.data() + checks.size() * kSlot.count(), at(slot), value.size,
                           CopyKind::kToHost);
  } catch (const DeviceError&) {
    return;  // The fault hit the check itself.
  }
  checks.push_back({value.size, value.front, value.back});
}

void ProgramWorld::Worker::finish_checks() {
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const Check& check = checks[i];
    const auto found = results.span().subspan(i * kSlot.count(), check.size.count());
    const auto half = static_cast<std::ptrdiff_t>(check.size.count() / 2);
    const auto wrong_front = std::find_if(found.begin(), found.begin() + half,
                                          [&](std::byte b) { return b != check.front; });
    const auto wrong_back = std::find_if(found.begin() + half, found.end(),
                                         [&](std::byte b) { return b != check.back; });
    EXPECT_EQ(wrong_front, found.begin() + half) << "wrong byte in check " << i;
    EXPECT_EQ(wrong_back, found.end()) << "wrong byte in check " << i;
  }
}

bool ProgramWorld::Worker::run(std::uint64_t seed, bool may_fail) {
  random.seed(seed);
  checks.clear();
  free.clear();
  owner.clear();
  for (int slot = 0; slot < kSlots; ++slot) {
    free.push_back(slot);
    owner.push_back(any_stream());
  }
  using Step = void (Worker::*)();
  constexpr Step kSteps[] = {&Worker::make,    &Worker::make,           &Worker::offload,
                             &Worker::offload, &Worker::release,        &Worker::release,
                             &Worker::reload,  &Worker::reload,         &Worker::ready,
                             &Worker::ready,   &Worker::check_in_place, &Worker::drop};
  const std::uint64_t length = 20 + pick(40);
  for (std::uint64_t i = 0; i < length; ++i) (this->*kSteps[pick(std::size(kSteps))])();
  while (!values.empty()) drop();

  bool failed = false;
  for (const auto& each : streams) {
    try {
      each->synchronize();
    } catch (const DeviceError& error) {
      failed = true;
      EXPECT_TRUE(may_fail) << error.what();
      EXPECT_EQ(error.operation(), "copy") << error.what();
    }
  }
  if (!failed) finish_checks();
  EXPECT_FALSE(::testing::Test::HasFailure()) << "program " << seed;
  return failed;
}

ProgramWorld::ProgramWorld(Device& inner, int workers, Timing timing, Bytes group)
    : device_(inner, FaultOptions{}),
      slab_(device_, {.capacity = kChunk + kRoom, .chunk = kChunk}),
      host_tier_(slab_),
      filler_(*slab_.allocate(kChunk - Bytes(kRoom.count() / 2))),
      tier_(host_tier_),
      engine_(device_, tier_, {.timing = timing, .group = group}) {
  for (int i = 0; i < workers; ++i) workers_.push_back(std::make_unique<Worker>(device_, engine_));
}

ProgramWorld::~ProgramWorld() {
  try {
    device_.synchronize();
  } catch (const Error&) {
    // A program that may fail has said so already.
  }
}

bool ProgramWorld::run(int worker, std::uint64_t seed, bool may_fail) {
  return workers_[static_cast<std::size_t>(worker)]->run(seed, may_fail);
}

void ProgramWorld::expect_empty() {
  EXPECT_EQ(tier_.counts().current, 0_B);
  EXPECT_EQ(tier_.counts().leases, 0U);
  EXPECT_EQ(engine_.totals().live, 0U);
  EXPECT_EQ(slab_.usage().used, filler_.size());
  EXPECT_EQ(slab_.usage().holes, 0U);
}

}  // namespace spillway::testing
