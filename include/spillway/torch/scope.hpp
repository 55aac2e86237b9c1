/// Names a region of a model, so that rules and reports can refer to "layers.3.attention".
///
/// A scope adds its name to those around it on this thread: Scope("mlp") within Scope("layers.3")
/// is "layers.3.mlp". Where no session records on this thread it costs one read of a thread-local.
/// Threads: a scope belongs to the thread that made it, and ends with the step at the latest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

/// Tells where a thread is in a program of another language, such as within which Python modules,
/// so that their calls need not enter and leave scopes. A session has one
/// (SessionOptions::scope_source) and asks it only in recording and traced steps.
class ScopeSource {
 public:
  struct Position {
    const void* call = nullptr;  // Identifies a running call while it runs; null: there is none.
    std::string scope;           // Its whole scope.

    bool operator==(const Position&) const = default;
  };

  virtual ~ScopeSource() = default;
  /// The innermost call that has a scope, on the thread that asks: the one that runs the step.
  /// Called for each operator and each saved tensor. The session is not locked, so it may wait for
  /// an interpreter, and whatever that runs may use the session.
  [[nodiscard]] virtual Position position() noexcept = 0;
};

class Scope {
 public:
  explicit Scope(std::string_view name) : region_(enter(name)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { leave(region_); }

  /// The current scope of this thread; empty outside of all scopes and while no session records.
  /// Asks the session's ScopeSource: a Scope that was made within the innermost call counts, with
  /// that call's scope before its name; one that was made outside of it does not.
  [[nodiscard]] static std::string current();

  /// Whether a session on this thread needs scopes now.
  [[nodiscard]] static bool wanted();

  /// For callers that cannot nest objects. Returns what leave() takes; 0, and does nothing, while
  /// no session records.
  [[nodiscard]] static std::uint64_t enter(std::string_view name);
  /// In any order. Does nothing for 0, and for a scope whose step has ended.
  static void leave(std::uint64_t region) noexcept;

 private:
  std::uint64_t region_;
};

}  // namespace spillway
