// Bodies at the limits of schedules, and kernels that cannot be made: nothing is merged that no
// schedule walks, and what the compiler or the driver refuses runs unfused.
#include <algorithm>
#include <functional>

#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/cuda_testing.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/fake_cuda/real_compiler.h"
#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

namespace brrr::test {
namespace {

using Function = std::function<Tensors(const Tensors&)>;

// `count` reductions over a dimension, of values that one kernel computes, and one result of all.
Tensor many_sums(const Tensor& x, int count, int dim) {
  Tensor value = x, all;
  for (int i = 0; i < count; ++i) {
    value = i % 2 ? neg(value) : relu(value);
    const Tensor one = sum(value, {dim});
    all = all.defined() ? all + one : one;
  }
  return all;
}

// The kernels of a step, none of which may be refused.
std::vector<GeneratedKernel> kernels_of(const Function& function, const Tensors& arguments) {
  auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(arguments);
  return step.kernels();
}

}  // namespace

// f32 has 4 elements in a vector, bf16 8 and bool 16, with accumulators of 4 and 8 bytes: 13, 7 and
// 2 sums are one more than vectors of columns have room for; 49 and 25 than single elements have.
TEST_CASE("reductions that pass the limits of a schedule are not merged", "[fuse][kernels]") {
  if (!testing::has_nvrtc_or_skips()) return;
  const testing::NoDiskCache off;
  std::vector<std::string> texts;
  {
    testing::FakeCuda fake({.with_nvrtc = true});
    const auto check = [](DType dtype, int dim, std::initializer_list<int> counts) {
      for (const int count : counts) {
        INFO(count << " sums of " << name_of(dtype) << " over dimension " << dim);
        const Tensor x = empty({256, 96}, {.dtype = dtype, .device = cuda(0)});
        const auto kernels =
            kernels_of([&](const Tensors& a) { return Tensors{many_sums(a[0], count, dim)}; }, {x});
        const std::size_t bytes = is_half(dtype) ? 4 : size_of(dtype);
        CHECK((kernels.size() == 1) ==
              (dim == 1 || static_cast<std::size_t>(count) * bytes <= 192));
      }
    };
    check(f32, 0, {12, 13, 48, 49});
    check(bf16, 0, {6, 7, 48, 49});
    check(i64, 0, {12, 13, 24, 25});
    check(f64, 1, {60});
    // Masks: 16 elements in a vector, whose sums are i64.
    const Tensor masks = empty({256, 96}, {.dtype = boolean, .device = cuda(0)});
    CHECK(kernels_of(
              [](const Tensors& a) {
                return Tensors{sum(a[0], {0}), sum(logical_not(a[0]), {0}), any(a[0], {0})};
              },
              {masks})
              .size() == 1);
    texts = testing::fused_texts(fake);
  }
  testing::check_real_kernels(texts, 90);
}

TEST_CASE("operands in transposed order beyond shared memory are read directly",
          "[fuse][kernels]") {
  if (!testing::has_nvrtc_or_skips()) return;
  const testing::NoDiskCache off;
  std::vector<std::string> texts;
  {
    testing::FakeCuda fake({.with_nvrtc = true});
    for (const DType dtype : {f32, f64, bf16}) {
      for (const int count : {2, 5, 6, 11, 12, 17}) {
        INFO(count << " operands of " << name_of(dtype));
        Tensors arguments;
        for (int i = 0; i <= count; ++i)
          arguments.push_back(empty({96, 96}, {.dtype = dtype, .device = cuda(0)}));
        const auto kernels = kernels_of(
            [](const Tensors& a) {
              Tensor all = a[0];
              for (std::size_t i = 1; i < a.size(); ++i) all = all + transpose(a[i], 0, 1);
              return Tensors{all};
            },
            arguments);
        CHECK(kernels.size() == 1);
        CHECK(kernels[0].source.find("[TILE][TILE") != std::string::npos);
      }
    }
    texts = testing::fused_texts(fake);
  }
  testing::check_real_kernels(texts, 90);
}

TEST_CASE("spaces of eight dimensions and of more than 2^31 elements have schedules",
          "[fuse][kernels]") {
  if (!testing::has_nvrtc_or_skips()) return;
  const testing::NoDiskCache off;
  std::vector<std::string> texts;
  {
    testing::FakeCuda fake({.with_nvrtc = true});
    const Tensor x = empty({70000, 1}, {.device = cuda(0)}),
                 y = empty({70000}, {.device = cuda(0)});
    for (const Dims& dims : {Dims{0}, Dims{1}, Dims{0, 1}}) {
      CHECK(kernels_of([&](const Tensors& a) { return Tensors{sum(tanh(a[0] * a[1]), dims)}; },
                       {x, y})
                .size() == 1);
    }
    const Tensor many = empty({2, 3, 2, 3, 2, 3, 2, 3}, {.device = cuda(0)});
    const Tensor flat = empty({1296}, {.device = cuda(0)});
    for (const Dims& dims : {Dims{0, 2, 4, 6}, Dims{1, 3, 5, 7}, Dims{0, 1, 2, 3}, Dims{7}}) {
      const auto kernels = kernels_of(
          [&](const Tensors& a) {
            const Tensor mixed = permute(tanh(a[0]), {7, 2, 5, 0, 3, 6, 1, 4});
            const Tensor both = mixed * reshape(a[1], mixed.shape());
            return Tensors{sum(both, dims), sum(reshape(both, {36, 36}), {0})};
          },
          {many, flat});
      CHECK_FALSE(kernels.empty());
    }
    texts = testing::fused_texts(fake);
  }
  testing::check_real_kernels(texts, 90);
}

namespace {

// Two kernels, and a call of its own between them.
Tensors two_kernels(const Tensors& a) {
  const Tensor x = (a[0] + a[1]) * 0.5;
  return {x, tanh(cumsum(x, 0)) * 2.0};
}

Tensors vectors() {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = to(tensor(values, {64}), cuda(0));
  return {x, x + x};
}

}  // namespace

TEST_CASE("a kernel that does not compile runs unfused, and is named once", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  {
    fake.refuse("fused(float* out0, const float* in0, float s0");  // the second kernel
    const Tensors arguments = vectors();
    auto step = compile(two_kernels, {.mode = Mode::fused, .name = "train"});
    const std::string said = stderr_of([&] {
      for (int call = 0; call < 3; ++call) step(arguments);
      step.clear();
      step(arguments);
    });
    INFO(said);
    INFO(step.graph_text());
    CHECK(step.kernels().size() == 1);
    CHECK(std::ranges::count(said, '\n') == 1);
    CHECK_THAT(said, Catch::StartsWith("[train] runs tanh + mul (at ") &&
                         Catch::Contains("unfused, since their kernel cannot be made: ") &&
                         Catch::Contains("expected a kernel that compiles for sm_90, got "));
    CHECK(std::ranges::any_of(step.unfused(), [](const UnfusedEdge& edge) {
      return edge.producer == "tanh" && edge.why == WhyNotFused::no_kernel;
    }));
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("a step whose kernels all fail gives what its calls give", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  {
    const Tensors arguments = vectors();
    const auto function = [](const Tensors& a) { return Tensors{(a[0] + a[1]) * 0.5}; };
    const auto wanted = to_vector<float>(to(function(arguments)[0], cpu));
    fake.refuse("namespace of_fused");
    for (const OnFallback fallback : {OnFallback::warn, OnFallback::ignore}) {
      auto step = compile(function, {.mode = Mode::fused, .fallback = fallback});
      const std::string said = stderr_of([&] {
        for (int call = 0; call < 3; ++call)
          CHECK(to_vector<float>(to(step(arguments)[0], cpu)) == wanted);
      });
      CHECK(said.empty() == (fallback == OnFallback::ignore));
      CHECK(step.report().entries.at(0).nodes == 2);
      CHECK(step.kernels().empty());
    }
    // In place: nothing has been written by the time that a kernel is refused.
    auto in_place = compile(
        [](const Tensors& a) {
          Tensor x = a[0];
          add_(x, a[1]);
          mul_(x, 0.5);
          return Tensors{};
        },
        {.mode = Mode::fused, .fallback = OnFallback::ignore});
    in_place(arguments);
    CHECK(to_vector<float>(to(arguments[0], cpu)) == wanted);

    auto refusing = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const std::string error = error_of([&] { refusing(arguments); });
    CHECK_THAT(error, Catch::Contains("expected a kernel that compiles for sm_90") &&
                          Catch::Contains(" (at "));
    auto required = compile(
        [](const Tensors& a) {
          const Tensor x = a[0] + a[1], y = x * 0.5;
          require_fused(x, y);
          return Tensors{y};
        },
        {.mode = Mode::fused});
    CHECK_THROWS_WITH(required(arguments), Catch::Contains("expected a kernel that compiles"));
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("a module that is no image for the device runs unfused, and other faults are errors",
          "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);
  {
    const Tensors arguments = vectors();
    const auto function = [](const Tensors& a) { return Tensors{(a[0] + a[1]) * 0.5}; };
    const auto wanted = to_vector<float>(to(function(arguments)[0], cpu));
    const auto said_of = [&](auto& step) {
      return stderr_of([&] { CHECK(to_vector<float>(to(step(arguments)[0], cpu)) == wanted); });
    };
    {
      auto step = compile(function, {.mode = Mode::fused});
      cu::fail_call("cuModuleLoadData", 1, CUDA_ERROR_INVALID_IMAGE);
      CHECK_THAT(said_of(step), Catch::Contains("runs add + mul (at "));
      cu::clear_faults();
    }
    // The machine's faults are errors of their own types, after which the step can be called again.
    for (const auto& [call, code] : {std::pair("cuModuleLoadData", CUDA_ERROR_UNKNOWN),
                                     {"cuModuleLoadData", CUDA_ERROR_OUT_OF_MEMORY}}) {
      INFO(call << " " << code);
      auto step = compile(function, {.mode = Mode::fused});
      cu::fail_call(call, 1, code);
      bool is_typed = code == CUDA_ERROR_OUT_OF_MEMORY;  // a retry may have the memory
      const std::string said = stderr_of([&] {
        try {
          step(arguments);
        } catch (const OutOfMemory&) {
          is_typed = true;
        } catch (const CudaError&) {
          is_typed = true;
        }
      });
      cu::clear_faults();
      CHECK(is_typed);
      CHECK(said == "");
      step(arguments);
      CHECK(step.kernels().size() == 1);
    }
  }
  CHECK(fake.problem() == "");
}

}  // namespace brrr::test
