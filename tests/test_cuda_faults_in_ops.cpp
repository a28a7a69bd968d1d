// Every call into CUDA that ops make fails once, on the fake driver: from a device on which nothing
// has run, so that compiling, loading and planning are among the calls. The fake driver's kernels
// are written here. What kernels really compute is seen on a GPU (gpu_faults.cpp).
#include <cmath>
#include <cstring>

#include "measure/limits.h"
#include "ops/functions.h"
#include "ops/jit/geometry.h"
#include "tensor/cuda_faults.h"
#include "tensor/cuda_runtime.h"
#include "tensor/error.h"
#include "tests/catch.h"
#include "tests/cuda_memory.h"
#include "tests/fake_cuda.h"
#include "tests/fake_small_product.h"
#include "tests/op_faults.h"

using namespace brrr;
using namespace brrr::test;
using namespace brrr::testing;

namespace {

constexpr FakeOptions kDriver{
    .capacity = 256 * kMiB, .seed = 5, .with_nvrtc = true, .with_cublaslt = true};

template <class T>
T* pointer(const FakeLaunch& launch, int i) {
  return launch.argument<T*>(i);
}

// A flat kernel: out, then the operands, then the number of elements.
template <class Out, class F>
void define_flat(FakeCuda& fake, const char* name, std::vector<std::size_t> operands, F element) {
  const int last = static_cast<int>(operands.size()) + 1;
  operands.insert(operands.begin(), 8);
  operands.push_back(8);
  fake.define_kernel(name, operands, [=](const FakeLaunch& launch) {
    Out* out = pointer<Out>(launch, 0);
    for (std::int64_t i = 0; i < launch.argument<std::int64_t>(last); ++i)
      out[i] = element(launch, i);
  });
}

struct Scatter {  // as scatter.cu has it
  float* out;
  const float* source;
  const std::int64_t* index;
  std::int64_t places, bound, out_stride, source_stride, index_stride, position_stride;
};

void define_kernels(FakeCuda& fake) {
  define_small_product(fake);
  const auto in = [](const FakeLaunch& l, int operand, std::int64_t i) {
    return pointer<const float>(l, operand)[i];
  };
  define_flat<float>(fake, "copy_f32_f32", {8},
                     [=](const FakeLaunch& l, std::int64_t i) { return in(l, 1, i); });
  define_flat<float>(fake, "add_f32", {8, 8}, [=](const FakeLaunch& l, std::int64_t i) {
    return in(l, 1, i) + in(l, 2, i);
  });
  define_flat<float>(fake, "mul_f32", {8, 4}, [=](const FakeLaunch& l, std::int64_t i) {
    return in(l, 1, i) * l.argument<float>(2);
  });
  define_flat<bool>(fake, "ge_f32", {8, 4}, [=](const FakeLaunch& l, std::int64_t i) {
    return in(l, 1, i) >= l.argument<float>(2);
  });
  define_flat<float>(fake, "where_f32", {8, 8, 4}, [=](const FakeLaunch& l, std::int64_t i) {
    return pointer<const bool>(l, 1)[i] ? in(l, 2, i) : l.argument<float>(3);
  });
  define_flat<std::int64_t>(fake, "add_i64", {8, 8}, [=](const FakeLaunch& l, std::int64_t i) {
    return pointer<const std::int64_t>(l, 1)[i] + l.argument<std::int64_t>(2);
  });
  // Outputs, operands, the rate, then three weights, a decay of 0 and the number of elements.
  fake.define_kernel("adam_step_f32", {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 8},
                     [=](const FakeLaunch& l) {
                       const float rate = in(l, 9, 0), eps = l.argument<float>(12);
                       for (std::int64_t i = 0; i < l.argument<std::int64_t>(14); ++i) {
                         const float g = in(l, 6, i), m = in(l, 4, i), v = in(l, 5, i);
                         const float mean = m + l.argument<float>(10) * (g - m);
                         const float square = v + l.argument<float>(11) * (g * g - v);
                         const float root = std::sqrt(square / in(l, 8, 0)) + eps;
                         pointer<float>(l, 0)[i] = in(l, 3, i) - mean / (root * in(l, 7, 0)) * rate;
                         pointer<float>(l, 1)[i] = mean;
                         pointer<float>(l, 2)[i] = square;
                       }
                     });
  fake.define_kernel("sub_f32", {8, 8, 8, sizeof(jit::Geometry)}, [](const FakeLaunch& l) {
    const auto g = l.argument<jit::Geometry>(3);
    for (std::int64_t row = 0; row < g.size[0]; ++row) {
      for (std::int64_t column = 0; column < g.size[1]; ++column) {
        const auto at = [&](int k) { return row * g.stride[k][0] + column * g.stride[k][1]; };
        pointer<float>(l, 0)[at(0)] =
            pointer<const float>(l, 1)[at(1)] - pointer<const float>(l, 2)[at(2)];
      }
    }
  });
  fake.define_kernel("draw", {8, 8, 4, 8}, [](const FakeLaunch& l) {
    const auto* state = pointer<const std::int64_t>(l, 1);
    const auto place = l.argument<std::uint32_t>(2);
    for (std::int64_t i = 0; i < l.argument<std::int64_t>(3); ++i) {
      const auto mixed = static_cast<std::uint64_t>(state[0] * 31 + state[1] * 17 + place * 7 + i);
      pointer<float>(l, 0)[i] = static_cast<float>(mixed * 2654435761u % 1024) / 1024;
    }
  });
  fake.define_kernel(
      "scatter_serial", {sizeof(Scatter), sizeof(jit::Geometry), sizeof(cu::FaultSink)},
      [](const FakeLaunch& l) {
        const auto s = l.argument<Scatter>(0);
        for (std::int64_t j = 0; j < s.places; ++j)
          s.out[s.index[j * s.index_stride] * s.out_stride] += s.source[j * s.source_stride];
      });
  fake.define_kernel("fault_scaled", {8, 8, 8}, [](const FakeLaunch& l) {
    for (unsigned i = 0; i < l.block[0]; ++i) {
      pointer<float>(l, 1)[i] =
          pointer<const float>(l, 0)[i] * static_cast<float>(l.argument<double>(2));
    }
  });
  // A sum of everything: main leaves one partial sum for each row of blocks, join adds them.
  const std::size_t geometry = sizeof(jit::Geometry);
  fake.define_kernel("sum_f32", {8, 8, 8, geometry, geometry, 8, 8}, [](const FakeLaunch& l) {
    const auto reduced = l.argument<jit::Geometry>(4);
    const auto elements = l.argument<std::int64_t>(6);
    const std::int64_t part = l.argument<std::int64_t>(5) * (elements / reduced.count);
    for (unsigned y = 0; y < l.grid[1]; ++y) {
      float sum = 0;
      for (std::int64_t i = y * part; i < std::min(elements, (y + 1) * part); ++i)
        sum += pointer<const float>(l, 1)[i];
      pointer<float>(l, 2)[y] = sum;
    }
  });
  for (const char* join : {"sum_f32_join_warp", "sum_f32_join_block"}) {
    fake.define_kernel(join, {8, 8, geometry, 4, 8}, [](const FakeLaunch& l) {
      float sum = 0;
      for (int i = 0; i < l.argument<std::int32_t>(3); ++i) sum += pointer<const float>(l, 1)[i];
      *pointer<float>(l, 0) = sum;
    });
  }
}

struct NoDiskCache {
  NoDiskCache() { ::setenv("BRRR_CACHE", "off", 1); }
  ~NoDiskCache() { ::unsetenv("BRRR_CACHE"); }
};

// What is left at the driver when everything was given back: modules, which live as long as the
// process.
FakeCounts left_over(const FakeCuda& fake) {
  release_kept();
  CHECK(memory_stats(gpu).live == 0);
  CHECK(fake.problem() == "");
  cu::shut_down();
  return fake.counts();
}

long objects(const FakeCounts& c) {
  return c.allocations + c.pinned + c.streams + c.events + c.modules + c.graphs + c.executables +
         c.contexts + c.programs + c.library_objects;
}

}  // namespace

