# Installs the build in BUILD_DIR below WORK_DIR, then configures, builds and runs the project in consumer/ against it.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT OUTPUT_VARIABLE output ERROR_VARIABLE output
    RESULT_VARIABLE status ECHO_OUTPUT_VARIABLE ECHO_ERROR_VARIABLE)
  set(output "${output}" PARENT_SCOPE)
  set(status "${status}" PARENT_SCOPE)
endfunction()

function(run_successfully)
  run(${ARGN})
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "this command failed (${status}): ${ARGN}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_in_output text)
  string(FIND "${output}" "${text}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "the output should hold '${text}'")
  endif()
endfunction()

# Configures the consumer in WORK_DIR/<name> with the parts <ARGN>. SPILLWAY_PYTHON as given, so that it is known
# whether a Python was asked.
macro(configure name python parts)
  run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/consumer" -B "${WORK_DIR}/${name}" -G Ninja
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix"
    "-DSPILLWAY_PYTHON=${python}" "-DCONSUMER_PARTS=${parts}")
endmacro()

macro(build_and_run name)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "configuring ${name} failed")
  endif()
  run_successfully("${CMAKE_COMMAND}" --build "${WORK_DIR}/${name}")
  run_successfully("${WORK_DIR}/${name}/consumer")
  expect_in_output("consumer: 8.0 GiB")
endmacro()

file(REMOVE_RECURSE "${WORK_DIR}")
run_successfully("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/prefix")

# The parts that need neither torch nor CUDA ask no Python.
configure(torchless /nonexistent/python "core,memory,transfer,plan")
build_and_run(torchless)

# A part that is not there is an error that says which there are.
configure(unknown "" "core,nonsense")
if(status EQUAL 0)
  message(FATAL_ERROR "asking for a part that does not exist should fail")
endif()
expect_in_output("spillway has no part nonsense here")

# The parts from wheels find them where they were at build time.
set(parts "transfer,plan")
if(HAS_CUDA)
  string(APPEND parts ",cuda")
endif()
if(HAS_TORCH)
  string(APPEND parts ",torch")
endif()
if(HAS_FRAMEWORK)
  string(APPEND parts ",pipeline")
endif()
if(HAS_CUDA OR HAS_TORCH)
  configure(wheel "" "${parts}")
  build_and_run(wheel)
endif()
