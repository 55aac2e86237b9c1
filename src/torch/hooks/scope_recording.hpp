/// Switches scopes on and off: they are tracked only while a session needs them. Internal.
#pragma once

namespace spillway {

/// On this thread, in pairs.
void start_recording_scopes();
void stop_recording_scopes() noexcept;

}  // namespace spillway
