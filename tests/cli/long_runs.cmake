# Checks brrr train from outside as it runs: lines that appear at once, memory that stays, signals, a full stdout, files
# that killed processes left. WORK is a folder for its files.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/calls.cmake)

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(small train mlp --device cpu --batch 1 --width 1 --layers 1 --mode graph)
list(JOIN small " " small)
# Far more steps than there is time for.
set(endless "${BRRR} ${small} --steps 1000000000")

# Runs a script whose last line says what was found; brrr is started with its signals as a terminal gives them.
function(shell script)
  execute_process(COMMAND sh -c "${script}" RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err
    WORKING_DIRECTORY ${WORK})
  set(out "${out}" PARENT_SCOPE)
  set(err "${err}" PARENT_SCOPE)
  set(status "${status}" PARENT_SCOPE)
endfunction()
function(expect_match text pattern)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "expected '${pattern}' in\n${text}\n${out}${err}")
  endif()
endfunction()

# The first loss is written during the training, also to a file. From then on 8 bytes a step are kept; a
# list of tensors took 200 and more. (The address sanitizer keeps freed memory for a while.)
shell("export ASAN_OPTIONS=quarantine_size_mb=1:$ASAN_OPTIONS
  ${endless} --save run > lines 2> problems & pid=$!
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1; grep -q loss lines && break; done
  cat lines; sleep 1; early=`sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status`
  sleep 2; late=`sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$pid/status`
  kill -TERM $pid; wait $pid; echo status $?; cat lines problems; echo grew $((late - early)) kB")
expect_match("${out}" "^mlp  [^\n]*\nloss +0  [0-9.]+\nstatus 143\nmlp  [^\n]*\nloss +0 ")
expect_match("${out}" "\n +[0-9]+  [0-9.e-]+\ninterrupted +after [0-9]+ of 1000000000 steps\nsaved +run, after step [0-9]+\n")
string(REGEX REPLACE ".*after step ([0-9]+)\n.*grew ([-0-9]+) kB.*" "\\1;\\2" found "${out}")
list(POP_FRONT found steps grown)
# About half of the steps were made in these two seconds; a vector grows by doubling.
math(EXPR most "${steps} * 32 / 1024 + 16384")
if(grown GREATER most)
  message(FATAL_ERROR "expected at most ${most} kB more after ${steps} steps, got\n${out}")
endif()

# The saved file is a whole run that can be resumed.
json(losses train mlp --device cpu --batch 1 --width 1 --layers 1 --steps 2 --time 0 --load ${WORK}/run)
math(EXPR wanted "${steps} + 2")
expect(steps ${wanted})

# Ctrl-C ends after the step under way, with what there is; in a measurement too. (In the foreground `timeout` signals
# the program alone; else also its own group, so a second time.)
foreach(run "${small} --steps 1000000000 --json"
    "train mlp --device cpu --batch 4096 --width 512 --layers 8 --steps 1 --time 3600 --json")
  shell("timeout --foreground --preserve-status -s INT 2 ${BRRR} ${run}")
  if(NOT status EQUAL 130 OR NOT err STREQUAL "")
    message(FATAL_ERROR "brrr ${run}: expected status 130, got ${status}\n${err}")
  endif()
  expect(interrupted ON)
  expect(step_us "")
  expect_above(steps 0)
endforeach()
string(JSON count LENGTH "${out}" losses)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "expected the loss of a training that was over, got\n${out}")
endif()
# Measurements end with what was measured: a valid document, or the error that nothing was.
foreach(seconds 0.1 0.7 1.9)
  foreach(run "compare mlp --device cpu --batch 64 --width 64 --layers 4 --time 20 --remat all --json"
      "compare mlp --device cpu --batch 8 --width 8 --layers 2 --steps 1000000000 --json" "bench sweep --device cpu --count 1000000 --json"
      "lab all --device cpu --json")
    shell("timeout --foreground --preserve-status -s INT ${seconds} ${BRRR} ${run}")
    if(NOT status MATCHES "^(130|143)$" OR NOT err MATCHES "^(brrr: [^\n]*interrupted[^\n]*\n)?$")
      message(FATAL_ERROR "brrr ${run}: expected status 130 after ${seconds} s, got ${status}\n${err}")
    endif()
    separate_arguments(words UNIX_COMMAND "${run}")
    check_schema(${words})
  endforeach()
