// Ops registered at run time on a real GPU: expressions and kernels given as text agree with the
// CPU, and what does not compile or cannot be launched is an error that leaves the device usable.
#include <cmath>
#include <vector>

#include "brrr/tensor/allocator.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

double worst_difference(const Tensor& got, const Tensor& expected) {
  const std::vector<double> a = to_vector<double>(got), b = to_vector<double>(expected);
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / (1 + std::abs(b[i])));
  return worst;
}

double bound_of(DType dtype) { return dtype == f64 ? 1e-13 : dtype == f32 ? 2e-6 : 1e-2; }

void check_against_cpu(Op op, const Tensor& a, const Tensor& b, const Tensor& on_gpu_a,
                       const Tensor& on_gpu_b) {
  const Tensor expected = call_op(op, {a, b}), got = call_op(op, {on_gpu_a, on_gpu_b});
  INFO(a.describe() << " and " << b.describe());
  CHECK(got.device() == kGpu);
  CHECK(got.dtype() == expected.dtype());
  CHECK(std::ranges::equal(got.shape(), expected.shape()));
  CHECK(worst_difference(got, expected) <= bound_of(expected.dtype()));
}

OutputSpec like_input(const Call& call) {
  return {f32, call.input(0).device(), Dims(call.input(0).shape())};
}

// A row per block, kept in shared memory: more than the 48 KB that need no attribute.
constexpr const char* kRowSoftmax = R"(
extern __shared__ float row[];

__device__ float over_block(float value, bool largest) {
  __shared__ float partial[256];
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      const float other = partial[threadIdx.x + step];
      float& mine = partial[threadIdx.x];
      mine = largest ? (mine > other ? mine : other) : mine + other;
    }
    __syncthreads();
  }
  const float result = partial[0];
  __syncthreads();
  return result;
}

extern "C" __global__ void row_softmax(const float* x, float* y, i64 columns, double scale) {
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  float most = -__int_as_float(0x7f800000), total = 0;
  for (i64 c = threadIdx.x; c < columns; c += blockDim.x) {
    row[c] = x[c] * float(scale);
    most = row[c] > most ? row[c] : most;
  }
  most = over_block(most, true);
  for (i64 c = threadIdx.x; c < columns; c += blockDim.x) {
    row[c] = exp(row[c] - most);
    total += row[c];
  }
  total = over_block(total, false);
  for (i64 c = threadIdx.x; c < columns; c += blockDim.x) y[c] = row[c] / total;
})";

Op row_softmax() {
  static const Op op = [] {
    StructuredOp definition;
    definition.cost = cost_of_moving;
    definition.name = "test_row_softmax";
    definition.attributes = "columns scale:double";
    definition.infer = [](const Call& call, OutputSpec* outputs) {
      if (call.input(0).rank() != 2 || call.input(0).dtype() != f32)
        fail("[test_row_softmax] expected f32 of 2 dimensions, got " + call.input(0).describe());
      outputs[0] = like_input(call);
    };
    definition.cpu = [](const Call& call, Tensor* outputs) {
      const Tensor x = contiguous(call.input(0));
      const std::int64_t columns = x.size(1);
      for (std::int64_t r = 0; r < x.size(0); ++r) {
        const float* in = x.data<float>() + r * columns;
        float* out = outputs[0].data<float>() + r * columns;
        double most = -INFINITY, total = 0;
        for (std::int64_t c = 0; c < columns; ++c) most = std::max(most, in[c] * call.attrs[1].d());
        for (std::int64_t c = 0; c < columns; ++c)
          total += std::exp(in[c] * call.attrs[1].d() - most);
        for (std::int64_t c = 0; c < columns; ++c)
          out[c] = static_cast<float>(std::exp(in[c] * call.attrs[1].d() - most) / total);
      }
    };
    definition.cuda_kernel.entry = "row_softmax";
    definition.cuda_kernel.source = kRowSoftmax;
    definition.cuda_kernel.launch = [](const Call& call, const Tensor*) {
      LaunchConfig launch;
      launch.grid[0] = static_cast<unsigned>(call.input(0).size(0));
      launch.shared_bytes = static_cast<unsigned>(call.input(0).size(1) * 4);
      return launch;
    };
    return register_op(definition);
  }();
  return op;
}

