// brrr_gpu_tests needs a GPU.
#include "tests/harness/suite.h"
#include "brrr/tensor/runtime.h"

std::string brrr::testing::prepare_suite() {
  if (cuda_is_available()) return "";
  return "no GPU tests were run: " + cuda_runtime().why_none();
}
