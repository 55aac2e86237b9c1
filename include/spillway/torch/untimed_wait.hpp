/// Waiting for others within a step.
#pragma once

#include <functional>

namespace spillway {

/// Runs `wait`, which waits for something outside: a message of another rank, a batch of a data
/// loader. Within a step of a session on this thread its time does not count as compute in the
/// profile. Outside of a step it just runs. What `wait` allocates is counted as usual.
/// Errors: what `wait` throws.
void untimed_wait(const std::function<void()>& wait);

}  // namespace spillway
