// Calls of generated kernels on the fake driver: the kernel chosen for each layout, its arguments,
// and that a second call compiles nothing. GPU tests check what the kernels compute.
#include <algorithm>
#include <cstring>
#include <set>

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"

using namespace brrr;
using testing::FakeCuda;
using testing::FakeLaunch;

namespace {

Tensor ones_on(Device device, const Dims& shape, DType dtype = f32) {
  return make_tensor(dtype, shape, device);
}

// What the geometry argument of a kernel over N operands looks like.
struct SmallGeometry {
  std::int64_t count, size[8];
  std::uint32_t multiplier[8], shift[8];
  std::int64_t stride[2][8];
};

}  // namespace

TEST_CASE("contiguous operands take the flat kernel", "[cuda_generated]") {
  const testing::Caching on;
  FakeCuda fake({.with_nvrtc = true});
  struct Seen {
    int launches = 0;
    unsigned blocks = 0, threads = 0;
  };
  auto seen = std::make_shared<Seen>();
  fake.define_kernel("add_f32", {8, 8, 8, 8}, [seen](const FakeLaunch& launch) {
    ++seen->launches;
    seen->blocks = launch.grid[0];
    seen->threads = launch.block[0];
    float* out = launch.argument<float*>(0);
    const float *a = launch.argument<const float*>(1), *b = launch.argument<const float*>(2);
    for (std::int64_t i = 0; i < launch.argument<std::int64_t>(3); ++i) out[i] = a[i] + b[i];
  });
  {
    const std::vector<float> values = {1, 2, 3, 4, 5};
    const Tensor a = tensor<float>(std::span<const float>(values), {5}, cuda(0));
    const Tensor sum = a + a;
    synchronize(cuda(0));
    CHECK(seen->launches == 1);
    CHECK(seen->blocks == 1);
    std::vector<float> result(5);
    copy_to_host(result.data(), sum);
    CHECK(result == std::vector<float>{2, 4, 6, 8, 10});

    const jit::CompilerStats before = jit::compiler_stats();
    cu::count_calls(true);
    for (int i = 0; i < 10; ++i) a + a;
    CHECK(cu::call_count("cuLaunchKernelEx") == 10);
    CHECK(cu::call_count("cuModuleGetFunction") == 0);
    CHECK(cu::call_count("cuMemAlloc") == 0);
    cu::count_calls(false);
    CHECK(jit::compiler_stats().compiled == before.compiled);
    CHECK(jit::compiler_stats().memory_hits == before.memory_hits);
    synchronize(cuda(0));
    CHECK(seen->launches == 11);

    // Nothing to do is nothing launched.
    const Tensor none = ones_on(cuda(0), {0, 3});
    none + none;
    synchronize(cuda(0));
    CHECK(seen->launches == 11);
  }
}

TEST_CASE("an operand of one element keeps the others flat", "[cuda_generated]") {
  const testing::NoDiskCache off;  // the text is seen when it is compiled
  FakeCuda fake({.with_nvrtc = true});
  auto counts = std::make_shared<std::vector<std::int64_t>>();
  fake.define_kernel("mul_f32", {8, 8, 8, 8}, [counts](const FakeLaunch& launch) {
    float* out = launch.argument<float*>(0);
    const float *a = launch.argument<const float*>(1), *b = launch.argument<const float*>(2);
    counts->push_back(launch.argument<std::int64_t>(3));
    for (std::int64_t i = 0; i < counts->back(); ++i) out[i] = a[i] * b[0];
  });
  {
    const Tensor x = tensor<float>({1, 2, 3}, {3}, cuda(0)), by = full({}, 2, {.device = cuda(0)});
    fake.run_all();
    mul(x, by);
    mul(x, slice(x, 0, 1, 2));  // at another alignment
    mul(by, by);
    mul(x, expand(by, {3}));
    mul(x, expand(reshape(by, {1, 1}), {1, 3}));
    synchronize(cuda(0));
  }
  CHECK(*counts == std::vector<std::int64_t>{3, 3, 1, 3, 3});
  const std::vector<std::string> texts = fake.compiled();
  CHECK(std::ranges::any_of(texts, [](const std::string& text) {
    return text.find("W = 4,") != std::string::npos &&
           text.find("const float one1 = widen(*in1);") != std::string::npos;
  }));
}

TEST_CASE("Adam's step is one launch over the memory of its operands", "[cuda_generated]") {
  FakeCuda fake({.with_nvrtc = true});
  struct Seen {
    std::vector<void*> pointers;
    std::vector<float> numbers;
    std::int64_t count = 0;
  };
  auto seen = std::make_shared<std::vector<Seen>>();
  // Three outputs, six operands, a rate on the device; four numbers.
  fake.define_kernel("adam_step_f32", {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 8},
                     [seen](const FakeLaunch& launch) {
                       Seen one;
                       for (int i = 0; i < 10; ++i)
                         one.pointers.push_back(launch.argument<void*>(i));
                       for (int i = 10; i < 14; ++i)
                         one.numbers.push_back(launch.argument<float>(i));
                       one.count = launch.argument<std::int64_t>(14);
                       seen->push_back(one);
                     });
  const auto pointers = [](std::initializer_list<const Tensor*> tensors) {
    std::vector<void*> list;
    for (const Tensor* x : tensors) list.push_back(x->data());
    return list;
  };
  {
    const Tensor p = ones_on(cuda(0), {7, 143}), m = ones_on(cuda(0), {7, 143}),
                 v = ones_on(cuda(0), {7, 143}), g = ones_on(cuda(0), {7, 143}),
                 one = ones_on(cuda(0), {}), two = ones_on(cuda(0), {}),
                 rate = ones_on(cuda(0), {});
    const operands::adam_step of{p, m, v, g, one, two, rate, 0.5, 0.25, 0.125, 2};
    adam_step_(of);
    const auto [new_p, new_m, new_v] = adam_step(of);
    synchronize(cuda(0));
    REQUIRE(seen->size() == 2);
    CHECK((*seen)[0].pointers == pointers({&p, &m, &v, &p, &m, &v, &g, &one, &two, &rate}));
    CHECK((*seen)[1].pointers ==
          pointers({&new_p, &new_m, &new_v, &p, &m, &v, &g, &one, &two, &rate}));
    for (const Seen& each : *seen) {
      CHECK(each.numbers == std::vector<float>{0.5, 0.25, 0.125, 2});
      CHECK(each.count == 1001);
    }
    for (const Tensor* x : {&p, &m, &v}) CHECK(x->version() == 1);
    CHECK(g.version() == 0);
  }
}

