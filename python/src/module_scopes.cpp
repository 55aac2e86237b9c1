#include "module_scopes.hpp"

#include <frameobject.h>

namespace spillway::python {
namespace {

namespace py = pybind11;

/// Operators run with the interpreter released, saves of a Python function with it held.
class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// Frames are held only while they are looked at: one that outlives its call keeps what its
// variables refer to.
py::object innermost_frame() {
  return py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
}

PyFrameObject* as_frame(const py::object& frame) {
  return reinterpret_cast<PyFrameObject*>(frame.ptr());
}

py::object caller_of(const py::object& frame) {
  return py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyFrame_GetBack(as_frame(frame))));
}

py::object code_of(const py::object& frame) {
  return py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyFrame_GetCode(as_frame(frame))));
}

}  // namespace

// What Module.__call__ is: it calls forward, hooks, and what Module.compile() made alike. Its only
// variables are its arguments, so reading them keeps no tensor alive that the call would have
// freed.
ModuleScopes::ModuleScopes()
    : module_call_(py::module_::import("torch.nn")
                       .attr("Module")
                       .attr("_wrapped_call_impl")
                       .attr("__code__")) {}

ModuleScopes::~ModuleScopes() {
  if (Py_IsInitialized() == 0) {  // Nothing can be freed any more.
    for (auto& [module, named] : names_) named.module.release();
    module_call_.release();
    return;
  }
  const Interpreter interpreter;
  names_.clear();
  module_call_ = py::object();
}

void ModuleScopes::name(const std::vector<std::pair<std::string, py::object>>& modules) {
  Names names;
  for (const auto& [name, module] : modules) {
    names.try_emplace(module.ptr(), Named{py::weakref(module), name});
  }
  names_.swap(names);
}

ScopeSource::Position ModuleScopes::position() noexcept {
  const Interpreter interpreter;
  const py::error_scope raised;  // An operator may run while an exception is on its way.
  try {
    for (py::object frame = innermost_frame(); frame; frame = caller_of(frame)) {
      if (!code_of(frame).is(module_call_)) continue;
      const std::string* const name = name_of(frame.attr("f_locals")["self"]);
      if (name != nullptr) return {frame.ptr(), *name};
    }
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("spillway: reading which module runs");
  }
  return {};
}

const std::string* ModuleScopes::name_of(const py::object& module) const {
  const auto found = names_.find(module.ptr());
  if (found == names_.end()) return nullptr;
  // Another module may be where a freed one was.
  return found->second.module().is(module) ? &found->second.name : nullptr;
}

}  // namespace spillway::python
