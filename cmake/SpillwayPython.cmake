# Asks the Python environment that holds torch and HiGHS where a package is, without importing the package:
# importing torch takes seconds and may need a GPU driver.

# spillway_locate_python_package(<name> <out directory> <out reason>)
#
# Sets <out directory> to the package's folder; or to "" and <out reason> to what was looked for, where, and what to do.
# The Python is SPILLWAY_PYTHON (CMake variable, then environment), else bin/python of the folder in the environment
# variable SPILLWAY_VENV, else .venv/bin/python in the top folder of the project.
function(spillway_locate_python_package name out_directory out_reason)
  set(${out_directory} "" PARENT_SCOPE)
  if(SPILLWAY_PYTHON)
    set(python "${SPILLWAY_PYTHON}")
  elseif(DEFINED ENV{SPILLWAY_PYTHON})
    set(python "$ENV{SPILLWAY_PYTHON}")
  elseif(DEFINED ENV{SPILLWAY_VENV})
    set(python "$ENV{SPILLWAY_VENV}/bin/python")
  else()
    set(python "${CMAKE_SOURCE_DIR}/.venv/bin/python")
  endif()
  set(help "Run scripts/setup.sh to install it, or pass -DSPILLWAY_PYTHON=<a python that has it>.")

  execute_process(
    COMMAND "${python}" -c "import importlib.util, sys
spec = importlib.util.find_spec('${name}')
sys.stdout.write(spec.submodule_search_locations[0] if spec else '')"
    RESULT_VARIABLE status OUTPUT_VARIABLE directory ERROR_VARIABLE error)
  if(NOT status EQUAL 0)
    set(${out_reason} "Python package ${name}: could not ask ${python} (${status}). ${error}\n${help}" PARENT_SCOPE)
  elseif(directory STREQUAL "")
    set(${out_reason} "Python package ${name}: ${python} has none. ${help}" PARENT_SCOPE)
  else()
    set(${out_directory} "${directory}" PARENT_SCOPE)
  endif()
endfunction()
