/// The trainer in Python processes; internal.
#pragma once

#include <pybind11/pybind11.h>

namespace spillway::python {

void bind_train(pybind11::module_& module);

}  // namespace spillway::python
