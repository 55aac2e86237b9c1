// The machine on a port that does nothing but remember, with random events and refusals: its
// books agree with the states of the buffers, whatever comes.
#include "engine/step_machine.hpp"

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/random_cases.hpp"

namespace spillway {
namespace {

struct TestPass;

struct TestBuffer : BufferRecord {
  TestPass* pass = nullptr;
  int item = 0;
  bool original = false;   // The program has it, too.
  bool evictable = false;  // It is to stay, but may be offloaded.
};

struct TestPass : PassRecord {
  int number = 0;
  Residency list;
  std::vector<std::shared_ptr<TestBuffer>> buffers;
};

class TestPort {
 public:
  using Buffer = TestBuffer;
  using WeakBuffer = std::weak_ptr<TestBuffer>;
  using Pass = TestPass;

  StepMachine<TestPort> machine{*this};
  CommandLog log;
  std::vector<std::unique_ptr<TestPass>> passes;
  std::int64_t counted = 0;
  bool has_room = true;
  bool has_memory = true;
  bool owner_moves = false;
  bool fails = false;  // Every command throws.
  TestPass* next = nullptr;
  int evictions = 0;

  static TestPass& pass_of(const TestBuffer& buffer) { return *buffer.pass; }
  static int number_of(const TestPass& pass) { return pass.number; }
  static int item_of(const TestBuffer& buffer) { return buffer.item; }
  static std::shared_ptr<TestBuffer> lock(const WeakBuffer& buffer) { return buffer.lock(); }
  bool copy_out(TestBuffer& buffer) {
    fail();
    return has_room && stays(buffer);
  }
  bool release(TestBuffer& buffer) {
    fail();
    return stays(buffer);
  }
  static bool adopt(const TestBuffer& buffer) { return buffer.original; }
  void reload(const TestBuffer& /*buffer*/) { fail(); }
  bool prefetch(const TestBuffer& /*buffer*/) { return has_memory; }
  void wait(const TestBuffer& /*buffer*/, bool /*first*/) { fail(); }
  void used_in_place(const TestBuffer& /*buffer*/) {}
  void copy_skipped(const TestBuffer& /*buffer*/) {}
  void late(const TestBuffer& /*buffer*/) {}
  void gather(const TestBuffer& /*buffer*/) {}
  TestPass* next_backward() { return next; }
  template <typename F>
  void for_each_reload(TestPass& pass, F&& f) {
    int rank = 0;
    for (std::size_t i = pass.buffers.size(); i-- > 0;) {
      if (pass.buffers[i] != nullptr) f(*pass.buffers[i], WeakBuffer(pass.buffers[i]), rank);
      ++rank;
    }
  }
  /// Those of `evictable`, the first saved first.
  std::shared_ptr<TestBuffer> next_to_evict(TestPass& pass) {
    for (auto& each : pass.buffers) {
      if (each != nullptr && std::exchange(each->evictable, false) &&
          each->state == BufferState::kResident) {
        return each;
      }
    }
    return nullptr;
  }
  void evicted(const TestBuffer& /*buffer*/, bool gone) { evictions += gone ? 1 : 0; }
  void flush() {}
  void entered(const TestBuffer& buffer) { counted += buffer.footprint; }
  void left(const TestBuffer& buffer) { counted -= buffer.footprint; }

  TestPass& begin_pass() {
    machine.copy_held();
    passes.push_back(std::make_unique<TestPass>());
    passes.back()->number = static_cast<int>(passes.size()) - 1;
    return *passes.back();
  }
  TestBuffer& save(TestPass& pass, std::int64_t bytes, bool offload, const ByteLimit& limit = {}) {
    auto buffer = std::make_shared<TestBuffer>();
    buffer->pass = &pass;
    buffer->item = static_cast<int>(pass.buffers.size());
    buffer->footprint = bytes;
    pass.buffers.push_back(buffer);
    machine.enter(*buffer);
    if (offload) machine.offload(*buffer, buffer);
    machine.saved(pass, pass.buffers.size() - 1, limit);
    return *buffer;
  }

