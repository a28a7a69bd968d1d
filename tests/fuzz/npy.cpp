// libFuzzer's entry for .npy files: clang++ -fsanitize=fuzzer,address,undefined.
#include "tests/harness/interchange.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  interchange::check_npy(std::as_bytes(std::span(data, size)));
  return 0;
}
