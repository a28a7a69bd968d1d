# Checks from outside that a program under BRRR_REPORT leaves its report when a signal ends it, wherever it is: PROGRAM
# is examples/slow_net, TESTS the program of the unit tests, which checks pages.
set(BRRR ${PROGRAM})
include(${CMAKE_CURRENT_LIST_DIR}/calls.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(ENV{BRRR_CACHE_DIR} ${WORK}/cache)
set(number_of_INT 2)
set(number_of_TERM 15)

# Ends the program after so many seconds.
function(stop_after seconds signal format)
  set(report ${WORK}/stopped.${format})
  file(REMOVE ${report})
  set(ENV{BRRR_REPORT} ${report})
  execute_process(COMMAND timeout --foreground --preserve-status -k 20 -s ${signal} ${seconds} ${PROGRAM} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE ignored ERROR_VARIABLE err)
  unset(ENV{BRRR_REPORT})
  math(EXPR by_signal "128 + ${number_of_${signal}}")
  if(NOT status EQUAL by_signal OR NOT err STREQUAL "" OR NOT EXISTS ${report})
    message(FATAL_ERROR "expected ${PROGRAM} ${ARGN} to end by ${signal} after ${seconds} s and to leave ${report}, got "
      "${status}\n${err}")
  endif()
  if(format STREQUAL json)
    file(READ ${report} out)
    set(out "${out}" PARENT_SCOPE)
    check_schema(watch)
  else()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env BRRR_TEST_PAGE=${report} ${TESTS} "[.page]"
      RESULT_VARIABLE status OUTPUT_VARIABLE problems)
    if(NOT status EQUAL 0 OR NOT problems MATCHES "All tests passed")
      message(FATAL_ERROR "expected ${report} to be valid after ${seconds} s, got\n${problems}")
    endif()
  endif()
endfunction()

# At random moments of the loop, of a first call or of the first looks.
string(RANDOM LENGTH 5 ALPHABET 123456789 seed)
message("moments by seed ${seed}")
string(RANDOM LENGTH 1 RANDOM_SEED ${seed} ignored)
foreach(run "eager;INT;json" "eager;TERM;html" "graph;INT;html" "graph;TERM;json" "fused;INT;json" "fused;TERM;html")
  list(GET run 0 mode)
  list(GET run 1 signal)
  list(GET run 2 format)
  string(RANDOM LENGTH 2 ALPHABET 0123456789 hundredths)
  math(EXPR milliseconds "600 + 10 * ${hundredths}")
  stop_after(0${milliseconds}e-3 ${signal} ${format} kept ${mode} 32 1000000000)
endforeach()

# Later there are steps to report.
stop_after(2 TERM json parsed eager 32 1000000000)
member(steps 0 calls)
if(NOT found GREATER 100)
  message(FATAL_ERROR "expected over 100 steps, got ${found}")
endif()