 private:
  void fail() const {
    if (fails) throw std::runtime_error("planted");
  }
  /// As where an owner has moved its memory: the buffer is kept instead.
  bool stays(TestBuffer& buffer) {
    if (owner_moves) machine.keep(buffer);
    return !owner_moves;
  }
};

std::string text_of(const CommandLog& log) {
  std::string text;
  for (const LoggedCommand& each : log) {
    text += (text.empty() ? "" : ", ") + std::string(to_string(each.command));
    if (each.item >= 0) text += " " + std::to_string(each.pass) + "." + std::to_string(each.item);
  }
  return text;
}

TEST(StepMachine, ReleasesTheOldestWhereTheWindowIsFull) {
  TestPort port;
  port.machine.log_to(&port.log);
  port.machine.set_limits({.offload_window = 20, .prefetch_window = 20});
  TestPass& pass = port.begin_pass();
  for (int i = 0; i < 3; ++i) port.save(pass, 10, true);
  EXPECT_EQ(text_of(port.log), "copy out 0.0, copy out 0.1, copy out 0.2, release 0.0");
  EXPECT_EQ(port.machine.on_device(), 20);
  EXPECT_EQ(port.machine.peak(), 30);
}

TEST(StepMachine, UsesInPlaceWhatItHasNotReleased) {
  TestPort port;
  port.machine.set_limits({.offload_window = 20, .prefetch_window = 20});
  TestPass& pass = port.begin_pass();
  for (int i = 0; i < 3; ++i) port.save(pass, 10, true);
  port.machine.log_to(&port.log);
  port.machine.begin_backward(pass);
  port.machine.make_available(*pass.buffers[2]);
  port.machine.prefetch(pass, 0);
  port.machine.make_available(*pass.buffers[0]);
  EXPECT_EQ(text_of(port.log), "prefetch 0.0, flush, wait 0.0");
  EXPECT_TRUE(pass.buffers[2]->read);
  EXPECT_EQ(pass.buffers[2]->state, BufferState::kInPlace);
  EXPECT_EQ(pass.buffers[1]->state, BufferState::kInPlace);
}

TEST(StepMachine, DoesNotCopyWhatTheListHolds) {
  TestPort port;
  port.machine.log_to(&port.log);
  TestPass& pass = port.begin_pass();
  pass.list = {.pending = {2, 2, 2}, .reloads = {1}, .own_reloads = 3, .held = {1, 2}};
  pass.residency = &pass.list;
  for (int i = 0; i < 3; ++i) port.save(pass, 10, true);
  EXPECT_EQ(text_of(port.log), "copy out 0.0, release 0.0");
  EXPECT_EQ(pass.buffers[2]->state, BufferState::kHeld);
  (void)port.begin_pass();  // Another forward: the backward is not near.
  EXPECT_EQ(text_of(port.log), "copy out 0.0, release 0.0, copy out 0.1, copy out 0.2");
}

/// Whatever the sizes are.
TEST(StepMachine, FollowsTheListOfAPass) {
  for (const std::int64_t bytes : {10, 1'000'000}) {
    TestPort port;
    port.machine.log_to(&port.log);
    TestPass& pass = port.begin_pass();
    pass.list = {.pending = {1, 2, 1, 1}, .reloads = {0, 2, 3}, .own_reloads = 4, .held = {}};
    pass.residency = &pass.list;
    for (int i = 0; i < 4; ++i) port.save(pass, bytes, true);
    EXPECT_EQ(text_of(port.log),
              "copy out 0.0, copy out 0.1, copy out 0.2, release 0.0, release 0.1, copy out 0.3, "
              "release 0.2");
    port.log.clear();
    port.machine.begin_backward(pass);
    port.machine.prefetch(pass, 0);
    EXPECT_EQ(text_of(port.log), "");
    port.machine.prefetch(pass, 1);  // The first one in the order of reloads was not released.
    EXPECT_EQ(text_of(port.log), "prefetch 0.2, flush");
    port.log.clear();
    port.machine.prefetch(pass, 2);
    EXPECT_EQ(text_of(port.log), "prefetch 0.1, flush");
    port.log.clear();
    port.machine.prefetch(pass, 7);  // As the last one: a graph that is read twice.
    EXPECT_EQ(text_of(port.log), "");
  }
}

TEST(StepMachine, ReloadsForTheNextPassAsTheListSays) {
  TestPort port;
  TestPass& first = port.begin_pass();
  first.list = {.pending = {0, 0}, .reloads = {2, 3}, .own_reloads = 2, .held = {}};
  first.residency = &first.list;
  for (int i = 0; i < 2; ++i) port.save(first, 10, true);
  TestPass& second = port.begin_pass();
  second.list = {.pending = {0, 0}, .reloads = {2}, .own_reloads = 2, .held = {}};
  second.residency = &second.list;
  for (int i = 0; i < 2; ++i) port.save(second, 10, true);
  port.machine.log_to(&port.log);
  port.next = &second;
  port.machine.begin_backward(first);
  port.machine.prefetch(first, 0);
  EXPECT_EQ(text_of(port.log), "prefetch 0.1, prefetch 0.0, flush");
  EXPECT_EQ(port.machine.next_reload(), (std::pair<TestPass*, int>(&second, 0)));
  port.log.clear();
  port.machine.prefetch(first, 1);
  EXPECT_EQ(text_of(port.log), "prefetch 1.1, flush");
  EXPECT_EQ(port.machine.next_reload(), (std::pair<TestPass*, int>(&second, 1)));
}

TEST(StepMachine, KeepsToTheCapWhereSizesAreLargerThanProfiled) {
  TestPort port;
  port.machine.set_limits({.cap = 100});
  port.machine.log_to(&port.log);
  TestPass& pass = port.begin_pass();
  pass.list = {.pending = {4, 4, 4, 4}, .reloads = {4, 4}, .own_reloads = 4, .held = {}};
  pass.residency = &pass.list;
  port.save(pass, 30, false).evictable = true;
  port.save(pass, 30, false);
  port.save(pass, 30, true);
  EXPECT_EQ(text_of(port.log), "copy out 0.2");
  // More is released than listed; then what was to stay is offloaded.
  pass.reserve = 20;
  port.save(pass, 30, false);
  EXPECT_EQ(text_of(port.log), "copy out 0.2, release 0.2, copy out 0.0, release 0.0");
  EXPECT_EQ(port.evictions, 1);
  EXPECT_EQ(port.machine.on_device(), 60);
  // Reloads wait.
  port.log.clear();
  port.machine.begin_backward(pass);
  port.machine.prefetch(pass, 0);
  EXPECT_EQ(text_of(port.log), "");
  (void)port.machine.drop(*pass.buffers[3]);
  port.machine.prefetch(pass, 1);
  EXPECT_EQ(text_of(port.log), "prefetch 0.2, flush");
}

TEST(StepMachine, PrefersTheOriginalThatTheProgramStillHas) {
  TestPort port;
  TestPass& pass = port.begin_pass();
  TestBuffer& buffer = port.save(pass, 10, true);
  ASSERT_EQ(buffer.state, BufferState::kOffloaded);
  buffer.original = true;
  port.machine.log_to(&port.log);
  port.machine.begin_backward(pass);
  port.machine.make_available(buffer);
  EXPECT_EQ(text_of(port.log), "adopt 0.0");
  EXPECT_EQ(buffer.state, BufferState::kResident);
}

TEST(StepMachine, ForgetsABufferThatDiedWithAnException) {
  TestPort port;
  port.machine.set_limits({.offload_window = 25});
  TestPass& pass = port.begin_pass();
  port.save(pass, 10, true);
  port.save(pass, 10, true);
  pass.buffers[0].reset();  // Not dropped.
  for (int i = 0; i < 4; ++i) port.save(pass, 10, true);
  std::size_t in_window = 0;
  port.machine.for_each_in_window([&](const TestBuffer&) { return ++in_window > 0; });
  EXPECT_EQ(in_window, 2U);
  port.machine.saved(pass, 9, {.on_device = 0});
  EXPECT_EQ(port.machine.on_device(), 10);  // What was not dropped.
}

TEST(StepMachine, KeepsNoEntriesOfBuffersThatWereDropped) {
  TestPort port;
  port.machine.set_limits({.offload_window = 1'000});
  TestPass& old = port.begin_pass();
  port.save(old, 10, true);
  for (int step = 0; step < 100; ++step) {
    TestPass& pass = port.begin_pass();
    port.save(pass, 10, true);
    port.machine.begin_backward(pass);
    (void)port.machine.drop(*pass.buffers[0]);
    pass.buffers[0].reset();
  }
  EXPECT_EQ(port.machine.window().entries().size(), 1U);
}

TEST(StepMachine, LeavesABufferInPlaceWhoseReleaseFailed) {
  TestPort port;
  port.machine.set_limits({.offload_window = 15});
  TestPass& pass = port.begin_pass();
  TestBuffer& first = port.save(pass, 10, true);
  const auto second = [&] {
    pass.buffers.push_back(std::make_shared<TestBuffer>());
    TestBuffer& buffer = *pass.buffers.back();
    buffer.pass = &pass;
    buffer.item = 1;
    buffer.footprint = 10;
    port.machine.enter(buffer);
    port.machine.offload(buffer, pass.buffers.back());
  };
  port.fails = true;
  EXPECT_THROW(second(), std::runtime_error);  // Its own copy.
  EXPECT_EQ(pass.buffers.back()->state, BufferState::kResident);
  pass.buffers.pop_back();
  EXPECT_THROW(port.machine.saved(pass, 9, {.on_device = 0}), std::runtime_error);
  EXPECT_EQ(first.state, BufferState::kInPlace);
  port.fails = false;
  port.machine.begin_backward(pass);
  port.machine.make_available(first);
  EXPECT_TRUE(first.read);
}

/// Random events; after each of them the books must agree.
class RandomStep {
 public:
  explicit RandomStep(std::uint64_t seed) : random_(seed) {
    port_.machine.set_limits({.offload_window = below(60),
                              .prefetch_window = below(60),
                              .cap = random_() % 2 == 0 ? EngineLimits::kNone : below(300)});
  }

  void run() {
    for (int i = 0; i < 4; ++i) forward();
    std::shuffle(port_.passes.begin(), port_.passes.end(), random_);
    for (std::size_t i = 0; i < port_.passes.size(); ++i) {
      port_.next = i + 1 < port_.passes.size() ? port_.passes[i + 1].get() : nullptr;
      backward(*port_.passes[i]);
    }
    EXPECT_EQ(port_.machine.on_device(), 0);
    EXPECT_EQ(port_.counted, 0);
  }

 private:
  std::int64_t below(std::int64_t most) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most));
  }
  bool one_in(int count) { return below(count) == 0; }
  ByteLimit limit() { return one_in(2) ? ByteLimit{} : ByteLimit{below(200), below(60)}; }

