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

if(WAY STREQUAL "installed")
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
  list(APPEND settings -DCMAKE_PREFIX_PATH=${WORK}/prefix)
else()
  # A project without settings keeps to have none.
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/plain -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
    -DBRRR_SOURCE=${SOURCE} -DBRRR_CUDA=${CUDA})
  list(APPEND settings -DBRRR_SOURCE=${SOURCE} -DBRRR_WERROR=${WERROR} -DBRRR_CUDA=${CUDA}
    "-DBRRR_SANITIZE=${SANITIZE}")
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build ${settings})
run(${CMAKE_COMMAND} --build ${WORK}/build --target consumer)
run(${WORK}/build/consumer)
