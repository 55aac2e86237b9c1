#include "binding.hpp"

#include <mutex>

#include <torch/csrc/autograd/python_variable.h>

#include "spillway/core/error.hpp"
#include "torch/graph/weights.hpp"
#include "torch/hooks/expected_saves.hpp"
#include "torch/record/session_mutex.hpp"

namespace spillway::python {
namespace {

void raise(const char* name, const Error& error) {
  // Imported when needed: spillway.errors does not need this module, so there is no circle.
  const auto type = pybind11::module_::import("spillway.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

void translate(std::exception_ptr thrown) {
  if (!thrown) return;
  try {
    std::rethrow_exception(thrown);
  } catch (const InvalidArgument& error) {
    raise("InvalidArgument", error);
  } catch (const OutOfMemory& error) {
    raise("OutOfMemory", error);
  } catch (const DeviceError& error) {
    raise("DeviceError", error);
  } catch (const IoError& error) {
    raise("IoError", error);
  } catch (const PlanInfeasible& error) {
    raise("PlanInfeasible", error);
  } catch (const VerificationError& error) {
    raise("VerificationError", error);
  } catch (const ConfigError& error) {
    raise("ConfigError", error);
  } catch (const Error& error) {
    raise("Error", error);
  }
}

PyObject* parameter_type = nullptr;

/// Reads only the types of live objects, so the interpreter's lock is not needed.
bool is_parameter(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  if (type == reinterpret_cast<PyTypeObject*>(THPVariableClass)) return false;
  return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(parameter_type)) != 0;
}

PyObject* function_apply = nullptr;  // The code of Function.apply().

FunctionCall call_of(PyFrameObject* frame) {
  PyCodeObject* const code = PyFrame_GetCode(frame);
  Py_DECREF(code);  // The frame holds it.
  return reinterpret_cast<PyObject*>(code) == function_apply ? frame : nullptr;
}

/// From the innermost frame outwards, the first call for which `test` is true.
template <typename Test>
FunctionCall find_call(const Test& test) {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame != nullptr) {
    const FunctionCall call = call_of(frame);
    PyFrameObject* const caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);  // It runs, so it stays.
    frame = caller;
    if (call == nullptr || !test(call)) continue;
    Py_XDECREF(frame);
    return call;
  }
  return nullptr;
}

/// A call of a custom function is the frame of its Function.apply(). torch saves its tensors after
/// forward() has returned to there.
constexpr FunctionCalls kFunctionCalls = {
    [] {
      if (PyGILState_Check() == 0) return FunctionCall();
      PyFrameObject* const frame = PyEval_GetFrame();
      return frame == nullptr ? FunctionCall() : call_of(frame);
    },
    [] { return find_call([](FunctionCall) { return true; }); },
    [](FunctionCall wanted) {
      return find_call([wanted](FunctionCall call) { return call == wanted; }) != nullptr;
    },
};

/// The owner of a session's mutex may need the interpreter, so a waiting thread releases it.
void wait_without_gil(std::mutex& mutex) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
    mutex.lock();
    return;
  }
  const pybind11::gil_scoped_release released;
  mutex.lock();
}

}  // namespace

void prepare_module() {
  // Held until the process ends, as torch holds it.
  const pybind11::object type = pybind11::module_::import("torch.nn.parameter").attr("Parameter");
  parameter_type = type.inc_ref().ptr();
  set_parameter_test(&is_parameter);
  const pybind11::object apply =
      pybind11::module_::import("torch.autograd.function").attr("Function").attr("apply");
  const pybind11::object code = apply.attr("__func__").attr("__code__");
  function_apply = code.inc_ref().ptr();
  set_function_calls(kFunctionCalls);
  pybind11::register_local_exception_translator(&translate);
  SessionMutex::set_wait(&wait_without_gil);
}

}  // namespace spillway::python
