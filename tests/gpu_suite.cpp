// brrr_gpu_tests needs a GPU.
#include "brrr/tensor/runtime.h"
#include "tests/suite.h"

std::string brrr::testing::prepare_suite() {
  if (cuda_is_available()) return "";
  return "no GPU tests were run: " + cuda_runtime().why_none();
}
