# Configures SOURCE_DIR in WORK_DIR without framework/ and without MPI, and looks whether anything that would be built
# asks for framework/ all the same. Then compiles the sources that stand for what is left out, which no other build has.
file(REMOVE_RECURSE "${WORK_DIR}")

function(configure)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${WORK_DIR}" -G Ninja ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "it cannot be configured with ${ARGN}")
  endif()
endfunction()

# Objects, by their sources in apps/spillway.
function(compile)
  list(TRANSFORM ARGN PREPEND "apps/spillway/CMakeFiles/spillway.dir/")
  list(TRANSFORM ARGN APPEND ".o")
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK_DIR}" --target ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "these cannot be compiled: ${ARGN}")
  endif()
endfunction()

configure("-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON
  -DSPILLWAY_FRAMEWORK=OFF -DSPILLWAY_UNITY=OFF -DSPILLWAY_PRECOMPILE=OFF
  "-DSPILLWAY_TORCH=${TORCH}" "-DSPILLWAY_PYTHON=${PYTHON}")

file(READ "${WORK_DIR}/compile_commands.json" text)
string(JSON count LENGTH "${text}")
set(wrong "")
set(tests 0)
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON file GET "${text}" ${i} file)
  string(JSON command GET "${text}" ${i} command)
  string(FIND "${command}" "${SOURCE_DIR}/framework/" compiled)
  string(FIND "${command} " "-I${SOURCE_DIR}/framework " included)
  if(NOT compiled EQUAL -1 OR NOT included EQUAL -1)
    string(APPEND wrong "  ${file}\n")
  endif()
  if(file MATCHES "/tests/torch/|/tests/plan/")
    math(EXPR tests "${tests} + 1")
  endif()
endforeach()
if(wrong)
  message(FATAL_ERROR "these need framework/ with SPILLWAY_FRAMEWORK=OFF:\n${wrong}")
endif()
if(tests EQUAL 0)
  message(FATAL_ERROR "the tests of the engine are left out with SPILLWAY_FRAMEWORK=OFF")
endif()
message(STATUS "without framework: ${count} compilations, none with framework/")

compile(training/framework_absent.cpp)
configure(-DSPILLWAY_FRAMEWORK=ON -DSPILLWAY_TORCH=OFF -DSPILLWAY_TESTS=OFF -DSPILLWAY_BENCH=OFF)
compile(training/training_absent.cpp doctor/torch_check_absent.cpp)