TEST_CASE("numbers are arguments, in the type computed in", "[cuda_generated]") {
  FakeCuda fake({.with_nvrtc = true});
  auto got = std::make_shared<std::vector<double>>();
  fake.define_kernel("mul_bf16", {8, 8, 4, 8}, [got](const FakeLaunch& launch) {
    got->push_back(launch.argument<float>(2));
  });
  fake.define_kernel("mul_i64", {8, 8, 8, 8}, [got](const FakeLaunch& launch) {
    got->push_back(static_cast<double>(launch.argument<std::int64_t>(2)));
  });
  {
    ones_on(cuda(0), {4}, bf16) * 2.5;
    ones_on(cuda(0), {4}, i64) * 7;
    synchronize(cuda(0));
  }
  CHECK(*got == std::vector<double>{2.5, 7});
}

TEST_CASE("other layouts take the strided and the tiled kernel", "[cuda_generated]") {
  FakeCuda fake({.with_nvrtc = true});
  auto seen = std::make_shared<std::vector<SmallGeometry>>();
  fake.define_kernel("neg_f32", {8, 8, sizeof(SmallGeometry)}, [seen](const FakeLaunch& launch) {
    seen->push_back(launch.argument<SmallGeometry>(2));
  });
  {
    const Tensor x = ones_on(cuda(0), {64, 100});
    neg(transpose(x, 0, 1));
    neg(slice(x, 1, 0, 50));
    neg(expand(slice(x, 0, 0, 1), {64, 100}));
    synchronize(cuda(0));
  }
  REQUIRE(seen->size() == 3);
  // Transposed: the output's last dimension last, where the input has stride 100.
  CHECK((*seen)[0].count == 6400);
  CHECK((*seen)[0].stride[0][1] == 1);
  CHECK((*seen)[0].stride[1][1] == 100);
  CHECK((*seen)[0].stride[1][0] == 1);
  // Rows of 50 elements: vectors of two.
  CHECK((*seen)[1].count == 1600);
  CHECK((*seen)[1].size[1] == 25);
  CHECK((*seen)[1].stride[1][0] == 100);
  // One row for all: vectors of four, the same at each row.
  CHECK((*seen)[2].count == 1600);
  CHECK((*seen)[2].stride[1][0] == 0);
}

TEST_CASE("each layout has a kernel of its own, and keeps it", "[cuda_generated]") {
  const testing::NoDiskCache off;
  FakeCuda fake({.with_nvrtc = true});
  {
    const Tensor x = ones_on(cuda(0), {64, 100}), y = ones_on(cuda(0), {64, 100}, f64);
    for (int call = 0; call < 2; ++call) {
      neg(x);
      neg(slice(x, 1, 1, 100));
      neg(slice(x, 1, 0, 48));  // rows of vectors of 4 elements
      neg(slice(x, 1, 0, 50));  // of 2
      neg(slice(x, 1, 0, 49));  // of 1
      neg(transpose(x, 0, 1));
      neg(y);
      neg(slice(y, 1, 0, 48));
    }
    synchronize(cuda(0));
  }
  const std::vector<std::string> texts = fake.compiled();
  // The second and the fifth have the same layout but for their sizes.
  CHECK(texts.size() == 7);
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == 7);
}

TEST_CASE("reductions are split when there are few results", "[cuda_generated]") {
  const int major = GENERATE(8, 9);  // without clusters, and with them
  FakeCuda fake({.major = major, .with_nvrtc = true});
  struct Seen {
    std::vector<unsigned> parts;
    int joins = 0;
  };
  auto seen = std::make_shared<Seen>();
  fake.define_kernel("sum_f32", {},
                     [seen](const FakeLaunch& launch) { seen->parts.push_back(launch.grid[1]); });
  fake.define_kernel("sum_f32_join", {}, [seen](const FakeLaunch&) { ++seen->joins; });
  {
    const Tensor x = ones_on(cuda(0), {4096, 1024});
    sum(x, {1}, false);
    sum(x, {0}, false);
    sum(x);
    sum(transpose(x, 0, 1), {0}, true);
    sum(ones_on(cuda(0), {5, 0}), {1}, false);
    sum(ones_on(cuda(0), {40000, 64}), {0}, false);
    sum(ones_on(cuda(0), {8192, 1024}), {0}, false);
    synchronize(cuda(0));
  }
  REQUIRE(seen->parts.size() == 7);
  CHECK(seen->parts[0] == 1);
  // Narrow strips of columns fill the device; the parts of a cluster need no second kernel.
  CHECK(seen->parts[1] == (major == 9 ? 8 : 1));
  CHECK(seen->parts[2] > 1);
  CHECK(seen->parts[3] == 1);
  CHECK(seen->parts[4] == 1);
  CHECK(seen->parts[5] > 1);
  CHECK(seen->parts[6] == (major == 9 ? 8 : 1));
  CHECK(seen->joins == 2);
}
