/// What both extension modules need; internal.
///
/// Each module has its own copy of the library: sessions of different modules are independent, and
/// the hooks of one are installed before those of the other.
#pragma once

#include <pybind11/pybind11.h>

namespace spillway::python {

/// Makes C++ errors the classes of spillway.errors, and makes threads release the interpreter while
/// they wait for a session. Called once by each module when it is imported.
void prepare_module();

}  // namespace spillway::python
