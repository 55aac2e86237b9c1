# Fails unless COMMAND ends with exit code 66 and REPORT is in what it writes.
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(FIND "${output}" "${REPORT}" found)
if(NOT "${status}" STREQUAL "66" OR found EQUAL -1)
  message(FATAL_ERROR "the sanitizer missed a planted fault: exit code 66 and \"${REPORT}\" were wanted, found "
    "${status} and:\n${output}")
endif()