TEST_CASE("the fake driver's kernels compute what the CPU does", "[cuda_faults]") {
  const NoDiskCache off;
  for (const FaultWorkload& workload : fault_workloads()) {
    if (workload.name == "random numbers and dropout" || workload.name == "a registered op")
      continue;  // the CPU draws other numbers than the fake kernel, and lacks the op
    INFO(workload.name);
    const std::vector<Bits> expected = clean_run(workload, cpu);
    FakeCuda fake(kDriver);
    define_kernels(fake);
    CHECK(clean_run(workload, gpu) == expected);
    left_over(fake);
  }
}

TEST_CASE("a fault at every call of an op", "[cuda_faults]") {
  const NoDiskCache off;
  long faults = 0, thrown = 0;
  for (const FaultWorkload& workload : fault_workloads()) {
    INFO(workload.name);
    std::vector<Bits> clean;
    std::vector<std::pair<std::string_view, long>> calls;
    FakeCounts left;
    {
      FakeCuda fake(kDriver);
      define_kernels(fake);
      clean = clean_run(workload, gpu);
      left = left_over(fake);
    }
    {
      FakeCuda fake(kDriver);
      define_kernels(fake);
      calls = calls_of(workload, gpu);
      left_over(fake);
    }
    CHECK(calls.size() >= 3);
    for (const auto& [call, count] : calls) {
      const auto [first, second] = codes_of(call);
      for (long k = 1; k <= count; ++k) {
        for (const int code : {first, second}) {
          INFO(call << " number " << k << ", code " << code);
          FakeCuda fake(kDriver);
          define_kernels(fake);
          const FaultOutcome outcome = faulted_run(workload, gpu, call, k, code, clean);
          CHECK(outcome.problem == "");
          // What the driver refuses to destroy is still there, and nothing else.
          const bool destroys = call.find("Destroy") != std::string_view::npos;
          const FakeCounts now = left_over(fake);
          if (destroys) {
            CHECK(objects(now) - objects(left) <= 1);
          } else {
            CHECK(now == left);
          }
          ++faults;
          thrown += outcome.thrown;
        }
      }
    }
  }
  CHECK(thrown > faults / 2);
}