  void forward() {
    TestPass& pass = port_.begin_pass();
    const auto saves = static_cast<int>(1 + below(12));
    if (one_in(2)) {
      pass.list.own_reloads = saves;
      int until = 0;
      for (int i = 0; i < saves; ++i) {
        pass.list.pending.push_back(static_cast<int>(below(6)));
        pass.list.reloads.push_back(until += static_cast<int>(below(4)));
        if (one_in(4)) pass.list.held.push_back(i);
      }
      pass.residency = &pass.list;
    }
    for (int i = 0; i < saves; ++i) {
      port_.has_room = !one_in(8);
      port_.owner_moves = one_in(16);
      pass.reserve += below(10);
      port_.fails = one_in(20);
      try {
        (void)port_.save(pass, 1 + below(20), !one_in(3), limit());
      } catch (const std::runtime_error&) {
        // A session drops what could not be saved.
        drop(pass, pass.buffers.size() - 1);
      }
      port_.fails = false;
      check();
      if (pass.buffers.back() == nullptr) continue;
      TestBuffer& buffer = *pass.buffers.back();
      buffer.original = one_in(6);
      if (buffer.state == BufferState::kResident) {
        if (one_in(3)) {
          port_.machine.discard(buffer);
        } else {
          buffer.evictable = one_in(2);
        }
      }
      check();
      if (one_in(10)) drop(pass, static_cast<std::size_t>(below(static_cast<std::int64_t>(i) + 1)));
    }
    port_.has_room = true;
    port_.owner_moves = false;
  }

