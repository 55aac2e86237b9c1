// The machine of sharded buffers on ports that do nothing but remember, one for each of several
// ranks, with random events, refusals and failures: all ranks gather in one order, whatever each of
// them finds, and the books agree with the states of parts and buffers.
#include "engine/shard_machine.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/random_cases.hpp"

namespace spillway::shard_machine_test {
namespace {

struct TestPass;
struct TestBuffer;

struct TestShard : ShardRecord {
  TestPass* pass = nullptr;
  std::weak_ptr<TestBuffer> buffer;
  bool has_memory = true;  // Of its part, anywhere.
  bool gathering = false;
};

struct TestBuffer : BufferRecord {
  TestPass* pass = nullptr;
  int item = 0;
  std::shared_ptr<TestShard> shard;
};

/// As plans have it.
struct GatherOrder {
  std::vector<int> position;
  std::vector<int> due;
};

struct TestPass : PassRecord {
  int number = 0;
  bool closed = false;
  GatherOrder order;
  std::vector<std::shared_ptr<TestBuffer>> buffers;
  std::vector<std::shared_ptr<TestShard>> shards;
};

class TestPort {
 public:
  using Buffer = TestBuffer;
  using WeakBuffer = std::weak_ptr<TestBuffer>;
  using Pass = TestPass;
  using Shard = TestShard;
  using ShardRef = std::shared_ptr<TestShard>;

  StepMachine<TestPort> machine{*this};
  ShardMachine<TestPort> shards{*this, machine};
  CommandLog log;
  std::vector<std::unique_ptr<TestPass>> passes;
  TestPass* open = nullptr;  // The one whose forward ran last, until it is closed.
  TestPass* next = nullptr;
  std::int64_t counted = 0;  // Bytes of buffers on the device.
  int late_gathers = 0;
  bool has_room = true;
  bool fails = false;  // Commands throw.

  static TestPass& pass_of(const TestBuffer& buffer) { return *buffer.pass; }
  static TestPass& pass_of_shard(const TestShard& shard) { return *shard.pass; }
  static int number_of(const TestPass& pass) { return pass.number; }
  static int item_of(const TestBuffer& buffer) { return buffer.item; }
  static std::shared_ptr<TestBuffer> lock(const WeakBuffer& buffer) { return buffer.lock(); }
  static std::shared_ptr<TestBuffer> buffer_of(const TestShard& shard) {
    return shard.buffer.lock();
  }
  static const GatherOrder& gather_order(const TestPass& pass) { return pass.order; }
  static bool has_allowance(const TestPass& /*pass*/) { return false; }
  static bool copy_out(const TestBuffer& /*buffer*/) { return true; }
  static bool release(const TestBuffer& /*buffer*/) { return true; }
  static bool adopt(const TestBuffer& /*buffer*/) { return false; }
  static void reload(const TestBuffer& /*buffer*/) {}
  static bool prefetch(const TestBuffer& /*buffer*/) { return true; }
  static void wait(const TestBuffer& /*buffer*/, bool /*first*/) {}
  static void used_in_place(const TestBuffer& /*buffer*/) {}
  static void copy_skipped(const TestBuffer& /*buffer*/) {}
  static void late(const TestBuffer& /*buffer*/) {}
  void late_gather() { ++late_gathers; }
  void gather(const TestBuffer& buffer) { shards.gather(buffer.shard); }
  TestPass* next_backward() { return next; }
  TestPass* next_to_gather() { return next != open ? next : nullptr; }
  template <typename F>
  void for_each_reload(TestPass& /*pass*/, F&& /*f*/) {}
  static void make_room(const TestPass& /*pass*/, std::int64_t /*allowed*/) {}
  static void flush() {}
  void entered(const TestBuffer& buffer) { counted += buffer.footprint; }
  void left(const TestBuffer& buffer) { counted -= buffer.footprint; }

