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
  add_executable(${name} ${arg_SOURCES} "${PROJECT_SOURCE_DIR}/tests/support/test_main.cpp")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin/tests")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest spillway_warnings)

  set(launcher)
  if(SPILLWAY_SANITIZE STREQUAL "thread")
    set(launcher "${PROJECT_SOURCE_DIR}/scripts/fixed-addresses.sh")
  endif()
  set(tsan_options
    "halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/scripts/tsan-suppressions.txt")
  add_test(NAME ${name} COMMAND ${launcher} $<TARGET_FILE:${name}>)
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set_tests_properties(${name} PROPERTIES
    LABELS "${folder};${arg_LABELS}"
    TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "TSAN_OPTIONS=${tsan_options};UBSAN_OPTIONS=print_stacktrace=1")
endfunction()
