#include "support/step_trace.hpp"

#include <set>

#include <torch/csrc/autograd/profiler_kineto.h>

#include "spillway/core/error.hpp"

namespace spillway::bench {

void trace_step(c10::Device device, const std::function<void()>& step,
                const std::filesystem::path& file) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);

  profiler::prepareProfiler(config, activities);
  step();
  profiler::enableProfiler(config, activities);
  step();
  const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
  result->save(file.string());
  if (!std::filesystem::exists(file)) {
    throw IoError("bench", "writing the trace " + file.string() +
                               ": torch's profiler wrote nothing; is its folder writable?");
  }
}

void trace_without_and_with(c10::Device device, const std::function<void(Session*)>& step,
                            Session& session, const std::filesystem::path& name) {
  trace_step(
      device, [&] { step(nullptr); }, name.string() + "-without.json");
  trace_step(
      device, [&] { step(&session); }, name.string() + "-with.json");
}

}  // namespace spillway::bench
