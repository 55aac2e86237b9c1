# The main function of all test programs, compiled once.
add_library(spillway_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/support/test_main.cpp")
target_link_libraries(spillway_test_main PUBLIC GTest::gmock GTest::gtest PRIVATE spillway_warnings)

# Internal headers of framework/, where it is built.
set(SPILLWAY_FRAMEWORK_HEADERS)
if(SPILLWAY_FRAMEWORK)
  set(SPILLWAY_FRAMEWORK_HEADERS "${PROJECT_SOURCE_DIR}/framework")
endif()

set(SPILLWAY_TSAN_OPTIONS "halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1")
string(APPEND SPILLWAY_TSAN_OPTIONS ":suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt")

# The executable of a test, with the main function of `main`.
function(_spillway_test_program name main sources deps)
  add_executable(${name} ${sources})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/tests")
  target_include_directories(${name} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" ${SPILLWAY_FRAMEWORK_HEADERS} "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${deps} ${main} spillway_warnings)
endfunction()

# spillway_add_test(<name> SOURCES <file>... [DEPS <target>...] [LABELS <label>...] [TIMEOUT <seconds>])
#
# A GoogleTest program, one ctest entry, in build/<preset>/bin/tests. It carries the name of its folder as a label
# (tests/core -> core), so `ctest --preset release -L core` runs a part's tests. Programs all of whose cases skip
# themselves are shown as skipped.
function(spillway_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;DEPS;LABELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "spillway_add_test(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  _spillway_test_program(${name} spillway_test_main "${arg_SOURCES}" "${arg_DEPS}")

  set(launcher)
  if(SPILLWAY_SANITIZE STREQUAL "thread")
    set(launcher "${PROJECT_SOURCE_DIR}/scripts/fixed-addresses.sh")
  endif()
  add_test(NAME ${name} COMMAND ${launcher} $<TARGET_FILE:${name}>)
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set_tests_properties(${name} PROPERTIES
    LABELS "${folder};${arg_LABELS}"
    TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "TSAN_OPTIONS=${SPILLWAY_TSAN_OPTIONS};UBSAN_OPTIONS=print_stacktrace=1")
endfunction()

# spillway_add_json_test(<name> PROGRAM <target> [ARGUMENTS <argument>...] CHECKS <check>... [STDOUT]
#                        [FIXTURE <name>] [LABELS <label>...] [TIMEOUT <seconds>] [ENVIRONMENT <name>=<value>...])
#
# Runs a program that writes JSON, and checks what it wrote; tests/support/check_json.py says what checks are. The
# program writes into the file that follows its option --out, or to its standard output with STDOUT. It is never judged
# by text: its exit code and its values decide. With FIXTURE the test sets up that fixture of ctest.
function(spillway_add_json_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "STDOUT" "PROGRAM;TIMEOUT;FIXTURE" "ARGUMENTS;CHECKS;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_CHECKS)
    message(FATAL_ERROR "spillway_add_json_test(${name}): no CHECKS, or unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  find_program(SPILLWAY_SCRIPT_PYTHON NAMES python3 REQUIRED)
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}.json")
  set(out --out "${file}")
  if(arg_STDOUT)
    set(file -)
    set(out)
  endif()
  add_test(NAME ${name}
    COMMAND "${SPILLWAY_SCRIPT_PYTHON}" "${PROJECT_SOURCE_DIR}/tests/support/check_json.py" "${file}" ${arg_CHECKS}
      -- $<TARGET_FILE:${arg_PROGRAM}> ${arg_ARGUMENTS} ${out})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}"
    TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "${arg_ENVIRONMENT}")
  if(arg_FIXTURE)
    set_tests_properties(${name} PROPERTIES FIXTURES_SETUP ${arg_FIXTURE})
  endif()
endfunction()

# spillway_add_ranks_test(<name> RANKS <n>... SOURCES <file>... [DEPS <target>...] [LABELS <label>...]
#                         [TIMEOUT <seconds>] [GPU])
#
# A GoogleTest program that mpirun starts as several ranks, one ctest entry <name>_<n> for each number of ranks, with
# the label `ranks`. More ranks than cores are fine. Its cases get the world from support/ranks.hpp. Without GPU no
# CUDA device is visible. Only where the MPI plugin is built.
function(spillway_add_ranks_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GPU" "TIMEOUT" "RANKS;SOURCES;DEPS;LABELS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "spillway_add_ranks_test(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(environment ${SPILLWAY_RANKS_ENVIRONMENT})
  if(arg_GPU)
    list(APPEND arg_LABELS gpu)
  else()
    list(APPEND environment CUDA_VISIBLE_DEVICES=)
  endif()
  _spillway_test_program(${name} spillway_test_ranks_main "${arg_SOURCES}" "${arg_DEPS}")
  add_dependencies(${name} spillway_mpi)
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}_${ranks}
      COMMAND "${MPIEXEC_EXECUTABLE}" --oversubscribe --bind-to none -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}_${ranks} PROPERTIES
      LABELS "${folder};ranks;${arg_LABELS}"
      TIMEOUT ${arg_TIMEOUT}
      PROCESSORS 2 # of ctest's jobs
      SKIP_RETURN_CODE 77
      ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# Open MPI requires two variables to run as root; ranks share the cores, so each computes on one thread.
set(SPILLWAY_RANKS_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1)
