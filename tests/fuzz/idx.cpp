// libFuzzer's entry for idx files: clang++ -fsanitize=fuzzer,address,undefined.
#include "tests/harness/idx_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  interchange::check_idx(std::as_bytes(std::span(data, size)));
  return 0;
}