  bool copy_part_out(const TestShard& shard) {
    EXPECT_EQ(shard.part, PartState::kHere);
    return has_room;
  }
  void release_part(const TestShard& shard) {
    EXPECT_EQ(shard.part, PartState::kCopying);
    fail();
  }
  void begin_gather(TestShard& shard) {
    EXPECT_TRUE(shard.pass->closed) << "a rank may still shard something of the pass";
    EXPECT_TRUE(shard.has_memory);
    EXPECT_EQ(shard.state, ShardState::kInParts);
    fail();
    shard.gathering = true;
  }
  void end_gather(TestShard& shard) {
    EXPECT_TRUE(shard.gathering);
    if (buffer_of(shard) != nullptr) fail();
    shard.gathering = false;
  }
  static void free_part(TestShard& shard) {
    EXPECT_TRUE(std::exchange(shard.has_memory, false)) << "freed twice";
  }
  /// As when all ranks saved the same.
  void close_forward() {
    TestPass* const pass = std::exchange(open, nullptr);
    if (pass == nullptr) return;
    pass->closed = true;
    shards.order_gathers(*pass);
  }

 private:
  void fail() const {
    if (fails) throw std::runtime_error("planted");
  }
};

/// What a pass has on all ranks.
struct Shape {
  struct Item {
    std::int64_t bytes = 0;
    bool shard = false;
    bool offload = false;
  };
  std::vector<Item> items;
  std::vector<int> reads;  // In the order of backward.
};

constexpr int kRanks = 3;

/// As gather_order() of plans without recomputation: each use begins the next gather.
GatherOrder order_of(const Shape& shape) {
  GatherOrder order;
  order.position.assign(shape.items.size(), 0);
  order.due.assign(shape.items.size(), 0);
  int position = 0;
  for (const int item : shape.reads) {
    int& of = order.position[static_cast<std::size_t>(item)];
    if (of == 0) of = ++position;
  }
  for (int& of : order.position) {
    if (of == 0) of = ++position;
  }
  std::vector<int> sharded;
  for (const int item : shape.reads) {
    if (!shape.items[static_cast<std::size_t>(item)].shard) continue;
    if (std::ranges::find(sharded, item) == sharded.end()) sharded.push_back(item);
  }
  for (std::size_t i = 0; i < sharded.size(); ++i) {
    order.due[static_cast<std::size_t>(sharded[i])] =
        i + 1 < sharded.size() ? order.position[static_cast<std::size_t>(sharded[i + 1])]
                               : position + 1;
  }
  return order;
}

TestPass& begin_pass(TestPort& port, const Shape& shape) {
  port.close_forward();
  port.machine.copy_held();
  port.passes.push_back(std::make_unique<TestPass>());
  TestPass& pass = *port.passes.back();
  pass.number = static_cast<int>(port.passes.size()) - 1;
  pass.order = order_of(shape);
  pass.buffers.resize(shape.items.size());
  port.open = &pass;
  return pass;
}

/// Saves an item; `agreed`: all ranks have saved it.
void save(TestPort& port, TestPass& pass, const Shape& shape, int item, bool agreed = true) {
  const Shape::Item& planned = shape.items[static_cast<std::size_t>(item)];
  auto buffer = std::make_shared<TestBuffer>();
  buffer->pass = &pass;
  buffer->item = item;
  buffer->footprint = planned.bytes;
  pass.buffers[static_cast<std::size_t>(item)] = buffer;
  port.machine.enter(*buffer);
  if (!planned.shard) return;
  auto shard = std::make_shared<TestShard>();
  shard->pass = &pass;
  shard->buffer = buffer;
  shard->item = item;
  shard->size = planned.bytes;
  shard->part_size = (planned.bytes + kRanks - 1) / kRanks;
  shard->gathered = shard->part_size * kRanks;
  port.shards.asked(*shard);
  if (!agreed) return port.shards.refuse(*shard);
  buffer->shard = shard;
  port.shards.split(pass, shard, planned.offload);
}

void drop(TestPort& port, TestPass& pass, int item, bool over = false) {
  const std::shared_ptr<TestBuffer> buffer =
      std::exchange(pass.buffers[static_cast<std::size_t>(item)], nullptr);
  if (buffer == nullptr) return;
  (void)port.machine.drop(*buffer);
  const std::shared_ptr<TestShard> shard = std::exchange(buffer->shard, nullptr);
  if (shard == nullptr) return;
  shard->buffer.reset();
  port.shards.drop(*shard, over);
}

void begin_backward(TestPort& port, TestPass& pass) {
  port.close_forward();
  port.machine.begin_backward(pass);
  port.shards.begin_backward(pass);
}

void read(TestPort& port, TestPass& pass, int item) {
  port.shards.begin_due(pass, item);
  if (const auto buffer = pass.buffers[static_cast<std::size_t>(item)]) {
    port.machine.make_available(*buffer);
  }
}

std::string text_of(const CommandLog& log) {
  std::string text;
  for (const LoggedCommand& each : log) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(each.command));
    if (each.item >= 0) text += " " + std::to_string(each.pass) + "." + std::to_string(each.item);
  }
  return text;
}

