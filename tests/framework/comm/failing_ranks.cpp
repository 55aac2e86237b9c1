// A job in which something goes wrong on one rank; faults_test.py starts it and looks how it ends.
//
// usage: failing_ranks <fault> <rank> [seconds of silence] [seconds of timeout]
//   none     nothing goes wrong
//   wait     ranks sum for ever; the test stops or kills one of them
//   hang     the rank computes for ever instead of taking part
//   throw    the rank throws in run_guarded()
//   unwind   the rank throws outside of it
//   leave    the rank ends as if all were well
//   exit     the rank calls exit() without a word
//   receive  the rank never sends what the next one waits for
//   gather   the rank has no memory for an all-gather of a session that shards, and throws
//   skip     the same, and it goes on with the next step
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <unistd.h>

#include "spillway/comm/world.hpp"
#include "spillway/groups/shard_group.hpp"
#include "spillway/plan/shard.hpp"
#include "torch/support/failing_allocator.hpp"
#include "torch/support/training.hpp"

namespace {

[[noreturn]] void compute_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void sum(const spillway::Group& group) {
  at::Tensor tensor = at::ones({5000});
  group.all_reduce(tensor);
}

/// With pauses: what the ranks do until one of them fails is not what is tested.
[[noreturn]] void sum_for_ever(const spillway::Group& group) {
  while (true) {
    sum(group);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void fail(const std::string& fault, const spillway::Group& group) {
  if (fault == "hang") compute_for_ever();
  if (fault == "throw") throw std::runtime_error("the data file is damaged");
  if (fault == "exit") std::exit(3);
  if (fault == "receive") {
    group.barrier();
    compute_for_ever();
  }
}

/// Trains with a session that shards; from step 4 on the rank that fails has no memory to gather.
void shard(const std::string& fault, bool fails, const spillway::Group& group) {
  spillway::testing::FailingAllocator memory;
  at::manual_seed(3);
  const at::Tensor weight = at::rand({77, 83}).set_requires_grad(true);
  spillway::Session session(
      spillway::testing::with_rules("[[rule]]\naction = 'keep'\nshard = true\n"));
  session.register_fixed(weight, spillway::FixedReason::kParameter);
  session.set_shard_group(spillway::shard_group(group));
  // Parts are padded, so that no other tensor has as many bytes as all parts of one.
  const std::uint64_t whole =
      spillway::part_of(weight.nbytes(), group.size()) * static_cast<std::uint64_t>(group.size());
  for (int i = 0;; ++i) {
    const spillway::Step step = session.step();
    at::Tensor x = weight;
    for (int layer = 0; layer < 6; ++layer) x = (x * 1.5).sin();
    if (i == 4) {
      if (group.rank() == 0) std::printf("sharded %d\n", session.report().shard->buffers > 0);
      std::fflush(stdout);
      if (fails) memory.fail(whole);
    }
    try {
      x.sum().backward();
    } catch (const c10::OutOfMemoryError& error) {
      if (fault != "skip") throw;
      std::printf("skipped: %s\n", error.what_without_backtrace());
      std::fflush(stdout);
    }
    memory.fail(0);
    weight.mutable_grad() = at::Tensor();
  }
}

void work(const std::string& fault, bool fails, const spillway::Group& group) {
  if (fault == "gather" || fault == "skip") shard(fault, fails, group);
  for (int i = 0; i < 20; ++i) sum(group);
  if (fails) fail(fault, group);
  if (fault == "receive") {
    group.barrier();
    at::Tensor tensor = at::ones({5});
    group.receive(tensor, (group.rank() + group.size() - 1) % group.size(), 4).wait();
  }
  if (fault != "none") sum_for_ever(group);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string fault = argv[1];
  spillway::WorldOptions options;
  const auto seconds = [&](int index, double otherwise) {
    return std::chrono::milliseconds(
        static_cast<int>(1e3 * (argc > index ? std::atof(argv[index]) : otherwise)));
  };
  options.silence = seconds(3, 60);
  options.timeout = seconds(4, 300);
  try {
    const auto world = spillway::detect_world(options);
    const bool fails = world->rank() == std::atoi(argv[2]);
    std::printf("rank %d is process %d\n", world->rank(), static_cast<int>(::getpid()));
    std::fflush(stdout);
    const spillway::Group group = world->everyone();
    if (fails && fault == "leave") return 0;
    if (fails && fault == "unwind") throw std::runtime_error("out of paper");
    run_guarded(*world, [&] { work(fault, fails, group); });
    if (world->rank() == 0) std::printf("all is well\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught in main: %s\n", error.what());
    return 1;
  }
}
