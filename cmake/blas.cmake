# Finds the BLAS for CPU matrix products: OpenBLAS, unless BRRR_BLAS names another. A probe that calls it is linked and
# run, because file names prove little: cblas.h and libblas.so may belong to the reference BLAS, which takes 20 times as
# long.
set(BRRR_BLAS OpenBLAS CACHE STRING
  "BLAS of CPU matrix products: OpenBLAS, or another of FindBLAS's names (Generic, FLAME, Intel10_64lp_seq, ...)")

# Sets BRRR_BLAS_LIBRARIES and BRRR_BLAS_SUMMARY.
function(brrr_find_blas)
  string(CONCAT advice "Install OpenBLAS (libopenblas-dev on Debian and Ubuntu; `./dev packages` installs all that is "
    "missing), or choose another BLAS with -DBRRR_BLAS=NAME, NAME as FindBLAS has it.")
  set(BLA_VENDOR ${BRRR_BLAS})
  find_package(BLAS QUIET)
  if(NOT BLAS_FOUND)
    message(FATAL_ERROR "brrr needs ${BRRR_BLAS} for matrix products, and it was not found. ${advice}")
  endif()

  set(probe ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blas_probe.cpp)
  set(settings COMPILE_DEFINITIONS -DBRRR_OPENBLAS=${BRRR_OPENBLAS} -DBRRR_BLAS="${BRRR_BLAS}"
    LINK_LIBRARIES ${BLAS_LIBRARIES})
  unset(BRRR_BLAS_LINKS CACHE)
  unset(BRRR_BLAS_RUNS CACHE)
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    try_compile(BRRR_BLAS_LINKS SOURCES ${probe} ${settings} OUTPUT_VARIABLE linker_says)
    set(BRRR_BLAS_RUNS 0)
    set(output "linked, but not run, since this is a cross build")
  else()
    try_run(BRRR_BLAS_RUNS BRRR_BLAS_LINKS SOURCES ${probe} ${settings} COMPILE_OUTPUT_VARIABLE linker_says
      RUN_OUTPUT_VARIABLE output)
    string(STRIP "${output}" output)
  endif()
  if(NOT BRRR_BLAS_LINKS)
    message(FATAL_ERROR "brrr needs ${BRRR_BLAS} for matrix products, and ${BLAS_LIBRARIES} is not it: a program that "
      "calls it does not link. ${advice}\n${linker_says}")
  endif()
  if(NOT BRRR_BLAS_RUNS EQUAL 0)
    message(FATAL_ERROR "brrr needs ${BRRR_BLAS} for matrix products, and a program that calls ${BLAS_LIBRARIES} does "
      "not run (${BRRR_BLAS_RUNS}). ${advice}\n${output}")
  endif()
  set(BRRR_BLAS_LIBRARIES "${BLAS_LIBRARIES}" PARENT_SCOPE)
  set(BRRR_BLAS_SUMMARY "${output} (${BLAS_LIBRARIES})" PARENT_SCOPE)
endfunction()

if(BRRR_BLAS STREQUAL "OpenBLAS")
  set(BRRR_OPENBLAS 1)
else()
  set(BRRR_OPENBLAS 0)
endif()
brrr_find_blas()