endforeach()
shell("timeout --foreground --preserve-status -s INT 1.5 ${BRRR} compare mlp --device cpu --batch 64 --width 64 --layers 4 --time 20 --report stopped.html")
if(NOT status EQUAL 130 OR NOT out MATCHES "\nstopped +[0-9]+ of [0-9]+: [^\n]*, so the rest is missing\n" OR NOT EXISTS ${WORK}/stopped.html)
  message(FATAL_ERROR "expected a comparison that was stopped, got ${status}\n${out}${err}")
endif()
shell("timeout --foreground --preserve-status -s INT 2 ${BRRR} profile mlp --device cpu --batch 8 --width 8 --layers 2 --time 3600 --json")
if(NOT status EQUAL 130 OR NOT err STREQUAL "")
  message(FATAL_ERROR "expected a profile that was stopped, got ${status}\n${out}${err}")
endif()
check_schema(profile)
expect(complete OFF)
expect_match("${out}" "\"interrupted: [1-9][0-9]* samples, of less than 3600 seconds\"")
# The second one ends a step that takes long.
shell("${BRRR} train mlp --device cpu --batch 20000 --width 2000 --layers 40 --steps 1000 > lines 2>&1 & pid=$!
  sleep 1; kill -TERM $pid; sleep 0.2; kill -TERM $pid; wait $pid; echo status $?; cat lines")
expect_match("${out}" "status 143\n$")
# A signal ends a compilation too, with the compiler and its folder; what was not finished is not saved.
file(MAKE_DIRECTORY ${WORK}/tmp)
file(WRITE ${WORK}/endless "#!/bin/sh\nsleep 600 & echo $! > ${WORK}/child; wait\n")
file(CHMOD ${WORK}/endless PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
shell("export CXX=${WORK}/endless TMPDIR=${WORK}/tmp BRRR_CACHE=off
  ${BRRR} train mlp --device cpu --mode fused --steps 5 --width 16 --save cut --json > lines 2> problems & pid=$!
  for i in `seq 600`; do test -s child && break; sleep 0.1; done
  kill -TERM $pid; wait $pid; echo status $?; sleep 0.2; grep -s '^State:[^Z]*(' /proc/`cat child`/status
  ls -d tmp/* cut 2> /dev/null; cat problems")
expect_match("${out}" "^status 143\n$")
file(READ ${WORK}/lines out)
expect(interrupted ON)

# A limit on the size of files is an error.
shell("ulimit -f 1; ${BRRR} train mlp --device cpu --width 256 --layers 2 --batch 1 --steps 1 --time 0 --save limited")
if(NOT status EQUAL 1 OR NOT err MATCHES "^brrr: [^\n]*cannot write: File too large\n$")
  message(FATAL_ERROR "expected an error of a file too large, got ${status}: ${out}${err}")
endif()

# Nothing is said or kept where signals are ignored, as under nohup.
shell("trap '' INT; ${BRRR} ${small} --steps 200000 > lines 2>&1 & pid=$!
  sleep 0.5; kill -INT $pid; wait $pid; echo status $?; cat lines")
expect_match("${out}" "status 0\n")

# Every command reports a full stdout once.
if(EXISTS /dev/full)
  foreach(command "${small} --steps 3" "${small} --steps 3 --json" "info" "info --json" "--help" "--version"
      "explain mlp --device cpu --width 4" "compare mlp --device cpu --width 4 --steps 2 --time 0.01")
    shell("${BRRR} ${command} > /dev/full")
    if(NOT status EQUAL 1 OR NOT err STREQUAL "brrr: cannot write to stdout: No space left on device\n")
      message(FATAL_ERROR "brrr ${command} > /dev/full: expected status 1 and one line, got ${status}\n${err}")
    endif()
  endforeach()
endif()

# A file that cannot be written is an error before the training; an old file is kept.
refused(1 "nowhere" train mlp --device cpu --width 8 --steps 1000000000 --save ${WORK}/nowhere/run)

# What a killed save left is gone after the next one.
file(WRITE ${WORK}/run.1-0.tmp "cut")
file(WRITE ${WORK}/run.tmp "another's")
call(0 train mlp --device cpu --width 8 --layers 1 --steps 1 --time 0 --save ${WORK}/run)
file(GLOB left RELATIVE ${WORK} ${WORK}/run*)
if(NOT left STREQUAL "run;run.tmp")
  message(FATAL_ERROR "expected run and run.tmp, got ${left}")
endif()
