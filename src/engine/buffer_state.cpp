#include "engine/buffer_state.hpp"

#include <initializer_list>
#include <string>
#include <utility>

#include "spillway/core/error.hpp"

namespace spillway {
namespace {

using S = BufferState;
using E = BufferEvent;

struct Row {
  S from;
  std::initializer_list<std::pair<E, S>> to;
};

// kKeep and kFree are possible in every state but the last one, so they stand in no row.
constexpr Row kRows[] = {
    {S::kResident,
     {{E::kHold, S::kHeld},
      {E::kCopyOut, S::kCopying},
      {E::kDiscard, S::kDiscarded},
      {E::kSplit, S::kInParts},
      {E::kUse, S::kResident}}},
    {S::kHeld, {{E::kCopyOut, S::kCopying}, {E::kTake, S::kResident}, {E::kUse, S::kHeld}}},
    {S::kCopying, {{E::kRelease, S::kOffloaded}, {E::kTake, S::kInPlace}, {E::kUse, S::kCopying}}},
    {S::kInPlace, {{E::kUse, S::kInPlace}}},
    {S::kOffloaded, {{E::kReload, S::kReloading}, {E::kAdopt, S::kResident}}},
    {S::kReloading, {{E::kWait, S::kReloaded}}},
    {S::kReloaded, {{E::kWait, S::kReloaded}}},
    {S::kDiscarded, {{E::kRecompute, S::kResident}, {E::kAdopt, S::kResident}}},
    {S::kInParts, {{E::kGather, S::kGathering}}},
    {S::kGathering, {{E::kGathered, S::kResident}}},
};

constexpr internal::TransitionTable make_table() {
  internal::TransitionTable table{};
  for (auto& row : table) row.fill(internal::kImpossible);
  for (const Row& row : kRows) {
    auto& events = table[static_cast<std::size_t>(row.from)];
    for (const auto& [event, to] : row.to) {
      events[static_cast<std::size_t>(event)] = static_cast<std::uint8_t>(to);
    }
    events[static_cast<std::size_t>(E::kKeep)] = static_cast<std::uint8_t>(S::kResident);
    events[static_cast<std::size_t>(E::kFree)] = static_cast<std::uint8_t>(S::kFreed);
  }
  return table;
}

}  // namespace

constexpr internal::TransitionTable internal::kTransitions = make_table();

std::string_view to_string(BufferState state) noexcept {
  switch (state) {
    case S::kResident:
      return "resident";
    case S::kHeld:
      return "held";
    case S::kCopying:
      return "copying";
    case S::kInPlace:
      return "in place";
    case S::kOffloaded:
      return "offloaded";
    case S::kReloading:
      return "reloading";
    case S::kReloaded:
      return "reloaded";
    case S::kDiscarded:
      return "discarded";
    case S::kInParts:
      return "in parts";
    case S::kGathering:
      return "gathering";
    case S::kFreed:
      return "freed";
  }
  return "unknown";
}

std::string_view to_string(BufferEvent event) noexcept {
  switch (event) {
    case E::kHold:
      return "hold";
    case E::kCopyOut:
      return "copy out";
    case E::kTake:
      return "take";
    case E::kRelease:
      return "release";
    case E::kUse:
      return "use";
    case E::kReload:
      return "reload";
    case E::kWait:
      return "wait";
    case E::kAdopt:
      return "adopt";
    case E::kDiscard:
      return "discard";
    case E::kRecompute:
      return "recompute";
    case E::kSplit:
      return "split";
    case E::kGather:
      return "gather";
    case E::kGathered:
      return "gathered";
    case E::kKeep:
      return "keep";
    case E::kFree:
      return "free";
  }
  return "unknown";
}

std::optional<BufferState> transition(BufferState state, BufferEvent event) noexcept {
  const std::uint8_t next =
      internal::kTransitions[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
  if (next == internal::kImpossible) return std::nullopt;
  return static_cast<BufferState>(next);
}

std::string state_diagram() {
  const auto name = [](S state) {
    std::string text(to_string(state));
    for (char& each : text) {
      if (each == ' ') each = '_';
    }
    return text;
  };
  std::string text = "stateDiagram-v2\n    [*] --> resident\n";
  for (const Row& row : kRows) {
    for (const auto& [event, to] : row.to) {
      if (to == row.from) continue;
      text += "    " + name(row.from) + " --> " + name(to) + ": " + std::string(to_string(event)) +
              "\n";
    }
  }
  return text;
}

void throw_impossible(BufferState state, BufferEvent event) {
  std::string possible;
  for (std::size_t i = 0; i < kBufferStates; ++i) {
    const auto from = static_cast<BufferState>(i);
    if (transition(from, event)) {
      possible += (possible.empty() ? "" : ", ") + std::string(to_string(from));
    }
  }
  throw InvalidArgument("engine", "a buffer that is " + std::string(to_string(state)) + " cannot " +
                                      std::string(to_string(event)) + "; only one that is " +
                                      possible + " can");
}

}  // namespace spillway
