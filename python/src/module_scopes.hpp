/// The scopes of a model in Python: the names of the modules whose calls run; internal.
///
/// They are read from the interpreter's stack, and nothing is put on a module: torch.compile guards
/// on the hooks that a module has, and would compile it once more in every step with others.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include "spillway/torch/scope.hpp"

namespace spillway::python {

class ModuleScopes final : public ScopeSource {
 public:
  ModuleScopes();
  ModuleScopes(const ModuleScopes&) = delete;
  ModuleScopes& operator=(const ModuleScopes&) = delete;
  /// On any thread: takes the interpreter.
  ~ModuleScopes() override;

  /// From now on `modules` have these names; those named before have none. References are weak.
  /// Of the names of one module the first counts.
  void name(const std::vector<std::pair<std::string, pybind11::object>>& modules);

  /// The innermost call on this thread's stack of a module that has a name. Takes the interpreter,
  /// and releases it if this thread did not have it.
  [[nodiscard]] Position position() noexcept override;

 private:
  struct Named {
    pybind11::object module;  // A weak reference.
    std::string name;
  };
  using Names = std::unordered_map<const PyObject*, Named>;

  [[nodiscard]] const std::string* name_of(const pybind11::object& module) const;

  Names names_;
  pybind11::object module_call_;  // The code of every call of a module.
};

}  // namespace spillway::python
