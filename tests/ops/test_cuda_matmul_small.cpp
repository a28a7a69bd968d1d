// Small matrix products on CUDA, tested without a GPU: what is launched for them, and how operands
// are read.
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/small_product.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/small_product.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::jit;

namespace {

Tensor counted(const Dims& shape) {
  Tensor x = zeros(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>((i * 7 + 3) % 11 - 5);
  return x;
}

using View = Tensor (*)(const Tensor&);
Tensor as_is(const Tensor& x) { return x; }
Tensor transposed(const Tensor& x) { return transpose(x, -1, -2); }
Tensor thin(const Tensor& x) { return slice(x, -1, 0, x.size(-1), 2); }

}  // namespace

TEST_CASE("small products are one launch of a kernel for their operands' layouts",
          "[cuda_matmul]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  testing::define_small_product(fake);
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    ::setenv("BRRR_CACHE", "off", 1);
    std::set<std::string> seen;
    // Views are made on either side: a copy to the device keeps no layout.
    const auto check = [&](const Tensor& stored_a, View view_a, const Tensor& stored_b, View view_b,
                           const Tensor& row, const std::string& layouts) {
      const Tensor a = view_a(stored_a), b = view_b(stored_b);
      INFO(a.describe() << " x " << b.describe() << ", " << layouts);
      const std::vector<float> expected =
          to_vector<float>(row.defined() ? affine(a, b, row) : matmul(a, b));
      const Tensor on_a = view_a(to(stored_a, cuda())), on_b = view_b(to(stored_b, cuda()));
      const Tensor on_row = row.defined() ? to(row, cuda()) : row;
      synchronize(cuda());
      const std::size_t before = fake.compiled().size();
      cu::count_calls(true);
      const Tensor d = row.defined() ? affine(on_a, on_b, on_row) : matmul(on_a, on_b);
      CHECK(cu::call_count("cuLaunchKernelEx") == 1);
      CHECK(cu::call_count("cublasLtMatmul") == 0);
      cu::count_calls(false);
      CHECK(to_vector<float>(d) == expected);
      if (seen.insert(layouts).second) {
        REQUIRE(fake.compiled().size() == before + 1);
        CHECK(fake.compiled().back().find(layouts) != std::string::npos);
      } else {
        CHECK(fake.compiled().size() == before);
      }
    };
    const std::string along = "StoredFactor<k_contiguous> FactorA;",
                      across = "StoredFactor<mn_contiguous> FactorA;",
                      strided = "StoredFactor<strided> FactorA;";
    const std::string and_along = "\ntypedef StoredFactor<k_contiguous> FactorB;",
                      and_across = "\ntypedef StoredFactor<mn_contiguous> FactorB;",
                      and_strided = "\ntypedef StoredFactor<strided> FactorB;";
    const Tensor none;
    // As a linear layer asks for them: x W^T + row, g W, g^T x.
    check(counted({20, 24}), as_is, counted({36, 24}), transposed, counted({36}),
          along + and_along);
    check(counted({20, 24}), as_is, counted({24, 36}), as_is, none, along + and_across);
    check(counted({20, 24}), transposed, counted({20, 36}), as_is, none, across + and_across);
    check(counted({20, 24}), as_is, counted({24, 36}), as_is, counted({36}), along + and_across);
    // 16 bytes are four elements; pairs of columns need an even number of them.
    check(counted({20, 23}), as_is, counted({23, 36}), as_is, none, strided + and_across);
    check(counted({20, 24}), as_is, counted({24, 35}), as_is, none, along + and_strided);
    check(counted({23, 20}), transposed, counted({23, 35}), as_is, none, across + and_strided);
    check(counted({20, 46}), thin, counted({23, 36}), as_is, none, strided + and_across);
    check(counted({20, 46}), thin, counted({23, 70}), thin, counted({35}), strided + and_strided);
    // Batches, and operands that all of a batch share.
    check(counted({3, 20, 24}), as_is, counted({3, 24, 36}), as_is, none, along + and_across);
    check(counted({20, 24}), as_is, counted({3, 24, 36}), as_is, none, along + and_across);
    check(counted({3, 20, 24}), as_is, counted({3, 36, 24}), transposed, none, along + and_along);
    ::unsetenv("BRRR_CACHE");
  }
}

TEST_CASE("a small product of a batch with two strides is not launched as one with one",
          "[cuda_matmul]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  testing::define_small_product(fake);
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    const Tensor heads = transpose(to(counted({3, 2, 20, 24}), cuda()), 0, 1),
                 b = to(counted({2, 3, 24, 36}), cuda());
    cu::count_calls(true);
    matmul(heads, b);
    CHECK(cu::call_count("cuLaunchKernelEx") + cu::call_count("cublasLtMatmul") > 1);
    cu::count_calls(false);
  }
}

TEST_CASE("a small product that cannot be launched is an error, and the next is right",
          "[cuda_matmul]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  testing::define_small_product(fake);
  {
    const MatmulPrecisionGuard tf32(Precision::tf32);
    const Tensor a = counted({20, 24}), b = counted({24, 36});
    const Tensor on_a = to(a, cuda()), on_b = to(b, cuda());
    const std::vector<float> expected = to_vector<float>(matmul(a, b));
    CHECK(to_vector<float>(matmul(on_a, on_b)) == expected);
    cu::fail_call("cuLaunchKernelEx", 1, CUDA_ERROR_UNKNOWN);
    CHECK_THROWS_AS(matmul(on_a, on_b), CudaError);
    cu::clear_faults();
    cu::count_calls(true);
    for (int i = 0; i < 5; ++i) CHECK(to_vector<float>(matmul(on_a, on_b)) == expected);
    CHECK(cu::call_count("cuMemAlloc") == 0);
    cu::count_calls(false);
  }
}

TEST_CASE("every form of the small product's kernel compiles", "[cuda_matmul]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  constexpr OperandLayout kLayouts[] = {OperandLayout::k_contiguous, OperandLayout::mn_contiguous,
                                        OperandLayout::strided};
  for (const int architecture : {80, 90}) {
    int ahead = 0;
    for (const DType dtype : {f32, f16, bf16}) {
      for (const OperandLayout a : kLayouts) {
        for (const OperandLayout b : kLayouts) {
          const std::string cubin = jit::compile_to_cubin(
              matmul_small_source_of_call({dtype, a, b, 1 + ahead++ % 2}), architecture);
          for (const auto& kernel : testing::resources_of(cubin)) {
            CHECK(kernel.registers <= 128);  // two blocks a multiprocessor at least
            CHECK(kernel.local_bytes == 0);
          }
        }
      }
    }
  }
}
