# Options of the build, and the compiler flags that follow from them.
set(BRRR_CUDA AUTO CACHE STRING "CUDA support: AUTO (where the toolkit's headers are found), ON, OFF")
set_property(CACHE BRRR_CUDA PROPERTY STRINGS AUTO ON OFF)
if(PROJECT_IS_TOP_LEVEL)
  option(BUILD_SHARED_LIBS "Build brrr as a shared library" ON)  # within another project that project decides
endif()
option(BRRR_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(BRRR_BUILD_CLI "Build the program brrr" ${PROJECT_IS_TOP_LEVEL})
option(BRRR_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(BRRR_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(BRRR_INSTALL "Install brrr" ${PROJECT_IS_TOP_LEVEL})
option(BRRR_BUILD_FUZZERS "Build the fuzz targets; needs Clang" OFF)
option(BRRR_WERROR "Treat warnings as errors; our presets do" OFF)
set(BRRR_UNITY 8 CACHE STRING "How many sources of a folder are compiled as one file; 1: each alone")
set(BRRR_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize=")

# Within another project the build type and the folders of outputs are that project's.
if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
endif()

add_library(brrr_compile_options INTERFACE)
target_compile_features(brrr_compile_options INTERFACE cxx_std_20)
target_compile_options(brrr_compile_options INTERFACE
  -Wall -Wextra $<$<BOOL:${BRRR_WERROR}>:-Werror>
  # Results must not depend on contraction to FMA; -ffast-math is used nowhere.
  -ffp-contract=off
  # g++ 12 and 13 report false overflows and overlaps in buffers of fmt and std::string.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict>)
# For the project's own sources: names of brrr::core without the namespace.
add_library(brrr_inside INTERFACE)
target_link_libraries(brrr_inside INTERFACE brrr_compile_options)
target_compile_options(brrr_inside INTERFACE -include ${CMAKE_CURRENT_SOURCE_DIR}/tensor/core_names.h)
if(BRRR_SANITIZE)
  # Every finding of a sanitizer ends the program.
  target_compile_options(brrr_compile_options INTERFACE -fsanitize=${BRRR_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(brrr_compile_options INTERFACE -fsanitize=${BRRR_SANITIZE})
endif()