  void backward(TestPass& pass) {
    port_.machine.begin_backward(pass);
    check();
    for (std::size_t i = pass.buffers.size(); i-- > 0;) {
      port_.has_memory = !one_in(8);
      if (pass.buffers[i] != nullptr) read(*pass.buffers[i]);
      port_.machine.prefetch(pass, pass.buffers.size() - 1 - i, limit());
      check();
      if (!one_in(4)) drop(pass, i);
    }
    for (std::size_t i = 0; i < pass.buffers.size(); ++i) drop(pass, i);
  }

  void read(TestBuffer& buffer) {
    if (buffer.state == BufferState::kDiscarded) {
      if (!port_.machine.try_adopt(buffer)) port_.machine.recomputed(buffer);
    } else {
      port_.fails = one_in(20);
      try {
        port_.machine.make_available(buffer);
      } catch (const std::runtime_error&) {
        check();
      }
      port_.fails = false;
      port_.machine.make_available(buffer);
    }
    EXPECT_TRUE(is_on_device(buffer.state)) << to_string(buffer.state);
    EXPECT_NE(buffer.state, BufferState::kReloading);
  }

  void drop(TestPass& pass, std::size_t item) {
    if (pass.buffers[item] == nullptr) return;
    (void)port_.machine.drop(*pass.buffers[item]);
    pass.buffers[item].reset();
    check();
  }

  void check() const {
    std::int64_t bytes = 0;
    std::size_t in_window = 0;
    for (const auto& pass : port_.passes) {
      for (const auto& buffer : pass->buffers) {
        if (buffer == nullptr) continue;
        if (is_on_device(buffer->state)) bytes += buffer->footprint;
        if (is_in_window(buffer->state)) ++in_window;
      }
    }
    EXPECT_EQ(port_.machine.on_device(), bytes);
    EXPECT_EQ(port_.counted, bytes);
    std::size_t seen = 0;
    port_.machine.for_each_in_window([&](const TestBuffer& each) {
      EXPECT_TRUE(is_in_window(each.state));
      ++seen;
      return true;
    });
    EXPECT_EQ(seen, in_window);
  }

  std::mt19937_64 random_;
  TestPort port_;
};

TEST(StepMachine, KeepsItsBooksWhateverComes) {
  const int cases = testing::cases_of(20'000, 20);
  for (int i = 0; i < cases && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("seed " + std::to_string(i));
    RandomStep(static_cast<std::uint64_t>(i)).run();
  }
}

}  // namespace
}  // namespace spillway
