# Runs the example PROGRAM: it must end well and write nothing to stderr. An error it must print, and
# end with status 1.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE status ERROR_VARIABLE err)
if(NOT status EQUAL 0 OR NOT err STREQUAL "")
  message(FATAL_ERROR "${PROGRAM}: expected status 0 and an empty stderr, got ${status} and\n${err}")
endif()
set(ENV{BRRR_ALLOCATOR} nowhere)
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE err)
if(NOT status EQUAL 1 OR NOT err MATCHES "BRRR_ALLOCATOR.*nowhere")
  message(FATAL_ERROR "${PROGRAM}: expected status 1 and the error, got ${status} and\n${err}")
endif()
