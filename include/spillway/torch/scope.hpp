/// Names a region of a model, so that rules and reports can refer to "layers.3.attention".
///
/// A scope adds its name to those around it on this thread: Scope("mlp") within Scope("layers.3")
/// is "layers.3.mlp". Where no session records on this thread it costs one read of a thread-local.
/// Threads: a scope belongs to the thread that made it.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

class Scope {
 public:
  explicit Scope(std::string_view name) : entered_(wanted()) {
    if (entered_) enter(name);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    if (entered_) leave();
  }

  /// The current scope of this thread; empty outside of all scopes and while no session records.
  [[nodiscard]] static const std::string& current();

  /// Whether a session on this thread needs scopes now.
  [[nodiscard]] static bool wanted();

  /// For callers that cannot nest objects, such as module hooks: enter() and leave() in pairs.
  static void enter(std::string_view name);
  /// As enter(), but `path` is the whole scope, whatever the enclosing scopes are.
  static void enter_absolute(std::string_view path);
  static void leave() noexcept;

 private:
  bool entered_;
};

}  // namespace spillway
