/// For those who record: scopes are followed only while somebody wants them. Internal.
#pragma once

namespace spillway {

/// On this thread, in pairs.
void start_recording_scopes();
void stop_recording_scopes() noexcept;

}  // namespace spillway
