# Calls of the program BRRR and what they must give: exit statuses, one line for what is wrong, one JSON document.
function(call status_wanted)
  execute_process(COMMAND ${BRRR} ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
  set(out "${out}" PARENT_SCOPE)
  set(err "${err}" PARENT_SCOPE)
  if(NOT status EQUAL status_wanted)
    message(FATAL_ERROR "brrr ${ARGN}: expected status ${status_wanted}, got ${status}\n${out}${err}")
  endif()
endfunction()

# Fails with the given status, prints nothing on stdout and one line that matches on stderr.
function(refused status pattern)
  call(${status} ${ARGN})
  if(NOT out STREQUAL "" OR NOT err MATCHES "^brrr: [^\n]+\n$" OR NOT err MATCHES "${pattern}")
    message(FATAL_ERROR "brrr ${ARGN}: expected one line with '${pattern}' on stderr, got\n${out}${err}")
  endif()
endfunction()

# Prints one JSON document that has a member, and nothing else.
function(json member)
  call(0 ${ARGN} --json)
  string(JSON found ERROR_VARIABLE problem GET "${out}" ${member})
  if(problem OR NOT err STREQUAL "")
    message(FATAL_ERROR "brrr ${ARGN} --json: ${problem}\n${out}${err}")
  endif()
  set(out "${out}" PARENT_SCOPE)
  set(found "${found}" PARENT_SCOPE)
endfunction()
