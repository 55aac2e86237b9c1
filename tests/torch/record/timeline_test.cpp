// The timeline of a recording step: the order of events, and untracked bytes.
#include "plan/profile/timeline.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "spillway/core/error.hpp"
#include "spillway/models/llama.hpp"
#include "spillway/torch/host_memory.hpp"
#include "spillway/torch/scope.hpp"
#include "spillway/torch/untimed_wait.hpp"
#include "torch/support/timeline_queries.hpp"
#include "torch/support/training.hpp"

namespace spillway {
namespace {

using namespace spillway::literals;
using testing::offload_everything;
using testing::TinyModel;

/// A small Llama and the profile of its first step; later steps keep everything.
class LlamaRun {
 public:
  explicit LlamaRun(SessionOptions options) : session_(std::move(options)) {
    at::set_num_threads(1);
    session_.register_model(model_);
  }

  /// The peak of the step beyond what was allocated before it.
  std::int64_t step() {
    for (at::Tensor parameter : model_.parameters()) parameter.mutable_grad() = at::Tensor();
    const at::Tensor tokens = (at::arange(32, at::kLong) * 3 % 50).view({1, 32});
    const at::Tensor targets = (tokens + 1) % 50;
    const auto before = static_cast<std::int64_t>(host_memory().count());
    {
      const auto step = session_.step();
      model_.loss(tokens, targets).backward();
    }
    return static_cast<std::int64_t>(session_.report().device_peak.count()) - before;
  }

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const ChunkProfile& chunk() const { return session_.profile()->chunks.at(0); }

 private:
  Llama model_{{.layers = 3,
                .hidden = 64,
                .heads = 4,
                .kv_heads = 2,
                .ffn = 96,
                .tokens = 32,
                .vocabulary = 50,
                .dtype = at::kFloat}};
  Session session_;
};

SessionOptions keep_everything() {
  SessionOptions options = offload_everything();
  options.rules = {};
  return options;
}

std::vector<int> indices(const ChunkProfile& chunk, MomentKind kind) {
  std::vector<int> found;
  for (const Moment& moment : chunk.timeline) {
    if (moment.kind == kind) found.push_back(moment.index);
  }
  return found;
}

std::vector<int> counted(std::size_t count) {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < count; ++i) numbers.push_back(static_cast<int>(i));
  return numbers;
}

TEST(Timeline, HasEveryCallSaveUnpackAndDropInOrder) {
  LlamaRun run(offload_everything());
  run.step();
  const ChunkProfile& chunk = run.chunk();
  std::vector<int> running;
  std::set<int> ended;
  for (const Moment& moment : chunk.timeline) {
    EXPECT_GE(moment.compute_ns, 0);
    if (moment.kind == MomentKind::kCallBegins) running.push_back(moment.index);
    if (moment.kind != MomentKind::kCallEnds) continue;
    ASSERT_FALSE(running.empty());
    EXPECT_EQ(running.back(), moment.index);
    running.pop_back();
    EXPECT_TRUE(ended.insert(moment.index).second);
  }
  EXPECT_TRUE(running.empty());
  EXPECT_EQ(indices(chunk, MomentKind::kCallBegins), counted(chunk.operators.size()));
  EXPECT_EQ(ended.size(), chunk.operators.size());
  EXPECT_EQ(indices(chunk, MomentKind::kSave), counted(chunk.sites.size()));
  EXPECT_EQ(indices(chunk, MomentKind::kUnpack), counted(chunk.unpack_order.size()));
  EXPECT_EQ(indices(chunk, MomentKind::kBackwardBegins).size(), 1U);
  EXPECT_EQ(chunk.timeline.back().kind, MomentKind::kEnd);
  EXPECT_GT(chunk.forward_ns, 0);
  EXPECT_GT(chunk.backward_ns, 0);
  for (const BufferProfile& buffer : chunk.buffers) {
    const int dropped = testing::moment_of(chunk, MomentKind::kDrop, buffer.id);
    EXPECT_EQ(dropped >= 0, is_step_memory(buffer.fixed)) << buffer.id;
    if (buffer.last_unpack >= 0) {
      EXPECT_GT(dropped, testing::moment_of(chunk, MomentKind::kUnpack, buffer.last_unpack))
          << buffer.id;
    }
  }
  EXPECT_EQ(profile_from_json(to_json(*run.session().profile()), "p.json"),
            *run.session().profile());
}

TEST(Timeline, HasThePeakOfAStepThatKeepsEverythingToTheByte) {
  LlamaRun run(keep_everything());
  run.step();
  const std::int64_t predicted = testing::kept_peak(*run.session().profile());
  EXPECT_GT(predicted, 100 << 10);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run.step(), predicted);
  EXPECT_EQ(run.session().profile()->granularity, 0_B);
  EXPECT_GT(run.session().profile()->fixed, 0_B);
}

