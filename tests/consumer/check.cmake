# Builds and runs the consumer against the installed package (WAY=installed) or the tree (WAY=subdirectory). The
# library's flags are those of the main build, so that with ccache the tree's way costs seconds.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGV}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(settings -G ${GENERATOR} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${COMPILER}
  "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
if(SANITIZE)
  list(APPEND settings "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()

# Without CMake, too: the folders of the prefix and nothing else, then what pkg-config says. brrr's own dependencies are
# the business of its library file, so a program names them only where that is an archive.
function(compile_by_hand)
  run(${COMPILER} -std=c++20 -I ${SOURCE}/tests/consumer/src ${SOURCE}/tests/consumer/main.cpp ${ARGN} ${flags}
    -Wl,-rpath,${prefix}/${LIBDIR} -o ${WORK}/by_hand)
  run(${WORK}/by_hand)
endfunction()
function(compile_by_pkg_config)
  find_program(PKG_CONFIG NAMES pkg-config pkgconf)
  if(NOT PKG_CONFIG)
    message(STATUS "no pkg-config here: brrr.pc is not tried")
    return()
  endif()
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs ${ARGN} brrr OUTPUT_VARIABLE package_flags RESULT_VARIABLE status
    ERROR_VARIABLE package_flags OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "pkg-config fails (${status}): ${package_flags}")
  endif()
  separate_arguments(package_flags UNIX_COMMAND "${package_flags}")
  compile_by_hand(${package_flags})
endfunction()

set(prefix ${WORK}/prefix)
if(SANITIZE)
  set(flags -fsanitize=${SANITIZE})
endif()
if(WAY STREQUAL "installed")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
  list(APPEND settings -DCMAKE_PREFIX_PATH=${prefix})
else()
  # A project without settings keeps to have none, and an archive of the tree is as good as the tree.
  file(MAKE_DIRECTORY ${WORK})
  execute_process(COMMAND ${CMAKE_COMMAND} -E tar cf ${WORK}/brrr.tar -- CMakeLists.txt LICENSE README.md cmake include
    tensor dispatch ops io autograd graph nn measure WORKING_DIRECTORY ${SOURCE} COMMAND_ERROR_IS_FATAL ANY)
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/plain -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DBRRR_SOURCE=${WORK}/brrr.tar -DBRRR_CUDA=${CUDA})
  if(NOT EXISTS ${WORK}/plain/_deps/brrr-src/include/brrr/tensor/tensor.h)
    message(FATAL_ERROR "what FetchContent unpacks has no include/brrr/tensor/tensor.h")
  endif()
  list(APPEND settings -DBRRR_SOURCE=${SOURCE} -DBRRR_WERROR=${WERROR} -DBRRR_CUDA=${CUDA}
    "-DBRRR_SANITIZE=${SANITIZE}" -DBRRR_INSTALL=ON -DCMAKE_INSTALL_PREFIX=${prefix}
    -DCMAKE_INSTALL_LIBDIR=${LIBDIR})
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build ${settings})
run(${CMAKE_COMMAND} --build ${WORK}/build --target consumer measured names)
run(${WORK}/build/consumer)
run(${WORK}/build/measured)
# A program that links brrr alone is watched where the environment asks for it.
set(ENV{BRRR_REPORT} -)
if(WAY STREQUAL "installed" AND SHARED)
  execute_process(COMMAND ${WORK}/build/consumer RESULT_VARIABLE status OUTPUT_VARIABLE report)
  if(status OR NOT report MATCHES "replayed = 15\nbrrr: step\ncalled +3 replays, graph")
    message(FATAL_ERROR "expected a report, got status ${status} and\n${report}")
  endif()
elseif(WAY STREQUAL "subdirectory")  # static libraries
  execute_process(COMMAND ${WORK}/build/consumer RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE refusal)
  if(NOT status OR NOT refusal MATCHES "expected a program that links brrr_measure for BRRR_REPORT")
    message(FATAL_ERROR "expected a refusal, got status ${status} and\n${refusal}")
  endif()
endif()
# One that links the library of measurements is watched, whatever kind of library that is.
execute_process(COMMAND ${WORK}/build/measured RESULT_VARIABLE status OUTPUT_VARIABLE report)
if(status OR NOT report MATCHES "\nbrrr: step\n")
  message(FATAL_ERROR "expected a report, got status ${status} and\n${report}")
endif()
unset(ENV{BRRR_REPORT})
run(${WORK}/build/names)

if(WAY STREQUAL "subdirectory")  # an archive
  run(${CMAKE_COMMAND} --install ${WORK}/build)
  compile_by_pkg_config(--static)
elseif(SHARED)
  compile_by_hand(-I ${prefix}/include -L ${prefix}/${LIBDIR} -lbrrr)
  compile_by_pkg_config()
endif()
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*)
list(FILTER headers INCLUDE REGEX "^brrr/ops/(cpu|cuda|jit)/|\\.inl$|^[^/]*$")
# half.h and, for graph/ceilings.h, ops/body_kernel.h include these.
list(REMOVE_ITEM headers brrr/tensor/half.inl brrr/tensor/strided_space.inl brrr/ops/jit/body.h)
if(headers)
  message(FATAL_ERROR "headers that only the library includes are installed: ${headers}")
endif()
if(NOT EXISTS ${prefix}/share/doc/brrr/LICENSE)
  message(FATAL_ERROR "the licence is not installed")
endif()
