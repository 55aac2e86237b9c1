/// The commands that the engine gave its port, in order: what tests compare between a session and
/// the simulated step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace spillway {

enum class Command : std::uint8_t {
  kCopyOut,
  kRelease,
  kReload,
  kPrefetch,
  kWait,
  kAdopt,
  kReplay,
  kRecompute,
  kSplit,
  kCopyPartOut,
  kReleasePart,
  kGather,
  kEndGather,
  kFlush,
};

[[nodiscard]] constexpr std::string_view to_string(Command command) noexcept {
  switch (command) {
    case Command::kCopyOut:
      return "copy out";
    case Command::kRelease:
      return "release";
    case Command::kReload:
      return "reload";
    case Command::kPrefetch:
      return "prefetch";
    case Command::kWait:
      return "wait";
    case Command::kAdopt:
      return "adopt";
    case Command::kReplay:
      return "replay";
    case Command::kRecompute:
      return "recompute";
    case Command::kSplit:
      return "split";
    case Command::kCopyPartOut:
      return "copy part out";
    case Command::kReleasePart:
      return "release part";
    case Command::kGather:
      return "all-gather";
    case Command::kEndGather:
      return "end all-gather";
    case Command::kFlush:
      return "flush";
  }
  return "unknown";
}

struct LoggedCommand {
  Command command{};
  int pass = -1;  ///< In the order of forwards; -1: of no pass.
  int item = -1;  ///< The buffer's number in its pass; -1: unknown.

  friend bool operator==(const LoggedCommand&, const LoggedCommand&) = default;
};

using CommandLog = std::vector<LoggedCommand>;

}  // namespace spillway
