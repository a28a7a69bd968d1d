# Checks --report of brrr compare and brrr lab from outside: both files, that the page is valid (by TESTS, the program of
# the unit tests) and opens in a browser without a message on its console, refusals before long work.
include(${CMAKE_CURRENT_LIST_DIR}/calls.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(ENV{BRRR_CACHE_DIR} ${WORK}/cache)  # where no ceilings are kept

find_program(browser NAMES chromium chromium-browser google-chrome headless_shell)

# Messages on the console of a page, a line each.
function(open_page page)
  execute_process(COMMAND ${browser} --headless --no-sandbox --disable-gpu --enable-logging=stderr
    --user-data-dir=${WORK}/profile --dump-dom file://${page}
    RESULT_VARIABLE status OUTPUT_VARIABLE dom ERROR_VARIABLE log TIMEOUT 60)
  string(REGEX MATCHALL "[^\n]*CONSOLE[^\n]*" messages "${log}")
  set(status "${status}" PARENT_SCOPE)
  set(dom "${dom}" PARENT_SCOPE)
  set(messages "${messages}" PARENT_SCOPE)
endfunction()

# By how many pixels the content of a page exceeds a frame as wide as a phone: windows are never that narrow.
function(measure_excess page)
  file(READ "${page}" text)
  string(REPLACE "&" "&amp;" text "${text}")
  string(REPLACE "\"" "&quot;" text "${text}")
  file(WRITE ${WORK}/phone.html "<!DOCTYPE html><iframe width=390 height=844 style='border: 0' srcdoc=\"${text}\"></iframe>
<script>addEventListener('load', () => { const page = document.querySelector('iframe').contentDocument.documentElement;
  document.body.setAttribute('data-excess', page.scrollWidth - page.clientWidth); })</script>")
  open_page(${WORK}/phone.html)
  if(NOT dom MATCHES "data-excess=\"([0-9]+)\"")
    message(FATAL_ERROR "expected the width of ${page}, got status ${status}: ${messages}")
  endif()
  set(excess ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# A browser is of use if it shows what a page with an error says.
if(browser)
  file(WRITE ${WORK}/wrong.html "<!DOCTYPE html><title>wrong</title><script>nowhere();</script>")
  open_page(${WORK}/wrong.html)
  if(NOT messages MATCHES "nowhere")
    set(without "${browser} reports no errors of pages here (status ${status})")
    set(browser "")
  endif()
  if(browser)
    file(WRITE ${WORK}/wide.html "<!DOCTYPE html><title>wide</title><body style='margin: 0'><p style='width: 1000px'>\"wide\" &amp; long</p>")
    measure_excess(${WORK}/wide.html)
    if(NOT excess EQUAL 610)
      message(FATAL_ERROR "expected a page of 1000 pixels to exceed 390 by 610, got ${excess}")
    endif()
  endif()
else()
  set(without "no chromium")
endif()

function(check_page name)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env BRRR_TEST_PAGE=${WORK}/${name}.html ${TESTS} "[.page]"
    RESULT_VARIABLE status OUTPUT_VARIABLE problems)
  if(NOT status EQUAL 0 OR NOT problems MATCHES "All tests passed")
    message(FATAL_ERROR "expected ${name}.html to be valid, got\n${problems}")
  endif()
  if(NOT browser)
    return()
  endif()
  open_page(${WORK}/${name}.html)
  # The script of the page ran: it adds the buttons.
  if(NOT status EQUAL 0 OR messages OR NOT dom MATCHES "Copy table</button>")
    message(FATAL_ERROR "expected ${name}.html to open without messages, got status ${status}: ${messages}")
  endif()
  measure_excess(${WORK}/${name}.html)
  if(NOT excess EQUAL 0)
    message(FATAL_ERROR "expected ${name}.html to fit 390 pixels, got ${excess} pixels more")
  endif()
endfunction()

function(expect_in text)
  foreach(part IN LISTS ARGN)
    string(FIND "${text}" "${part}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "expected '${part}' in\n${text}")
    endif()
  endforeach()
endfunction()

# --- compare ---

set(mlp compare mlp --device cpu --batch 8 --width 16 --layers 3 --steps 2 --time 0.02)
call(0 ${mlp} --remat all --report ${WORK}/modes.html)
expect_in("${out}" "\nreport           ${WORK}/modes.html, ${WORK}/modes.json\n" "fused full")
check_page(modes)
file(READ ${WORK}/modes.html page)
expect_in("${page}" "<h1>mlp: batch 8, width 16, 3 layers, f32 on cpu</h1>" "<dt>date</dt><dd>20"
  "<dd>brrr compare mlp --device cpu --batch 8 " "predicted before" "Time of a step by mode"
  "Roofline of a fused full step" "Planned memory over a graph step"
  "defaults, not measured" "<code>modes.json</code>" "Verdict</h2>" "No verdict: default ceilings"
  "Order of the modes: fastest first: ")
file(READ ${WORK}/modes.json out)
expect(agree ON)
expect(report sections 0 blocks 1 kind table)
member(report sections 0 blocks 1 rows)
string(JSON count LENGTH "${found}")
if(NOT count EQUAL 7)
  message(FATAL_ERROR "expected seven rows in the report's table, got ${found}")
endif()
# The bars are the numbers of the rows.
set(document "${out}")
find_block(title "^Time of a step by mode$")
set(bars "${out}")
set(value_of_step_us 0)
set(value_of_predicted_us 1)
set(out "${document}")
foreach(row 0 1 6)
  foreach(bar step_us predicted_us)
    member(rows ${row} ${bar})
    string(JSON value GET "${bars}" groups ${row} values ${value_of_${bar}})
    if(NOT value STREQUAL found)
      message(FATAL_ERROR "expected the bar of ${bar} of row ${row} to be ${found}, got ${value}")
    endif()
  endforeach()
endforeach()
find_block(kind "^roofline$")
member(caption)
if(NOT found MATCHES "^Times of kernels are (measured \\(the host's clock, 3 steps\\)|predicted)\\. ")
  message(FATAL_ERROR "expected where the times come from, got ${found}")
endif()
set(by ${CMAKE_MATCH_1})
member(kernels 0 measured)
if(found AND by STREQUAL predicted OR NOT found AND NOT by STREQUAL predicted)
  message(FATAL_ERROR "expected times that are ${by}, got measured ${found}")
endif()
member(kernels 0 flops)
if(NOT found GREATER 0)
  message(FATAL_ERROR "expected a kernel with FLOPs, got ${found}")
endif()
set(out "${document}")
find_block(title "^Planned memory over")
member(series 0 name)
expect_in("${found}" "every value kept: at most ")

# --json prints what F.json has, and nothing else.
json(report ${mlp} --report ${WORK}/modes.html)
file(READ ${WORK}/modes.json written)
if(NOT written STREQUAL out)
  message(FATAL_ERROR "expected --json to print ${WORK}/modes.json, got\n${out}")
endif()
check_page(modes)
file(READ ${WORK}/modes.html page)
if(page MATCHES "Planned memory over")
  message(FATAL_ERROR "expected no memory by policy without --remat")
endif()
# Without --report there is no member of that name.
json(rows ${mlp})
string(JSON found ERROR_VARIABLE problem GET "${out}" report)
if(NOT problem)
  message(FATAL_ERROR "expected no report, got ${found}")
endif()

# A training that diverged has its report, and fails.
fails(1 "expected finite losses" ${mlp} --steps 9 --optimizer sgd --lr 1e30 --report ${WORK}/diverged.html)
check_page(diverged)
file(READ ${WORK}/diverged.html page)
expect_in("${page}" "class=\"warning\">Losses: not finite at step")

# --- lab ---

call(0 lab all --quick --device cpu --report "${WORK}/a report's page.html")
file(RENAME "${WORK}/a report's page.html" ${WORK}/lab.html)
file(RENAME "${WORK}/a report's page.json" ${WORK}/lab.json)
check_page(lab)
file(READ ${WORK}/lab.html page)
expect_in("${page}" "--quick: smaller sizes" "<a href=\"#section-2\">Growth of compute and of memory bandwidth"
  "The claim: run time is flat until 64 multiplications" "Rematerialization of a chain of pointwise rounds"
  "badge good\">confirmed" "GFLOP/s" "every value kept"
  "class=\"brrr-flame\"" "<figcaption>flame graph of the samples")
file(READ ${WORK}/lab.json out)
member(report facts command)
expect_in("${found}" "a report'\\''s page.html'")
string(JSON count LENGTH "${out}" findings)
string(JSON sections LENGTH "${out}" report sections)
math(EXPR wanted "${count} + 1")
if(NOT sections EQUAL wanted)
  message(FATAL_ERROR "expected a section for each of ${count} experiments and a summary, got ${sections}")
endif()
expect(report sections 1 title "Growth of compute and of memory bandwidth")
expect(report sections 1 badge confirmed)
member(findings 0 plot series 1 points 2 1)
set(point ${found})
foreach(block RANGE 2 5)
  string(JSON kind GET "${out}" report sections 1 blocks ${block} kind)
  if(kind STREQUAL "lines")
    expect(report sections 1 blocks ${block} series 1 points 2 1 ${point})
    set(compared ON)
    break()
  endif()
endforeach()
if(NOT compared)
  message(FATAL_ERROR "expected the plot of the first experiment in its section")
endif()
json(report lab growth --quick --device cpu --report ${WORK}/growth.html)
check_page(growth)

# --- Refusals, before anything runs ---

refused(2 "--report: expected a file's name that ends in .html, got report.json" ${mlp} --report report.json)
refused(2 "--report: expected a file's name that ends in .html, got .html" lab growth --report .html)
refused(2 "unexpected argument|--report" lab list --report ${WORK}/list.html)
refused(1 "\\[report\\] " ${mlp} --report ${WORK}/nowhere/modes.html)
refused(1 "\\[report\\] " lab all --report ${WORK}/nowhere/lab.html)
file(MAKE_DIRECTORY ${WORK}/taken.json)
refused(1 "\\[report\\] .*taken.json" lab all --report ${WORK}/taken.html)

# Last, so that whatever else fails is not hidden: ctest shows the test as skipped by this line.
if(NOT browser)
  message("SKIPPED: no page was opened in a browser: ${without}; all else passed")
endif()
