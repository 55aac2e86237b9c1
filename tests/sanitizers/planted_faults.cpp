// Faults for AddressSanitizer and UndefinedBehaviorSanitizer to find, by name: a function of ours
// reads one byte too many (overrun), a sum of times is too large (overflow).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "spillway/core/clock.hpp"
#include "util/digest.hpp"

namespace spillway {
namespace {

std::uint64_t overrun(std::size_t more) {
  const std::vector<std::byte> bytes(64);
  Digest digest;
  digest.add(std::span(bytes.data(), bytes.size() + more));
  return digest.value();
}

std::uint64_t overflow(std::size_t more) {
  return static_cast<std::uint64_t>(
      (Nanoseconds::max() + Nanoseconds(static_cast<std::int64_t>(more))).count());
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  // One, not known to the compiler.
  const auto more = static_cast<std::size_t>(argc - 1);
  const bool over = argc == 2 && std::string_view(argv[1]) == "overflow";
  const std::uint64_t value = over ? spillway::overflow(more) : spillway::overrun(more);
  std::printf("no fault was found; %llx\n", static_cast<unsigned long long>(value));
  return 0;
}
