// spillway._native: what the Python package calls. Packing and unpacking of saved tensors happens
// in C++ on whatever thread autograd uses and comes through none of these functions.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include "binding.hpp"
#include "module_scopes.hpp"
#include "spillway/core/bytes.hpp"
#include "spillway/core/error.hpp"
#include "spillway/groups/shard_group.hpp"
#include "spillway/plan/explain.hpp"
#include "spillway/schedule/schedule.hpp"
#include "spillway/torch/scope.hpp"
#include "spillway/torch/session.hpp"
#include "torch/graph/weights.hpp"
#include "torch/hooks/expected_saves.hpp"
#include "torch/hooks/interception.hpp"
#include "torch/hooks/step_thread.hpp"

namespace py = pybind11;

namespace spillway::python {
namespace {

// A call that may wait for a session releases the interpreter first.
using NoGil = py::call_guard<py::gil_scoped_release>;

/// A step that Python ends explicitly; nothing happens after that. Called with the interpreter,
/// which guards `step_`: another thread may end the step while this one uses it, as Step allows.
class PythonStep {
 public:
  explicit PythonStep(Step step) : step_(std::make_shared<Step>(std::move(step))) {}

  void pass(int chunk, int micro_batch) {
    if (!step_) throw InvalidArgument("pass", "the step has ended; name passes within it");
    without_gil(step_, [&](Step& step) { step.pass(chunk, micro_batch); });
  }
  void backward() {
    if (!step_) throw InvalidArgument("backward", "the step has ended; say it within the step");
    without_gil(step_, [](Step& step) { step.backward(); });
  }
  void end() {
    without_gil(std::exchange(step_, nullptr), [](Step& step) { step.end(); });
  }
  void drop() {
    without_gil(std::exchange(step_, nullptr), [](Step&) {});
  }

 private:
  template <typename Use>
  static void without_gil(std::shared_ptr<Step> step, const Use& use) {
    const py::gil_scoped_release released;
    if (step != nullptr) use(*step);
    step.reset();
  }