Shape three(bool offload) {
  return {.items = {{30, true, offload}, {30, true, offload}, {30, true, offload}},
          .reads = {2, 1, 0}};
}

TEST(ShardMachine, GathersInTheOrderOfBackwardEachAtTheUseOfTheOneBefore) {
  TestPort port;
  port.machine.log_to(&port.log);
  const Shape shape = three(false);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  EXPECT_EQ(text_of(port.log), "split 0.0, split 0.1, split 0.2");
  EXPECT_EQ(port.machine.on_device(), 30);
  port.log.clear();
  begin_backward(port, pass);
  EXPECT_EQ(text_of(port.log), "all-gather 0.2");
  read(port, pass, 2);
  EXPECT_EQ(text_of(port.log), "all-gather 0.2, all-gather 0.1, end all-gather 0.2");
  EXPECT_EQ(port.late_gathers, 0);
}

TEST(ShardMachine, PrefetchesAsManyWholeBuffersAsTheWindowHolds) {
  TestPort port;
  port.machine.set_limits({.shard_prefetch_window = 60});
  port.machine.log_to(&port.log);
  const Shape shape = three(false);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  port.log.clear();
  begin_backward(port, pass);
  EXPECT_EQ(text_of(port.log), "all-gather 0.2, all-gather 0.1");
}

TEST(ShardMachine, ReleasesPartsByTheWindowAndReloadsThemForTheirGather) {
  TestPort port;
  port.machine.set_limits({.shard_offload_window = 10});
  port.machine.log_to(&port.log);
  const Shape shape = three(true);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  EXPECT_EQ(text_of(port.log),
            "split 0.0, copy part out 0.0, split 0.1, copy part out 0.1, release part 0.0, "
            "split 0.2, copy part out 0.2, release part 0.1");
  EXPECT_EQ(port.machine.on_device(), 10);
  begin_backward(port, pass);
  for (const int item : {2, 1, 0}) {
    read(port, pass, item);
    drop(port, pass, item);
  }
  EXPECT_EQ(port.machine.on_device(), 0);
}

TEST(ShardMachine, KeepsTheWholeOfWhatNotAllRanksHaveSaved) {
  TestPort port;
  port.machine.log_to(&port.log);
  const Shape shape = three(true);
  TestPass& pass = begin_pass(port, shape);
  save(port, pass, shape, 0);
  save(port, pass, shape, 1, /*agreed=*/false);
  EXPECT_EQ(text_of(port.log), "split 0.0, copy part out 0.0, release part 0.0");
  EXPECT_EQ(port.machine.on_device(), 30);
  begin_backward(port, pass);
  read(port, pass, 1);
  EXPECT_EQ(pass.buffers[1]->state, BufferState::kResident);
}

TEST(ShardMachine, GathersForTheOtherRanksWhatItsOwnBackwardHasDropped) {
  TestPort port;
  const Shape shape = three(true);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  drop(port, pass, 1);
  EXPECT_NE(pass.shards[1]->part, PartState::kGone);
  port.machine.log_to(&port.log);
  begin_backward(port, pass);
  for (const int item : {2, 0}) read(port, pass, item);
  EXPECT_EQ(text_of(port.log),
            "all-gather 0.2, all-gather 0.1, end all-gather 0.1, end all-gather 0.2, "
            "all-gather 0.0, end all-gather 0.0");
}

TEST(ShardMachine, CountsAGatherThatBeginsWhenItsBufferIsNeeded) {
  TestPort port;
  const Shape shape = three(false);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  pass.order.due = {0, 0, 0};
  begin_backward(port, pass);
  for (const int item : {2, 1, 0}) read(port, pass, item);
  EXPECT_EQ(port.late_gathers, 2);
}

TEST(ShardMachine, GoesOnWithABeginThatFailedWhateverIsReadNext) {
  TestPort port;
  port.machine.set_limits({.shard_prefetch_window = 90});
  const Shape whole{.items = {{30, false, false}}, .reads = {0}};
  const Shape shape = three(false);
  TestPass& next = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, next, shape, item);
  TestPass& pass = begin_pass(port, whole);
  save(port, pass, whole, 0);
  port.machine.log_to(&port.log);
  port.next = &next;
  port.fails = true;
  EXPECT_THROW(begin_backward(port, pass), std::runtime_error);
  port.fails = false;
  read(port, pass, 0);
  // As the other ranks have begun them.
  EXPECT_EQ(text_of(port.log), "all-gather 0.2, all-gather 0.1, all-gather 0.0");
}

