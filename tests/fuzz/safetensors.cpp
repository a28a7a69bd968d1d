// libFuzzer's entry for safetensors files: clang++ -fsanitize=fuzzer,address,undefined.
#include "tests/harness/interchange.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  interchange::check_safetensors(std::as_bytes(std::span(data, size)));
  return 0;
}