  std::shared_ptr<Step> step_;
};

/// (backward, chunk, micro-batch), in order.
using PassList = std::vector<std::tuple<bool, int, int>>;

PassList pass_list(const std::string& kind, const PipelineRank& rank) {
  PassList list;
  for (const PassStep& pass : passes_of(make_schedule(parse_schedule_kind(kind), rank))) {
    list.emplace_back(pass.backward, pass.chunk, pass.micro_batch);
  }
  return list;
}

PythonStep begin_step(Session& session, const std::optional<PassList>& passes) {
  if (!passes) return PythonStep(session.step());
  PassSchedule schedule;
  for (const auto& [backward, chunk, micro_batch] : *passes) {
    schedule.push_back({chunk, micro_batch, backward});
  }
  return PythonStep(session.step(schedule));
}

at::Device parse_device(const std::string& text) {
  try {
    return at::Device(text);
  } catch (const c10::Error&) {
    throw InvalidArgument("session", "\"" + text +
                                         "\" is no device; choose \"cuda\", \"cuda:1\" "
                                         "or \"cpu\"");
  }
}

Bytes require_size(std::uint64_t count) {
  if (Bytes(count) <= kMostBytes) return Bytes(count);
  throw InvalidArgument(
      "bytes",
      std::to_string(count) + " bytes were asked for; a size is at most " + to_string(kMostBytes));
}

/// A size in bytes: what is not set keeps its default.
template <auto Member>
void set_bytes(SessionOptions& options, std::uint64_t count) {
  options.*Member = require_size(count);
}

void bind_options(py::module_& module) {
  py::class_<Budget>(module, "Budget")
      .def_static(
          "bytes", [](std::uint64_t count) { return Budget(require_size(count)); },
          py::arg("count"))
      .def_static("share", &Budget::share, py::arg("share"))
      .def_static("automatic", [] { return Budget::automatic(); });

  // Written only: what a session does with them is in its report.
  const auto unread = py::cpp_function();
  py::class_<SessionOptions>(module, "SessionOptions")
      .def(py::init<>())
      .def_readwrite("rules", &SessionOptions::rules)
      .def_readwrite("plan", &SessionOptions::plan)
      .def_readwrite("budget", &SessionOptions::budget)
      .def_readwrite("replan", &SessionOptions::replan)
      .def_readwrite("strict", &SessionOptions::strict)
      .def_readwrite("drift", &SessionOptions::drift)
      .def_readwrite("plan_in_background", &SessionOptions::plan_in_background)
      .def_readwrite("verify_every", &SessionOptions::verify_every)
      .def_readwrite("fuse_replays", &SessionOptions::fuse_replays)
      .def_readwrite("regions", &SessionOptions::regions)
      .def_readwrite("time_waits_every", &SessionOptions::time_waits_every)
      .def_readwrite("layers", &SessionOptions::layers)
      .def_property("module_scopes", unread,
                    [](SessionOptions& options, std::shared_ptr<ModuleScopes> scopes) {
                      options.scope_source = std::move(scopes);
                    })
      .def_property("planning_seconds", unread,
                    [](SessionOptions& options, double seconds) {
                      options.planning_time =
                          std::chrono::milliseconds(std::llround(seconds * 1e3));
                    })
      .def_property("device", unread,
                    [](SessionOptions& options, const std::string& text) {
                      options.device = parse_device(text);
                    })
      .def_property("small", unread, &set_bytes<&SessionOptions::small>)
      .def_property("host", unread, &set_bytes<&SessionOptions::host>)
      .def_property("prepare", unread, &set_bytes<&SessionOptions::prepare>)
      .def_property("offload_window", unread, &set_bytes<&SessionOptions::offload_window>)
      .def_property("prefetch_window", unread, &set_bytes<&SessionOptions::prefetch_window>)
      .def_property("recompute_cache", unread, &set_bytes<&SessionOptions::recompute_cache>);
}

/// What `session` has of `what`, or an error for `operation`.
template <typename Value>
std::shared_ptr<const Value> require(std::shared_ptr<const Value> value, const char* operation,
                                     const std::string& what) {
  if (value == nullptr) {
    throw InvalidArgument(operation, "there is no " + what + " yet; run a step first");
  }
  return value;
}

/// A group of torch.distributed by its name, with the ranks of its members.
void set_shard_group(Session& session, const std::string& name, std::vector<int> ranks,
                     bool host_tensors) {
  c10::intrusive_ptr<c10d::ProcessGroup> group = c10d::resolve_process_group(name);
  const std::vector<c10::Device> devices = group->getDeviceTypes();
  const bool takes_them = std::any_of(devices.begin(), devices.end(),
                                      [](const c10::Device& each) { return each.is_cpu(); });
  if (host_tensors && !takes_them) {
    throw InvalidArgument("session",
                          "shard_group = '" + name +
                              "' takes no tensors of the CPU, where this session's buffers are; "
                              "make one with a backend that does, such as gloo");
  }
  session.set_shard_group(shard_group(Group(std::move(group), std::move(ranks), name)));
}

void bind_session(py::module_& module) {
  py::class_<PythonStep>(module, "Step")
      .def("pass_", &PythonStep::pass, py::arg("chunk"), py::arg("micro_batch"))
      .def("backward", &PythonStep::backward)
      .def("end", &PythonStep::end)
      .def("drop", &PythonStep::drop);

  py::class_<Session>(module, "Session")
      .def(py::init<SessionOptions>(), py::arg("options"), NoGil())
      .def(
          "register_parameter",
          [](Session& self, const at::Tensor& tensor) {
            self.register_fixed(tensor, FixedReason::kParameter);
          },
          py::arg("tensor"), NoGil())
      .def(
          "register_buffer",
          [](Session& self, const at::Tensor& tensor) {
            self.register_fixed(tensor, FixedReason::kRegisteredBuffer);
          },
          py::arg("tensor"), NoGil())
      .def("set_shard_group", &set_shard_group, py::arg("name"), py::arg("ranks"),
           py::arg("host_tensors"), NoGil())
      .def("step", &begin_step, py::arg("schedule"), NoGil())
      .def("record_next_step", &Session::record_next_step, NoGil())
      .def("next_step_records", &Session::next_step_records, NoGil())
      .def("wait_for_plan", &Session::wait_for_plan, NoGil())
      .def("verify_next_step", &Session::verify_next_step, NoGil())
      .def("trace_next_step", &Session::trace_next_step, NoGil())
      .def(
          "trace_json", [](const Session& self) { return to_chrome_json(self.trace()); }, NoGil())
      .def("use_plan", &Session::use_plan, py::arg("plan"), NoGil())
      .def(
          "profile_json",
          [](const Session& self) -> std::optional<std::string> {
            const auto profile = self.profile();
            return profile == nullptr ? std::nullopt : std::optional(to_json(*profile));
          },
          NoGil())
      .def(
          "plan_json",
          [](const Session& self) -> std::optional<std::string> {
            const auto plan = self.plan();
            return plan == nullptr ? std::nullopt : std::optional(to_json(*plan));
          },
          NoGil())
      .def(
          "save_profile",
          [](const Session& self, const std::string& path) {
            save_profile(*require(self.profile(), "save_profile", "profile"), path);
          },
          py::arg("path"), NoGil())
      .def(
          "save_plan",
          [](const Session& self, const std::string& path) {
            save_plan(*require(self.plan(), "save_plan", "plan"), path);
          },
          py::arg("path"), NoGil())
      .def(
          "explain",
          [](const Session& self) {
            return explain(*require(self.plan(), "explain", "plan"), self.profile().get());
          },
          NoGil())
      .def(
          "report",
          [](const Session& self) {
            const SessionReport report = self.report();
            return std::pair(report.to_text(), report.to_json());
          },
          NoGil());
}

void bind_values(py::module_& module) {
  py::class_<Rules>(module, "Rules")
      .def_static("parse", &parse_rules, py::arg("text"), py::arg("name"))
      .def_static(
          "load", [](const std::string& path) { return load_rules(path); }, py::arg("path"));
  py::class_<Plan>(module, "Plan")
      .def_static("parse", &plan_from_json, py::arg("text"), py::arg("name"))
      .def_static(
          "load", [](const std::string& path) { return load_plan(path); }, py::arg("path"));
  module.def(
      "pass_list",
      [](const std::string& kind, int stage, int stages, int chunks, int micro_batches) {
        return pass_list(kind, {stage, stages, chunks, micro_batches});
      },
      py::arg("kind"), py::arg("stage"), py::arg("stages"), py::arg("chunks"),
      py::arg("micro_batches"));
  module.def(
      "parse_bytes", [](const std::string& text) { return parse_bytes(text).count(); },
      py::arg("text"));
}

/// Notes which of the tensors that a custom function saves are weights that require gradients;
/// torch gives others back as the hooks do.
void note_saves(const py::args& tensors) {
  if (StepThread::current() == nullptr) return;
  std::vector<bool> weights;
  for (const py::handle& each : tensors) {
    if (!THPVariable_Check(each.ptr())) continue;
    const at::Tensor& tensor = THPVariable_Unpack(each.ptr());
    weights.push_back(tensor.requires_grad() && weight_of(tensor).is_same(tensor));
  }
  expect_saves(std::move(weights));
}

void bind_unmanaged(py::module_& module) {
  module.def("enter_unmanaged", &enter_unmanaged);
  module.def("leave_unmanaged", &leave_unmanaged);
  module.def("expect_saves", &note_saves);
}

void bind_scopes(py::module_& module) {
  py::class_<ModuleScopes, std::shared_ptr<ModuleScopes>>(module, "ModuleScopes")
      .def(py::init<>())
      .def("name", &ModuleScopes::name, py::arg("modules"));
  module.def("scope_wanted", &Scope::wanted);
  module.def("enter_scope", &Scope::enter, py::arg("name"));
  module.def("leave_scope", &Scope::leave, py::arg("region"));
  module.def("current_scope", &Scope::current);
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Sessions, compiled; use the package spillway.";
  prepare_module();
  bind_values(module);
  bind_scopes(module);
  bind_options(module);
  bind_session(module);
  bind_unmanaged(module);
}

}  // namespace spillway::python