TEST(ShardMachine, FreesPartsOfAnUnreadPassOnceItsStepIsOver) {
  TestPort port;
  port.machine.set_limits({.shard_offload_window = 20});
  const Shape shape = three(true);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  for (const int item : {0, 1, 2}) drop(port, pass, item, /*over=*/true);
  for (const auto& shard : pass.shards) {
    EXPECT_EQ(shard->part, PartState::kGone);
    EXPECT_FALSE(shard->has_memory);
  }
  EXPECT_EQ(port.machine.on_device(), 0);
}

TEST(ShardMachine, BeginsAGatherAgainThatFailed) {
  TestPort port;
  const Shape shape = three(false);
  TestPass& pass = begin_pass(port, shape);
  for (const int item : {0, 1, 2}) save(port, pass, shape, item);
  port.machine.log_to(&port.log);
  port.fails = true;
  EXPECT_THROW(begin_backward(port, pass), std::runtime_error);
  EXPECT_THROW(read(port, pass, 2), std::runtime_error);
  EXPECT_EQ(text_of(port.log), "");
  EXPECT_EQ(port.machine.on_device(), 30);
  port.fails = false;
  for (const int item : {2, 1, 0}) read(port, pass, item);
  EXPECT_EQ(text_of(port.log),
            "all-gather 0.2, all-gather 0.1, end all-gather 0.2, all-gather 0.0, "
            "end all-gather 0.1, end all-gather 0.0");
}

/// Random programs that all ranks run, and what each of them finds by itself: no room in the host
/// tier, failures of its device, buffers that its autograd drops early.
class RandomStep {
 public:
  explicit RandomStep(std::uint64_t seed) : random_(seed) {
    const auto prefetch = below(60);
    for (TestPort& port : ports_) {
      // Each rank has its own offload window; on the other one they have agreed.
      port.machine.set_limits(
          {.shard_offload_window = below(40), .shard_prefetch_window = prefetch});
      port.machine.log_to(&port.log);
    }
  }

  void run() {
    const auto passes = static_cast<int>(1 + below(4));
    for (int i = 0; i < passes; ++i) {
      forward();
      waiting_.push_back(i);
      std::shuffle(waiting_.begin(), waiting_.end(), random_);
      if (one_in(3)) backward();
    }
    while (!waiting_.empty()) backward();
    end_step();
    compare_gathers();
  }

