/// Waiting for others within a step.
#pragma once

#include <functional>

namespace spillway {

/// Runs `wait`, which waits for somebody else: a message of another rank, a batch of a data loader.
/// A session within whose step this thread is does not take the time for computing when it records
/// or times the step. Without one it just runs. What `wait` allocates counts as always.
/// Errors: what `wait` throws.
void untimed_wait(const std::function<void()>& wait);

}  // namespace spillway
