// The texts that the fake compiler got of fused kernels, compiled by NVRTC, which needs no GPU.
#pragma once

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/kernel_sources.h"
#include "tests/harness/skip.h"

namespace brrr::testing {

inline bool has_nvrtc_or_skips() {
  const std::string why = cu::open_library(cu::Library::nvrtc);
  if (!why.empty()) skip(why);
  return why.empty();
}

// Without repetitions.
inline std::vector<std::string> fused_texts(const FakeCuda& fake) {
  std::set<std::string> texts;
  for (const std::string& text : fake.compiled()) {
    if (text.find("namespace of_fused") != std::string::npos) texts.insert(own_text(text));
  }
  return {texts.begin(), texts.end()};
}

// Checks that they compile and that each block's shared memory is there without asking for more.
// The fake driver must be gone.
inline void check_real_kernels(std::span<const std::string> texts, int architecture) {
  constexpr std::size_t kTogether = 32;  // NVRTC reads its preludes once a program
  constexpr int kReserved = 1024;        // of each block, by the system
  REQUIRE_FALSE(texts.empty());
  for (std::size_t i = 0; i < texts.size(); i += kTogether) {
    std::string cubin;
    REQUIRE_NOTHROW(
        cubin = jit::compile_to_cubin(
            joined(texts.subspan(i, std::min(kTogether, texts.size() - i))), architecture));
    for (const KernelResources& kernel : resources_of(cubin)) {
      INFO(kernel.entry);
      CHECK(kernel.shared_bytes <= 48 * 1024 + (architecture >= 90 ? kReserved : 0));
    }
  }
}

}  // namespace brrr::testing