TEST(Timeline, HasTheSameBytesWhateverWasOffloadedMeanwhile) {
  std::vector<std::vector<std::int64_t>> bytes;
  std::vector<std::vector<int>> last_forward_use;
  for (const auto& [offload_window, ahead] :
       {std::pair(0_B, 0_B), std::pair(16_KiB, 1_MiB), std::pair(1_GiB, 64_KiB)}) {
    SessionOptions options = keep_everything();
    options.offload_window = offload_window;
    options.prefetch_window = ahead;
    LlamaRun run(std::move(options));
    run.step();
    bytes.emplace_back();
    for (const Moment& moment : run.chunk().timeline)
      bytes.back().push_back(moment.untracked_bytes);
    last_forward_use.emplace_back();
    for (const BufferProfile& buffer : run.chunk().buffers)
      last_forward_use.back().push_back(buffer.last_forward_use);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[0], bytes[2]);
  EXPECT_EQ(last_forward_use[0], last_forward_use[1]);
  EXPECT_EQ(last_forward_use[0], last_forward_use[2]);
}

/// One recorded step of `forward`, whose result is summed up and backpropagated.
template <typename Forward>
Profile recorded(Forward&& forward) {
  Session session(offload_everything());
  const at::Tensor weight = at::randn({64, 64}).set_requires_grad(true);
  session.register_fixed(weight, FixedReason::kParameter);
  {
    const auto step = session.step();
    forward(weight).sum().backward();
  }
  return *session.profile();
}

/// The buffer that the first call of `name` made.
const BufferProfile& made_by(const ChunkProfile& chunk, const std::string& name) {
  const auto found =
      std::find_if(chunk.buffers.begin(), chunk.buffers.end(),
                   [&](const BufferProfile& buffer) { return buffer.producer.name == name; });
  EXPECT_NE(found, chunk.buffers.end()) << name;
  return *found;
}

int end_of(const ChunkProfile& chunk, const std::string& name) {
  for (std::size_t i = 0; i < chunk.operators.size(); ++i) {
    if (chunk.operators[i].name == name) {
      return testing::moment_of(chunk, MomentKind::kCallEnds, static_cast<int>(i));
    }
  }
  return -1;
}

int begin_of(const ChunkProfile& chunk, const std::string& name) {
  for (std::size_t i = 0; i < chunk.operators.size(); ++i) {
    if (chunk.operators[i].name == name) {
      return testing::moment_of(chunk, MomentKind::kCallBegins, static_cast<int>(i));
    }
  }
  return -1;
}

TEST(Timeline, HasTheLastForwardUseOfABuffer) {
  const Profile profile = recorded([](const at::Tensor& weight) {
    at::Tensor x = at::mm(at::ones({64, 64}), weight);
    at::Tensor y = at::tanh(at::exp(x));  // Only tanh holds the result of exp, briefly.
    at::Tensor z = at::sin(y);
    const at::Tensor sum = y + z;  // The last use of y.
    y.reset();
    return at::cos(sum);
  });
  const ChunkProfile& chunk = profile.chunks[0];
  EXPECT_EQ(made_by(chunk, "aten::exp").last_forward_use, begin_of(chunk, "aten::sin"));
  EXPECT_EQ(made_by(chunk, "aten::tanh").last_forward_use, begin_of(chunk, "aten::cos"));
  // Freed when the function returns; the next moment is the sum.
  EXPECT_EQ(made_by(chunk, "aten::add").last_forward_use, begin_of(chunk, "aten::sum"));
  EXPECT_LT(end_of(chunk, "aten::add"), made_by(chunk, "aten::tanh").last_forward_use);
}

TEST(Timeline, MarksACallerOwnedBuffer) {
  at::Tensor held;
  const Profile profile = recorded([&](const at::Tensor& weight) {
    held = at::tanh(at::mm(at::ones({64, 64}), weight));
    return at::cos(at::exp(held));
  });
  const BufferProfile& buffer = made_by(profile.chunks[0], "aten::tanh");
  EXPECT_EQ(buffer.last_forward_use, -1);
  EXPECT_EQ(buffer.fixed, FixedReason::kCallerOwned);
  EXPECT_GE(made_by(profile.chunks[0], "aten::exp").last_forward_use, 0);
}

TEST(Timeline, SeparatesAlternatingPasses) {
  Session session(offload_everything());
  TinyModel model({.dropout = 0});
  session.register_model(model);
  {
    auto step = session.step();
    (void)testing::gpipe_step(model, &step, 0, 3);
  }
  const ChunkProfile& together = session.profile()->chunks.at(0);
  Session alone(offload_everything());
  TinyModel same({.dropout = 0});
  alone.register_model(same);
  {
    const auto step = alone.step();
    same.loss(same.tokens(1, 32, 0)).backward();
  }
  const ChunkProfile& single = alone.profile()->chunks.at(0);
  const auto beside_calls = [](const ChunkProfile& chunk) {
    std::vector<std::pair<MomentKind, int>> found;
    for (const Moment& moment : chunk.timeline) {
      // The first gradient is allocated before backward begins, in the forward that ran last.
      if (moment.kind != MomentKind::kCallBegins && moment.kind != MomentKind::kCallEnds) {
        found.emplace_back(moment.kind, moment.index);
      }
    }
    return found;
  };
  EXPECT_EQ(beside_calls(together), beside_calls(single));
  EXPECT_EQ(indices(together, MomentKind::kCallEnds).size(), together.operators.size());
}