// Five points, a tile with its border in shared memory; two outputs.
Op stencil() {
  static const Op op = [] {
    StructuredOp definition;
    definition.cost = cost_of_moving;
    definition.name = "test_stencil";
    definition.outputs = 2;
    definition.attributes = "rows columns weight:double";
    definition.infer = [](const Call& call, OutputSpec* outputs) {
      outputs[0] = outputs[1] = like_input(call);
    };
    definition.cpu = [](const Call& call, Tensor* outputs) {
      const Tensor x = contiguous(call.input(0));
      const std::int64_t rows = x.size(0), columns = x.size(1);
      const auto at = [&](std::int64_t r, std::int64_t c) {
        return r < 0 || c < 0 || r >= rows || c >= columns ? 0.0f
                                                           : x.data<float>()[r * columns + c];
      };
      const auto weight = static_cast<float>(call.attrs[2].d());
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const float around = (at(r - 1, c) + at(r + 1, c)) + (at(r, c - 1) + at(r, c + 1));
          outputs[0].data<float>()[r * columns + c] = at(r, c) + weight * around;
          outputs[1].data<float>()[r * columns + c] = around;
        }
      }
    };
    definition.cuda_kernel.entry = "stencil";
    definition.cuda_kernel.source = R"(
constexpr int kTile = 16;

extern "C" __global__ void stencil(const float* x, float* y, float* around, i64 rows, i64 columns,
                                   double weight) {
  __shared__ float tile[kTile + 2][kTile + 2];
  const i64 top = i64(blockIdx.y) * kTile - 1, left = i64(blockIdx.x) * kTile - 1;
  for (int i = threadIdx.y * kTile + threadIdx.x; i < (kTile + 2) * (kTile + 2); i += kTile * kTile) {
    const i64 r = top + i / (kTile + 2), c = left + i % (kTile + 2);
    tile[i / (kTile + 2)][i % (kTile + 2)] =
        r < 0 || c < 0 || r >= rows || c >= columns ? 0.0f : x[r * columns + c];
  }
  __syncthreads();
  const int i = threadIdx.y + 1, j = threadIdx.x + 1;
  const i64 r = top + i, c = left + j;
  if (r >= rows || c >= columns) return;
  const float sum = (tile[i - 1][j] + tile[i + 1][j]) + (tile[i][j - 1] + tile[i][j + 1]);
  y[r * columns + c] = tile[i][j] + float(weight) * sum;
  around[r * columns + c] = sum;
})";
    definition.cuda_kernel.launch = [](const Call& call, const Tensor*) {
      const auto tiles = [](std::int64_t n) { return static_cast<unsigned>((n + 15) / 16); };
      return LaunchConfig{
          {tiles(call.input(0).size(1)), tiles(call.input(0).size(0)), 1}, {16, 16, 1}, 0};
    };
    return register_op(definition);
  }();
  return op;
}

StructuredOp copy_with(const std::string& name, const std::string& source,
                       LaunchConfig launch = {}) {
  StructuredOp definition;
  definition.cost = cost_of_moving;
  definition.name = name;
  definition.infer = [](const Call& call, OutputSpec* outputs) { outputs[0] = like_input(call); };
  definition.cuda_kernel.entry = "copy_one";
  definition.cuda_kernel.source = source;
  definition.cuda_kernel.launch = [launch](const Call&, const Tensor*) { return launch; };
  return definition;
}

constexpr const char* kCopyOne = R"(
extern "C" __global__ void copy_one(const float* x, float* y) { y[0] = x[0]; })";

bool device_works() {
  return item(sum(add(ones({100}, {.device = kGpu}), 1))) == 200 &&
         error_of([] { synchronize(kGpu); }).empty();
}

}  // namespace

TEST_CASE("registered expressions on CUDA agree with the CPU", "[gpu][runtime][register]") {
  const Op blend = register_op(PointwiseOp{.name = "test_gpu_blend",
                                           .arity = 2,
                                           .expression = "a * tanh(log1p(exp(b))) + 0.25 * abs(b)",
                                           .rule = DTypeRule::float_like});
  manual_seed(11);
  for (const DType dtype : {f32, bf16, f64, f16}) {
    const Tensor a = randn({33, 65}, {.dtype = dtype}), b = randn({33, 65}, {.dtype = dtype});
    const Tensor ga = to(a, kGpu), gb = to(b, kGpu);
    check_against_cpu(blend, a, b, ga, gb);
    check_against_cpu(blend, slice(a, 0, 0, 1), b, slice(ga, 0, 0, 1), gb);
    check_against_cpu(blend, a, slice(b, 1, 3, 4), ga, slice(gb, 1, 3, 4));
    check_against_cpu(blend, slice(a, 1, 3, 4), slice(b, 0, 5, 6), slice(ga, 1, 3, 4),
                      slice(gb, 0, 5, 6));
    check_against_cpu(blend, transpose(a, 0, 1), contiguous(transpose(b, 0, 1)),
                      transpose(ga, 0, 1), contiguous(transpose(gb, 0, 1)));
    check_against_cpu(blend, slice(a, 1, 1, 64, 2), slice(b, 1, 2, 65, 2), slice(ga, 1, 1, 64, 2),
                      slice(gb, 1, 2, 65, 2));
    check_against_cpu(blend, slice(a, 0, 0, 0), slice(b, 0, 0, 0), slice(ga, 0, 0, 0),
                      slice(gb, 0, 0, 0));
    CHECK(worst_difference(call_op(blend, {ga, 0.5}), call_op(blend, {a, 0.5})) <= bound_of(dtype));
    CHECK(worst_difference(call_op(blend, {2, gb}), call_op(blend, {2, b})) <= bound_of(dtype));
  }
  const Tensor large = randn({3000, 1001}), there = to(large, kGpu);
  check_against_cpu(blend, large, large, there, there);
  CHECK(call_op(blend, {to(arange(4), kGpu), 1}).dtype() == f32);
  CHECK(error_of([&] {
          call_op(blend, {there, large});
        }) == "[test_gpu_blend] expected all tensors on one device, got cuda:0 and cpu");
}

