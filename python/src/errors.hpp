/// Spillway's errors as Python exceptions; internal.
#pragma once

#include <pybind11/pybind11.h>

namespace spillway::python {

/// Every C++ error that leaves a function of this module becomes the class of the same name in
/// spillway.errors, with the same text.
void translate_errors();

}  // namespace spillway::python