 private:
  std::int64_t below(std::int64_t most) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most));
  }
  bool one_in(int count) { return below(count) == 0; }

  Shape random_shape() {
    Shape shape;
    const auto items = static_cast<int>(1 + below(8));
    for (int i = 0; i < items; ++i) {
      shape.items.push_back({1 + below(30), !one_in(3), one_in(2)});
      if (!one_in(8)) shape.reads.push_back(i);  // Backward need not read it.
    }
    std::ranges::reverse(shape.reads);
    if (!shape.reads.empty() && one_in(3)) {
      shape.reads.push_back(shape.reads[static_cast<std::size_t>(
          below(static_cast<std::int64_t>(shape.reads.size())))]);  // Twice.
    }
    return shape;
  }

  [[nodiscard]] static bool reads(const Shape& shape, int item, std::size_t from) {
    return std::find(shape.reads.begin() + static_cast<std::ptrdiff_t>(from), shape.reads.end(),
                     item) != shape.reads.end();
  }

  /// Until it succeeds; what fails may be tried again at the next event, as by a session.
  template <typename F>
  void attempt(TestPort& port, F&& f) {
    for (int i = 0; i < 100; ++i) {
      port.fails = one_in(12);
      try {
        f();
        port.fails = false;
        check(port);
        return;
      } catch (const std::runtime_error&) {
        check(port);
      }
    }
    ADD_FAILURE() << "it fails for ever";
  }

  void forward() {
    shapes_.push_back(random_shape());
    const Shape& shape = shapes_.back();
    for (TestPort& port : ports_) (void)begin_pass(port, shape);
    for (int item = 0; item < static_cast<int>(shape.items.size()); ++item) {
      const bool agreed = !one_in(6);
      for (TestPort& port : ports_) {
        TestPass& pass = *port.passes.back();
        port.has_room = !one_in(4);
        // The copy of the part has been queued when an older one cannot be released.
        port.fails = one_in(12);
        try {
          save(port, pass, shape, item, agreed);
        } catch (const std::runtime_error&) {
          EXPECT_TRUE(pass.buffers[static_cast<std::size_t>(item)] != nullptr);
        }
        port.fails = false;
        check(port);
        // A garbage collector may come at any time; but not for what backward reads.
        if (one_in(4) && !reads(shape, item, 0)) drop(port, pass, item);
        check(port);
      }
    }
  }

  void backward() {
    const auto index = static_cast<std::size_t>(waiting_.front());
    waiting_.erase(waiting_.begin());
    const Shape& shape = shapes_[index];
    for (TestPort& port : ports_) {
      const bool last = waiting_.empty();
      port.next = last ? nullptr : port.passes[static_cast<std::size_t>(waiting_.front())].get();
      TestPass& pass = *port.passes[index];
      port.close_forward();
      port.machine.begin_backward(pass);
      // Autograd begins a backward once: what failed then goes on with what is read first.
      port.fails = !shape.reads.empty() && one_in(4);
      try {
        port.shards.begin_backward(pass);
      } catch (const std::runtime_error&) {
        check(port);
      }
      port.fails = false;
      for (std::size_t i = 0; i < shape.reads.size(); ++i) {
        const int item = shape.reads[i];
        attempt(port, [&] { read(port, pass, item); });
        if (const auto& buffer = pass.buffers[static_cast<std::size_t>(item)]) {
          EXPECT_EQ(buffer->state, BufferState::kResident);
        }
        if (one_in(2) && !reads(shape, item, i + 1)) drop(port, pass, item);
        check(port);
      }
    }
  }

  void end_step() {
    for (TestPort& port : ports_) {
      port.close_forward();
      for (const auto& pass : port.passes) {
        for (int item = 0; item < static_cast<int>(pass->buffers.size()); ++item) {
          drop(port, *pass, item, /*over=*/true);
        }
        // As where the buffer was dropped before.
        for (const auto& shard : pass->shards) {
          if (shard->state == ShardState::kInParts) port.shards.free_part(*shard);
        }
      }
      check(port);
      EXPECT_EQ(port.machine.on_device(), 0);
      EXPECT_EQ(port.counted, 0);
      for (const auto& pass : port.passes) {
        for (const auto& shard : pass->shards) EXPECT_FALSE(shard->has_memory);
      }
    }
  }

  /// What takes memory by the states of buffers and parts.
  static void check(const TestPort& port) {
    std::int64_t buffers = 0;
    std::int64_t parts = 0;
    for (const auto& pass : port.passes) {
      for (const auto& buffer : pass->buffers) {
        if (buffer != nullptr && is_on_device(buffer->state)) buffers += buffer->footprint;
      }
      for (const auto& shard : pass->shards) {
        if (shard->part == PartState::kHere || shard->part == PartState::kCopying) {
          parts += shard->part_size;
        }
        EXPECT_EQ(shard->part == PartState::kGone, !shard->has_memory);
      }
    }
    EXPECT_EQ(port.counted, buffers);
    EXPECT_EQ(port.machine.on_device(), buffers + parts);
  }

  void compare_gathers() const {
    const auto gathers = [](const TestPort& port) {
      CommandLog begun;
      for (const LoggedCommand& each : port.log) {
        if (each.command == Command::kGather) begun.push_back(each);
      }
      return text_of(begun);
    };
    for (const TestPort& port : ports_) EXPECT_EQ(gathers(port), gathers(ports_[0]));
  }

  std::mt19937_64 random_;
  std::array<TestPort, kRanks> ports_;
  std::vector<Shape> shapes_;
  std::vector<int> waiting_;  // Passes whose backward has not begun; the first one is next.
};

TEST(ShardMachine, GathersInOneOrderOnAllRanksWhateverEachOfThemFinds) {
  const int cases = testing::cases_of(20'000, 20);
  for (int i = 0; i < cases && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("seed " + std::to_string(i));
    RandomStep(static_cast<std::uint64_t>(i)).run();
  }
}

}  // namespace
}  // namespace spillway::shard_machine_test