TEST(Timeline, ExcludesWhatACallerComputesAfterBackward) {
  Session session(offload_everything());
  TinyModel model({});
  session.register_model(model);
  std::size_t calls = 0;
  for (const bool more : {false, true}) {
    session.record_next_step();
    auto step = session.step();
    step.pass(0, 0);
    model.loss(model.tokens(1, 32, 0)).backward();
    if (more) (void)at::exp(at::ones({64, 64}));
    step.end();
    const ChunkProfile& chunk = session.profile()->chunks.at(0);
    EXPECT_EQ(profile_from_json(to_json(*session.profile()), "p.json"), *session.profile());
    if (more) {
      EXPECT_EQ(chunk.operators.size(), calls);
    }
    calls = chunk.operators.size();
    EXPECT_FALSE(chunk.timeline.empty());
  }
}

TEST(Timeline, CountsOnlyTheLastDropOfABuffer) {
  ChunkProfile chunk;
  chunk.buffers.resize(1);
  chunk.buffers[0].last_forward_use = 3;
  const Moment kDrop{MomentKind::kDrop, 0, 7, 100};
  add_timeline({{MomentKind::kBackwardBegins, -1, 1, 10},
                kDrop,
                {MomentKind::kUnpack, 0, 2, 20},
                kDrop,
                {MomentKind::kEnd, -1, 3, 30}},
               Bytes(0), chunk);
  EXPECT_EQ(chunk.timeline, (std::vector<Moment>{{MomentKind::kBackwardBegins, -1, 1, 10},
                                                 {MomentKind::kUnpack, 0, 9, 100},
                                                 kDrop,
                                                 {MomentKind::kEnd, -1, 3, 30}}));
  EXPECT_EQ(chunk.buffers[0].last_forward_use, 2);
  EXPECT_EQ(chunk.forward_ns, 1);
  EXPECT_EQ(chunk.backward_ns, 19);
}

TEST(HostMemory, CountsBytesOfTensorsAndTheirPeak) {
  const at::Tensor before = at::ones({1000}, at::kByte);
  count_host_memory();
  const Bytes start = host_memory();
  (void)start_host_memory_peak();
  {
    const at::Tensor a = at::ones({1000}, at::kByte);
    EXPECT_EQ(host_memory() - start, 1000_B);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64, 0U);
    { const at::Tensor b = at::ones({500}, at::kByte); }
    const at::Tensor empty = at::ones({0}, at::kByte);
    EXPECT_EQ(host_memory() - start, 1000_B);
    at::Tensor grown = at::ones({10}, at::kByte);
    grown.resize_({300});
    EXPECT_EQ(host_memory() - start, 1300_B);
  }
  EXPECT_EQ(host_memory(), start);
  EXPECT_EQ(host_memory_peak() - start, 1500_B);
  EXPECT_EQ(start_host_memory_peak() - start, 1500_B);
  EXPECT_EQ(host_memory_peak(), start);
}

TEST(HostMemory, DoesNotCountTheReleaseOfEarlierAllocations) {
  // The first test of the program starts the counting; memory that torch did not allocate is never
  // counted.
  std::vector<float> mine(100);
  const Bytes start = host_memory();
  {
    const at::Tensor borrowed = at::from_blob(mine.data(), {100});
    EXPECT_EQ(host_memory(), start);
  }
  EXPECT_EQ(host_memory(), start);
}

TEST(Timeline, ExcludesUntimedWaits) {
  using Clock = std::chrono::steady_clock;
  SessionOptions options = offload_everything();
  Session session(std::move(options));
  TinyModel model({});
  session.register_model(model);
  bool waited = false;
  untimed_wait([&] { waited = true; });  // Outside of steps it just runs.
  EXPECT_TRUE(waited);
  const auto begin = Clock::now();
  Clock::duration wait{};
  {
    const auto step = session.step();
    const at::Tensor loss = model.loss(model.tokens(1, 32, 0));
    const auto from = Clock::now();
    untimed_wait([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });
    wait = Clock::now() - from;
    loss.backward();
  }
  const auto rest = std::chrono::duration_cast<Nanoseconds>(Clock::now() - begin - wait);
  std::int64_t computing = 0;
  for (const Moment& moment : session.profile()->chunks.at(0).timeline) {
    computing += moment.compute_ns;
  }
  EXPECT_GT(computing, 0);
  // However slow the machine is: compute time does not include the wait.
  EXPECT_LE(computing, rest.count());
  EXPECT_THROW(untimed_wait([] { throw InvalidArgument("wait", "nobody came"); }), InvalidArgument);
}

}  // namespace
}  // namespace spillway
