# Runs the example PROGRAM: it must end well and write nothing to stderr.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE status ERROR_VARIABLE err)
if(NOT status EQUAL 0 OR NOT err STREQUAL "")
  message(FATAL_ERROR "${PROGRAM}: expected status 0 and an empty stderr, got ${status} and\n${err}")
endif()