TEST_CASE("registered predicates and selections on CUDA agree with the CPU",
          "[gpu][runtime][register]") {
  const Op near = register_op(PointwiseOp{.name = "test_gpu_near",
                                          .arity = 3,
                                          .expression = "abs(a - b) < c",
                                          .rule = DTypeRule::predicate,
                                          .types = dtype_sets::numbers});
  manual_seed(12);
  const Tensor a = randn({77, 5}), b = randn({5});
  CHECK(same_bits(call_op(near, {to(a, kGpu), to(b, kGpu), 0.75}), call_op(near, {a, b, 0.75})));
  const Tensor i = arange(100), j = full({100}, 50, {.dtype = i64});
  CHECK(same_bits(call_op(near, {to(i, kGpu), to(j, kGpu), 7}), call_op(near, {i, j, 7})));
}

TEST_CASE("registered integer expressions on CUDA agree with the CPU", "[gpu][runtime][register]") {
  const Op mixed =
      register_op(PointwiseOp{.name = "test_gpu_integers",
                              .arity = 2,
                              .expression = "(a / b) * 31 + a % b + (a << b) - (a >> b)",
                              .rule = DTypeRule::same,
                              .types = dtype_sets::integral});
  for (const DType dtype : {i32, i64}) {
    const Tensor a = cast(arange(400) * 7919 - 100000, dtype),
                 b = cast(remainder(arange(400), 80) - 8, dtype);
    CHECK(same_bits(call_op(mixed, {to(a, kGpu), to(b, kGpu)}), call_op(mixed, {a, b})));
  }
}

TEST_CASE("a registered kernel on CUDA agrees with the CPU", "[gpu][runtime][register]") {
  manual_seed(13);
  for (const Dims& shape : {Dims{1, 1}, Dims{3, 7}, Dims{130, 1000}, Dims{5, 20000}}) {
    const Tensor x = randn(shape), there = to(x, kGpu);
    const Scalar columns = shape[1], scale = 1.5;
    const Tensor expected = call_op(row_softmax(), {x}, {columns, scale})[0];
    const Tensor got = call_op(row_softmax(), {there}, {columns, scale})[0];
    INFO(x.describe());
    CHECK(worst_difference(got, expected) <= 1e-6);
    CHECK(worst_difference(got, softmax(x * 1.5, 1)) <= 1e-6);
    // The kernel is given contiguous operands, whatever the caller has.
    const Tensor transposed = transpose(to(contiguous(transpose(x, 0, 1)), kGpu), 0, 1);
    CHECK(same_bits(call_op(row_softmax(), {transposed}, {columns, scale})[0], got));
  }
  const Tensor none = call_op(row_softmax(), {empty({0, 8}, {.device = kGpu})}, {8, 1.0})[0];
  CHECK(none.numel() == 0);
  CHECK(error_of([] {
          call_op(row_softmax(), {ones({3}, {.device = kGpu})}, {3, 1.0});
        }) == "[test_row_softmax] expected f32 of 2 dimensions, got f32[3] on cuda:0");

  for (const Dims& shape : {Dims{1, 1}, Dims{15, 17}, Dims{16, 16}, Dims{100, 333}}) {
    const Tensor x = randn(shape), there = to(x, kGpu);
    const auto expected = call_op(stencil(), {x}, {shape[0], shape[1], 0.25});
    const auto got = call_op(stencil(), {there}, {shape[0], shape[1], 0.25});
    INFO(x.describe());
    for (std::size_t i = 0; i < 2; ++i) CHECK(worst_difference(got[i], expected[i]) <= 1e-6);
  }
}

