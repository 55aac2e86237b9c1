/// What custom functions of Python have announced to save; internal.
///
/// torch makes a new variable of whatever requires gradients when it unpacks it with hooks, so a
/// weight that a custom function saved would come back without the attributes of its Parameter.
/// Such a save gets no hooks. But torch asks for hooks before it says for which tensor, so the
/// function's tensors are noted when they are given to ctx.save_for_backward(), and counted when
/// torch saves them.
///
/// Calls of custom functions nest: one may announce its tensors and then apply another one, which
/// announces its own. What is announced belongs to a call, and torch saves a call's tensors after
/// its forward() has returned. A call that saves nothing after all (gradients are off, or forward()
/// has raised) leaves its announcement behind; the next announcement removes it.
#pragma once

#include <cstddef>
#include <vector>

namespace spillway {

/// Identifies a call of a custom function as long as it runs.
using FunctionCall = const void*;

/// What the interpreter knows about the custom functions that run on this thread.
struct FunctionCalls {
  /// The call whose tensors torch saves now; null while an operator saves.
  FunctionCall (*saving)() = nullptr;
  /// The innermost call; null if there is none.
  FunctionCall (*innermost)() = nullptr;
  bool (*is_running)(FunctionCall call) = nullptr;
};

/// For the whole process, and `calls` must live as long; before that nothing can be expected.
void set_function_calls(const FunctionCalls& calls) noexcept;

/// The tensors that the innermost call on this thread is going to save, in order: whether each is
/// left to autograd. Replaces what it announced before.
void expect_saves(std::vector<bool> left_to_autograd);

/// Whether the save for which torch asks now, on this thread, is left to autograd. Called once for
/// each save.
[[nodiscard]] bool next_save_is_left();

}  // namespace spillway
