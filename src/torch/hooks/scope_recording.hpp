/// Scopes are tracked only while a session needs them: StepThread. Internal.
#pragma once

namespace spillway {

/// Forgets the scopes that this thread has entered: those of a step that has ended.
void forget_scopes() noexcept;

}  // namespace spillway