TEST_CASE("a registered kernel runs on the current stream of CUDA", "[gpu][runtime][register]") {
  const Tensor x = randn({64, 500}, {.device = kGpu});
  const Scalar columns = 500, scale = 1.0;
  const Tensor expected = call_op(row_softmax(), {x}, {columns, scale})[0];
  synchronize(kGpu);
  const Stream stream(kGpu);
  const StreamGuard guard(stream);
  delay(1000);
  const Tensor got = call_op(row_softmax(), {slow_copy(x, 500)}, {columns, scale})[0];
  CHECK_FALSE(stream.idle());
  CHECK(same_bits(got, expected));
}

TEST_CASE("CUDA source that does not compile is an error that names the op and the line",
          "[gpu][runtime][register]") {
  const Op broken = register_op(copy_with("test_gpu_broken",
                                          "extern \"C\" __global__ void copy_one(const float* x,\n"
                                          "                                     float* y) {\n"
                                          "  y[0] = undeclared_name;\n"
                                          "}\n"));
  const Tensor x = ones({1}, {.device = kGpu});
  for (int i = 0; i < 2; ++i) {
    const std::string text = error_of([&] { call_op(broken, {x}, {}); });
    INFO(text);
    CHECK(text.starts_with("[test_gpu_broken] expected a kernel that compiles"));
    CHECK(text.find("kernel(3): error") != std::string::npos);
    CHECK(text.find("undeclared_name") != std::string::npos);
    CHECK(text.find("brrr.cu(") == std::string::npos);  // nothing of what the user did not write
    CHECK(device_works());
  }
  StructuredOp missing = copy_with("test_gpu_missing", kCopyOne);
  missing.cuda_kernel.entry = "no_such_entry";
  const Op no_entry = register_op(missing);
  const std::string text = error_of([&] { call_op(no_entry, {x}, {}); });
  INFO(text);
  CHECK(text.starts_with("[test_gpu_missing]"));
  CHECK(text.find("CUDA_ERROR_NOT_FOUND") != std::string::npos);
  CHECK(device_works());
}

TEST_CASE("a launch that CUDA refuses is a typed error, after which the device works",
          "[gpu][runtime][register]") {
  const Tensor x = full({1}, 5, {.device = kGpu});
  struct Bad {
    const char* name;
    LaunchConfig launch;
    const char* call;
  };
  const Bad cases[] = {
      {"test_gpu_threads", {{1, 1, 1}, {2048, 1, 1}, 0}, "cuLaunchKernel"},
      {"test_gpu_no_threads", {{1, 1, 1}, {0, 1, 1}, 0}, "cuLaunchKernel"},
      {"test_gpu_grid", {{1, 70000, 1}, {32, 1, 1}, 0}, "cuLaunchKernel"},
      {"test_gpu_shared", {{1, 1, 1}, {32, 1, 1}, 10 << 20}, "cuFuncSetAttribute"},
  };
  const std::size_t live = static_cast<std::size_t>(memory_stats(kGpu).live);
  for (const Bad& bad : cases) {
    const Op op = register_op(copy_with(bad.name, kCopyOne, bad.launch));
    for (int i = 0; i < 3; ++i) {
      std::string text;
      int code = 0;
      try {
        call_op(op, {x}, {});
      } catch (const CudaError& error) {
        text = error.what();
        code = error.code();
      }
      INFO(text);
      CHECK(code == 1);
      CHECK(
          text.starts_with("[" + std::string(bad.name) + "] " + bad.call + " failed: CUDA_ERROR_"));
      CHECK(device_works());
    }
  }
  CHECK(static_cast<std::size_t>(memory_stats(kGpu).live) == live);
  const Op good = register_op(copy_with("test_gpu_good", kCopyOne));
  CHECK(item(call_op(good, {x}, {})[0]) == 5);
}

TEST_CASE("an op without a CUDA kernel refuses CUDA by name", "[gpu][runtime][register]") {
  StructuredOp definition;
  definition.cost = cost_of_moving;
  definition.name = "test_gpu_only_cpu";
  definition.infer = [](const Call& call, OutputSpec* outputs) { outputs[0] = like_input(call); };
  definition.cpu = [](const Call&, Tensor*) {};
  const Op op = register_op(definition);
  CHECK(error_of([&] { call_op(op, {ones({1}, {.device = kGpu})}, {}); }) ==
        "[test_gpu_only_cpu] has no CUDA kernel; register one, or move its inputs to the CPU");
}
