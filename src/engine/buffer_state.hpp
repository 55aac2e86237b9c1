/// The life of a saved buffer, as one state and the transitions between states.
///
/// Both ports of the engine, a session and a simulated step, change the state of a buffer that has
/// entered by next_state() alone, so what one of them can do the other can. docs/architecture.md
/// has the diagram.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// Where the bytes of a saved buffer are, and what is under way.
enum class BufferState : std::uint8_t {
  kResident,   ///< On the device. Nothing is under way.
  kHeld,       ///< On the device, in the offload window, not copied: its backward is expected soon.
  kCopying,    ///< On the device, in the offload window; its copy out is queued.
  kInPlace,    ///< As kCopying, but taken from the window: backward will read it where it is.
  kOffloaded,  ///< In its tier only.
  kReloading,  ///< On the device; its copy back is queued.
  kReloaded,   ///< The same, and a stream waits or has waited for the copy.
  kDiscarded,  ///< Nowhere: replays recompute it.
  kInParts,    ///< Each rank of the shard group has its part.
  kGathering,  ///< On the device; its all-gather has begun.
  kFreed,      ///< Autograd has dropped it.
};
inline constexpr std::size_t kBufferStates = 11;

enum class BufferEvent : std::uint8_t {
  kHold,       ///< It is to be offloaded, but its backward is expected before its release.
  kCopyOut,    ///< Its copy out is queued.
  kTake,       ///< Its backward is near: it leaves the window and stays.
  kRelease,    ///< Its memory is released after the copy out.
  kUse,        ///< Backward reads it.
  kReload,     ///< Its copy back is queued.
  kWait,       ///< A stream waits for its copy back.
  kAdopt,      ///< The program still has the original: that is used.
  kDiscard,    ///< Its memory is released, to be recomputed.
  kRecompute,  ///< A replay has recomputed it.
  kSplit,      ///< All ranks have saved it, and each keeps its part.
  kGather,     ///< Its all-gather begins.
  kGathered,   ///< Its all-gather is over.
  kKeep,       ///< Whatever was done about it is undone: the original stays on the device.
  kFree,       ///< Autograd drops it.
};
inline constexpr std::size_t kBufferEvents = 15;

[[nodiscard]] std::string_view to_string(BufferState state) noexcept;
[[nodiscard]] std::string_view to_string(BufferEvent event) noexcept;

/// The table: where an event leads from a state. Empty: it cannot happen there.
[[nodiscard]] std::optional<BufferState> transition(BufferState state, BufferEvent event) noexcept;

/// Errors: InvalidArgument that names the state, the event, and the states where it can happen.
[[noreturn]] void throw_impossible(BufferState state, BufferEvent event);

/// The table as a Mermaid state diagram, for the documentation. "keep" and "free" are possible in
/// every state and are left out.
[[nodiscard]] std::string state_diagram();

namespace internal {
inline constexpr std::uint8_t kImpossible = 0xFF;
using TransitionTable = std::array<std::array<std::uint8_t, kBufferEvents>, kBufferStates>;
extern const TransitionTable kTransitions;
}  // namespace internal

/// The state after the event.
/// Errors: as throw_impossible().
[[nodiscard]] inline BufferState next_state(BufferState state, BufferEvent event) {
  const std::uint8_t next =
      internal::kTransitions[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
  if (next == internal::kImpossible) [[unlikely]]
    throw_impossible(state, event);
  return static_cast<BufferState>(next);
}

/// Whether its bytes take memory of the device.
[[nodiscard]] constexpr bool is_on_device(BufferState state) noexcept {
  switch (state) {
    case BufferState::kResident:
    case BufferState::kHeld:
    case BufferState::kCopying:
    case BufferState::kInPlace:
    case BufferState::kReloading:
    case BufferState::kReloaded:
    case BufferState::kGathering:
      return true;
    case BufferState::kOffloaded:
    case BufferState::kDiscarded:
    case BufferState::kInParts:
    case BufferState::kFreed:
      return false;
  }
  return false;
}

/// Whether it may still be released, oldest first.
[[nodiscard]] constexpr bool is_in_window(BufferState state) noexcept {
  return state == BufferState::kHeld || state == BufferState::kCopying;
}

/// Whether the original is on the device and its copy out may not be over yet.
[[nodiscard]] constexpr bool is_copied_in_place(BufferState state) noexcept {
  return state == BufferState::kCopying || state == BufferState::kInPlace;
}

}  // namespace spillway
