/// Traces one step with torch's profiler: every operator, and on a GPU every kernel and copy with
/// its stream. bench/layers/compare_traces.py reads the files.
#pragma once

#include <filesystem>
#include <functional>

#include <c10/core/Device.h>

#include "spillway/torch/session.hpp"

namespace spillway::bench {

/// Runs `step` twice, first to warm the profiler up, then traced, and writes the trace in Chrome's
/// format to `file`. `step` must wait for the device; later work of the device is not in the trace.
/// Errors: IoError if the file cannot be written.
void trace_step(c10::Device device, const std::function<void()>& step,
                const std::filesystem::path& file);

/// Traces a step without a session and one with it, to `name`-without.json and `name`-with.json.
/// Errors: as trace_step().
void trace_without_and_with(c10::Device device, const std::function<void(Session*)>& step,
                            Session& session, const std::filesystem::path& name);

}  // namespace spillway::bench
