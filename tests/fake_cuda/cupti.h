// A CUPTI for the fake driver. Without one, a fake driver's CUPTI refuses to start.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/fake_cuda/driver.h"
#include <brrr/tensor/cuda_api.h>

namespace brrr::testing {

#if BRRR_HAS_CUPTI

struct FakeCuptiOptions {
  std::size_t dropped = 0;       // records that it says it dropped
  bool without_fills = false;    // refuses to record these
  std::size_t lost_kernels = 0;  // that it records nothing of, and says nothing
  bool nodes_reversed = false;   // numbers nodes against the order of capture
  bool other_symbols = false;    // kernels of graphs are not those that were captured
};

// Its clock, where none is registered, is ahead of the host's by this.
inline constexpr std::int64_t kFakeCuptiOffset = 3'600'000'000'000;

// Within the life of a FakeCuda.
class FakeCupti {
 public:
  explicit FakeCupti(FakeCuptiOptions options = {});
  ~FakeCupti();
  FakeCupti(const FakeCupti&) = delete;
  FakeCupti& operator=(const FakeCupti&) = delete;

  // Whether a subscriber, an enabled kind or a pushed id is left.
  bool in_use() const;
};

#endif

}  // namespace brrr::testing