TEST_CASE("a measurement of cuBLASLt alone gives everything back when a call fails",
          "[cuda_faults]") {
  const NoDiskCache off;
  FakeCuda fake(kDriver);
  {
    const Tensor a[] = {tensor(std::vector<float>(12, 1.0f), {3, 4}, gpu)};
    const Tensor b[] = {tensor(std::vector<float>(20, 1.0f), {4, 5}, gpu)};
    const measure::MatmulProblem problem{.m = 3, .n = 5, .k = 4};
    cu::count_calls(true);
    measure::bare_matmul(gpu, problem, a, b);
    const auto calls = cu::call_counts();
    cu::count_calls(false);
    const long kept = fake.counts().library_objects;
    const std::int64_t live = memory_stats(gpu).live;
    for (const auto& [call, count] : calls) {
      if (!call.starts_with("cublasLt") || call.ends_with("Destroy")) continue;
      for (long k = 1; k <= count; ++k) {
        INFO(call << " number " << k);
        cu::fail_call(call, k, CUBLAS_STATUS_INTERNAL_ERROR);
        CHECK_THROWS_AS(measure::bare_matmul(gpu, problem, a, b), CudaError);
        CHECK(fake.counts().library_objects == kept);
        CHECK(memory_stats(gpu).live == live);
      }
    }
    cu::clear_faults();
  }
  left_over(fake);
}

TEST_CASE("a kernel that a module lacks is named", "[cuda_faults]") {
  const NoDiskCache off;
  FakeCuda fake(kDriver);
  cu::fail_call("cuModuleGetFunction", 1, CUDA_ERROR_NOT_FOUND);
  {
    const Tensor x = tensor({1, 2}, gpu);
    CHECK_THROWS_WITH(exp(x), Catch::Contains("[exp] cuModuleGetFunction failed for \"exp_f32\""));
  }
  left_over(fake);
}
