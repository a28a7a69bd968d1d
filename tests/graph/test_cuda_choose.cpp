// What times put apart in fused steps on CUDA. Nothing here needs a GPU.
#include "brrr/ops/random_state.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/choose_check.h"

using namespace brrr;

TEST_CASE("choose: whatever times say, what is fused again on CUDA is a graph", "[choose]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.capacity = std::size_t{8} << 30, .with_nvrtc = true});
  test::check_random_choices(cuda(0), 57, 8);
  release_random_state();
  CHECK(fake.problem() == "");
}
