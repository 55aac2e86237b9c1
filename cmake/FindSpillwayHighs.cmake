# The HiGHS solver from the Python package highsbox, which holds it as a shared library with headers.
#
# Only its C interface may be used, <interfaces/highs_c_api.h>: the library is built with the std::string ABI from
# before g++ 5, so the class Highs has another layout there than in our code. Parts of Spillway load it at run time;
# src/plan/highs/highs_library.hpp says why.
#
# Target: spillway::highs. Variables: SpillwayHighs_FOUND, SpillwayHighs_VERSION, SpillwayHighs_DIRECTORY.
# Which Python is asked: see SpillwayPython.cmake. Set SpillwayHighs_ROOT to the folder highs_dist to ask none.
include(FindPackageHandleStandardArgs)
include("${CMAKE_CURRENT_LIST_DIR}/SpillwayPython.cmake")

set(_directory "${SpillwayHighs_ROOT}")
set(_reason "")
if(NOT _directory)
  spillway_locate_python_package(highsbox _directory _reason)
  if(_directory)
    string(APPEND _directory "/highs_dist")
  endif()
endif()

set(SpillwayHighs_DIRECTORY "")
if(_directory AND EXISTS "${_directory}/include/highs/HConfig.h" AND EXISTS "${_directory}/lib/libhighs.so")
  set(SpillwayHighs_DIRECTORY "${_directory}")
  file(STRINGS "${_directory}/include/highs/HConfig.h" _lines REGEX "HIGHS_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "#define HIGHS_VERSION_[A-Z]+ ([0-9]+)" "\\1" _numbers "${_lines}")
  list(JOIN _numbers "." SpillwayHighs_VERSION)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_directory}/include/highs/HConfig.h")
elseif(_directory)
  set(_reason "include/highs/HConfig.h and lib/libhighs.so are not both in ${_directory}.")
endif()

find_package_handle_standard_args(SpillwayHighs
  REQUIRED_VARS SpillwayHighs_DIRECTORY VERSION_VAR SpillwayHighs_VERSION
  REASON_FAILURE_MESSAGE "${_reason}")

if(SpillwayHighs_FOUND AND NOT TARGET spillway::highs)
  add_library(spillway::highs SHARED IMPORTED GLOBAL)
  set_target_properties(spillway::highs PROPERTIES
    IMPORTED_LOCATION "${SpillwayHighs_DIRECTORY}/lib/libhighs.so"
    INTERFACE_INCLUDE_DIRECTORIES "${SpillwayHighs_DIRECTORY}/include/highs")
endif()
