# Which BLAS configuring accepts, on a project that only includes cmake/blas.cmake. Fake libraries are made here: a reference
# BLAS, which multiplies rightly and is not OpenBLAS, and an OpenBLAS that multiplies wrongly.
# In: SOURCE, WORK, GENERATOR, COMPILER, and BLAS and BRRR, what the main build uses and its program.
file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/project/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
  "include(${SOURCE}/cmake/blas.cmake)\nmessage(STATUS \"uses \${BRRR_BLAS_SUMMARY}\")\n")
file(WRITE ${WORK}/reference.cpp "
extern \"C\" void sgemm_() {}
extern \"C\" void cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float* c,
                            int) {
  const float right[] = {17, 23, 39, 53};
  for (int i = 0; i < 4; ++i) c[i] = right[i];
}\n")
file(WRITE ${WORK}/wrong.cpp "
extern \"C\" void sgemm_() {}
extern \"C\" void cblas_sgemm(...) {}
extern \"C\" char* openblas_get_config() { static char text[] = \"OpenBLAS 9\"; return text; }\n")

# make_library(FOLDER NAME SOURCE)
function(make_library folder name source)
  file(MAKE_DIRECTORY ${WORK}/${folder})
  execute_process(COMMAND ${COMPILER} -shared -fPIC ${WORK}/${source}.cpp -o ${WORK}/${folder}/lib${name}.so
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()
make_library(reference openblas reference)
make_library(reference blas reference)
make_library(wrong openblas wrong)
make_library(no_openblas blas reference)

# configure(FOLDER SETTING...): sets `status` and `output`. Libraries are looked for in that folder of fake libraries
# only, or where the system has them.
function(configure folder)
  set(where -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=ON)
  if(NOT folder STREQUAL "system")
    set(where -DCMAKE_LIBRARY_PATH=${WORK}/${folder} -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF)
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/project -B ${WORK}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} "-UBLAS*" -UBRRR_BLAS -UCMAKE_LIBRARY_PATH ${where} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  set(status ${status} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()
function(refused what)
  configure(${ARGN})
  foreach(part ${what} "libopenblas-dev" "-DBRRR_BLAS=")
    string(FIND "${output}" "${part}" at)
    if(status EQUAL 0 OR at EQUAL -1)
      message(FATAL_ERROR "expected a refusal with \"${part}\", got status ${status} and\n${output}")
    endif()
  endforeach()
endfunction()
function(accepted what)
  configure(${ARGN})
  if(NOT status EQUAL 0 OR NOT output MATCHES "uses ${what}")
    message(FATAL_ERROR "expected to use ${what}, got status ${status} and\n${output}")
  endif()
endfunction()

refused("does not link" reference)
refused("was not found" no_openblas)
refused("does not run;got [0 0; 0 0]" wrong)
refused("was not found" no_openblas -DBRRR_BLAS=FLAME)
accepted("Generic \\(.*libblas.so" no_openblas -DBRRR_BLAS=Generic)
if(BLAS STREQUAL "OpenBLAS")
  accepted("OpenBLAS [0-9.]+ .*\\(.*openblas" system)
  accepted("linked, but not run" system --fresh -DCMAKE_SYSTEM_NAME=Linux)  # to name a system is to build for another

  # The library itself, not a name that stands for it: Debian lets libblas.so.3 be either.
  execute_process(COMMAND ldd ${BRRR} OUTPUT_VARIABLE linked COMMAND_ERROR_IS_FATAL ANY)
  if(linked MATCHES "libblas" OR (linked MATCHES "libbrrr\\.so" AND NOT linked MATCHES "libopenblas"))
    message(FATAL_ERROR "expected libopenblas and no libblas among\n${linked}")
  endif()

  # The program says so too.
  execute_process(COMMAND ${BRRR} info OUTPUT_VARIABLE info COMMAND_ERROR_IS_FATAL ANY)
  if(NOT info MATCHES "\nBLAS +OpenBLAS [0-9.]+ [^\n]*, [^\n]*openblas[^\n]*\n")
    message(FATAL_ERROR "expected a line that names OpenBLAS and its file, got\n${info}")
  endif()
  execute_process(COMMAND ${BRRR} info --json OUTPUT_VARIABLE info COMMAND_ERROR_IS_FATAL ANY)
  string(JSON last LENGTH "${info}" libraries)
  math(EXPR last "${last} - 1")
  foreach(field name version file)
    string(JSON ${field} GET "${info}" libraries ${last} ${field})
  endforeach()
  if(NOT "${name} ${version} ${file}" MATCHES "^BLAS OpenBLAS [0-9.]+ .*/[^/]*openblas[^/]*$")
    message(FATAL_ERROR "expected OpenBLAS's version and file last among libraries of\n${info}")
  endif()
endif()

# ./dev looks for OpenBLAS as CMake does. Its g++ finds the fake libraries first.
foreach(folder reference wrong)
  file(WRITE ${WORK}/${folder}/g++ "#!/bin/sh\nexec ${COMPILER} -L${WORK}/${folder} -Wl,-rpath,${WORK}/${folder} \"$@\"\n")
  file(CHMOD ${WORK}/${folder}/g++ PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "PATH=${WORK}/${folder}:$ENV{PATH}" ${SOURCE}/dev packages --missing
    OUTPUT_VARIABLE missing COMMAND_ERROR_IS_FATAL ANY)
  if(NOT missing MATCHES "libopenblas-dev")
    message(FATAL_ERROR "./dev takes ${WORK}/${folder}/libopenblas.so for OpenBLAS")
  endif()
endforeach()
