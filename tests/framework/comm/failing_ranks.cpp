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
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/ops/ones.h>
#include <unistd.h>

#include "spillway/comm/world.hpp"

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

void work(const std::string& fault, bool fails, const spillway::Group& group) {
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
