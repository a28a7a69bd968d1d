# libFuzzer targets for the parsers of io/ and nn/data/, linked with tensor/ only. `./dev fuzz` builds and runs them.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "BRRR_BUILD_FUZZERS needs Clang, got ${CMAKE_CXX_COMPILER_ID}: set CMAKE_CXX_COMPILER=clang++")
endif()

set(brrr_fuzz_flags -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
file(GLOB brrr_fuzz_sources CONFIGURE_DEPENDS tensor/*.cpp io/*.cpp)
list(FILTER brrr_fuzz_sources EXCLUDE REGEX "/cuda_[a-z_]*\\.cpp$")
add_library(brrr_fuzzed OBJECT EXCLUDE_FROM_ALL ${brrr_fuzz_sources} tensor/cuda_absent.cpp nn/data/idx.cpp)
target_compile_definitions(brrr_fuzzed PUBLIC BRRR_HAS_CUDA=0)
target_compile_options(brrr_fuzzed PUBLIC ${brrr_fuzz_flags} PRIVATE -fsanitize=fuzzer-no-link)
target_include_directories(brrr_fuzzed PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(brrr_fuzzed PUBLIC brrr_inside fmt::fmt nlohmann_json::nlohmann_json
  Threads::Threads)

foreach(name npy safetensors idx)
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL tests/fuzz/${name}.cpp)
  target_link_libraries(fuzz_${name} PRIVATE brrr_fuzzed)
  target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endforeach()

add_executable(fuzz_seeds EXCLUDE_FROM_ALL tests/fuzz/seeds.cpp)
target_compile_features(fuzz_seeds PRIVATE cxx_std_20)
target_include_directories(fuzz_seeds PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
