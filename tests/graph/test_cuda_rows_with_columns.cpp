// Kernels of fused steps on CUDA that reduce rows and columns: which steps have one, and that their
// texts compile without spills. Nothing here needs a GPU; tests/gpu/test_norm_gradients.cpp runs
// them.
#include <algorithm>
#include <set>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/body.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/schedule.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/cubin.h"
#include "tests/harness/jit_rows.h"
#include "tests/harness/kernel_sources.h"
#include "tests/harness/skip.h"

namespace brrr::test {
namespace {

using Tensors = std::vector<Tensor>;

// Gradients of x, and of the scale and shift of its norm.
Tensors norm_gradients(const Tensors& a) {
  const Tensor x = requires_grad_(detach(a[0]));
  const Tensor scale = requires_grad_(detach(a[1])), shift = requires_grad_(detach(a[2]));
  return grad(sum(layer_norm(x, 1, scale, shift) * a[3]), {x, scale, shift});
}

// The same of a norm behind a gated product with dropout: ten operands that vary by element.
Tensors gated_gradients(const Tensors& a) {
  const Tensor x = requires_grad_(detach(a[0])), up = requires_grad_(detach(a[4]));
  const Tensor scale = requires_grad_(detach(a[1])), shift = requires_grad_(detach(a[2]));
  const Tensor h = x + dropout(silu(a[5]) * up, 0.1);
  const Tensor y = layer_norm(h, 1, scale, shift) * a[3] + h * (a[6] + a[7]) * a[8];
  return grad(sum(y * a[9]), {x, scale, shift, up});
}

// Columns are reduced of what is computed in a fast form first, and again where that is not exact.
Tensors guarded_columns(const Tensors& a) {
  const Tensor y = softmax(sin(a[0]) + a[3], 1);
  return {y, mean(y * a[4], {0}), max(cos(a[0]), {0}) * 2.0};
}

Tensors arguments_of(const Dims& shape, DType dtype) {
  const Options here{.dtype = dtype, .device = cuda(0)};
  Tensors arguments;
  for (int i = 0; i < 10; ++i) {
    arguments.push_back(i == 1 || i == 2 ? empty({shape[shape.size() - 1]}, here)
                                         : empty(shape, here));
  }
  return arguments;
}

// Of a fused step: its kernels, and those that reduce columns beside rows.
struct Kernels {
  std::size_t all = 0, of_both = 0;
  friend bool operator==(const Kernels&, const Kernels&) = default;
};
std::ostream& operator<<(std::ostream& out, const Kernels& kernels) {
  return out << kernels.all << " kernels, " << kernels.of_both << " of rows and columns";
}
Kernels kernels_of(const std::function<Tensors(const Tensors&)>& function, const Dims& shape,
                   DType dtype = f32) {
  auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(arguments_of(shape, dtype));
  const std::vector<GeneratedKernel> kernels = step.kernels();
  return {kernels.size(), static_cast<std::size_t>(
                              std::ranges::count_if(kernels, [](const GeneratedKernel& kernel) {
                                return kernel.source.find("ColumnPartial") != std::string::npos;
                              }))};
}

}  // namespace

TEST_CASE("the gradients of a norm are one kernel on CUDA", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  for (const DType dtype : {f32, bf16}) {
    for (const Dims& shape : {Dims{640, 96}, Dims{4096, 512}, Dims{3, 4096}, Dims{4, 50, 72}})
      CHECK(kernels_of(norm_gradients, shape, dtype) == Kernels{1, 1});
  }
  CHECK(kernels_of(norm_gradients, {64, 8192}).of_both == 0);  // a thread would keep too much
  CHECK(kernels_of(norm_gradients, {64, 96}, f64).of_both == 0);
  CHECK(kernels_of(norm_gradients, {1, 96}).of_both == 0);  // one row: there is nothing to add up
  CHECK(fake.problem() == "");
}

TEST_CASE("rows and columns of different tensors stay apart", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const auto apart = [](const Tensors& a) {
    return Tensors{softmax(a[0] * a[1], 1), sum(a[3] * a[1], {0})};
  };
  CHECK(kernels_of(apart, {640, 96}) == Kernels{2, 0});
  // Both read the state of one generator.
  const auto drawn = [](const Tensors& a) {
    return Tensors{softmax(dropout(a[0], 0.5), 1), sum(dropout(a[3], 0.5), {0})};
  };
  CHECK(kernels_of(drawn, {640, 96}) == Kernels{2, 0});
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("what is computed from the sum of a column stays in its kernel", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const auto with = [](const std::function<Tensor(const Tensor& column, const Tensors&)>& next) {
    return kernels_of(
        [next](const Tensors& a) {
          const Tensor y = softmax(a[0], 1);
          return Tensors{y, next(sum(y * a[3], {0}), a)};
        },
        {640, 96});
  };
  CHECK(with([](const Tensor& column, const Tensors&) { return column * 2.0; }) == Kernels{1, 1});
  CHECK(with([](const Tensor& column, const Tensors&) { return sqrt(abs(column)); }) ==
        Kernels{1, 1});
  // An operand of columns, and elements that wait for the sum of all rows.
  CHECK(with([](const Tensor& column, const Tensors& a) { return column + a[1]; }).of_both == 0);
  CHECK(with([](const Tensor& column, const Tensors& a) { return column * a[0]; }).all >= 2);
  // A sum of the sums is a call of its own.
  CHECK(with([](const Tensor& column, const Tensors&) { return sum(column); }) == Kernels{1, 1});
  CHECK(fake.problem() == "");
}

TEST_CASE("bodies that use sums of columns in rows are refused", "[jit]") {
  const auto body_with = [](auto add) {
    jit::Body body;
    body.name = "both";
    const int x = body.add_input(f32);
    const int row = jit::add_reduction(body, testing::row_named("sum"), f32, x);
    const int column = jit::add_reduction(body, testing::row_named("sum"), f32, x);
    body.values.back().kind = jit::BodyValue::Kind::column_reduction;
    body.add_output(add(body, x, row, column), f32);
    return body;
  };
  const auto sum_of = [](jit::Body& body, int a, int b) {
    return body.add_expression("a + b", f32, f32, {a, b});
  };
  CHECK_NOTHROW(verify(body_with([](auto&, int, int, int column) { return column; })));
  const jit::Body elements =
      body_with([&](jit::Body& body, int x, int, int column) { return sum_of(body, x, column); });
  CHECK_THROWS_WITH(verify(elements), Catch::Contains("values of columns computed from"));
  const jit::Body rows = body_with(
      [&](jit::Body& body, int, int row, int column) { return sum_of(body, row, column); });
  CHECK_THROWS_WITH(verify(rows), Catch::Contains("values of columns computed from"));
  jit::Body alone = body_with([](auto&, int, int, int column) { return column; });
  alone.values[1].kind = jit::BodyValue::Kind::column_reduction;
  CHECK_THROWS_WITH(verify(alone), Catch::Contains("reductions of rows beside those of columns"));
}

TEST_CASE("a thread keeps few elements of its rows and all of its columns' sums", "[jit]") {
  for (const std::int64_t columns : {std::int64_t{2}, std::int64_t{33}, std::int64_t{1000},
                                     std::int64_t{1024}, std::int64_t{4096}}) {
    for (const int inputs : {1, 3, 6, 12}) {
      for (const int size : {2, 4}) {
        jit::ReductionLayout layout;
        layout.inputs = inputs;
        layout.reduces_columns = true;
        layout.kept = layout.reduced = {};
        for (StridedSpace* space : {&layout.kept, &layout.reduced}) {
          space->add_dim(space == &layout.kept ? 8192 : columns);
          for (int k = 0; k <= inputs; ++k) {
            space->stride[k][0] = space == &layout.kept ? columns : 1;
            layout.sizes[k] = static_cast<std::uint8_t>(size);
          }
          space->operands = inputs + 1;
        }
        const jit::ReductionSchedule schedule = reduction_schedule(layout, {132, 8});
        INFO(columns << " columns, " << inputs << " inputs of " << size << " bytes");
        CHECK(schedule.walk == jit::Walk::rows);
        CHECK(schedule.reduces_columns);
        CHECK(schedule.width * schedule.unroll * schedule.lanes >= columns);
        if (!jit::keeps_columns(columns, inputs * size)) continue;
        CHECK(schedule.width * schedule.unroll <= 16);
        CHECK(schedule.width * schedule.unroll * inputs * size <= 96);
        CHECK(schedule.threads <= 512);
        CHECK(schedule.blocks * schedule.threads <= 132 * 512);
      }
    }
  }
}

TEST_CASE("kernels of rows and columns compile without spills", "[fuse][kernels]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  std::vector<std::string> texts;
  {
    const testing::NoDiskCache off;
    testing::FakeCuda fake({.with_nvrtc = true});
    for (const DType dtype : {f32, bf16}) {
      for (const std::int64_t columns : {33, 1000, 1024, 1536, 2048, 4096}) {
        kernels_of(norm_gradients, {512, columns}, dtype);
        kernels_of(gated_gradients, {512, columns}, dtype);
        kernels_of(guarded_columns, {512, columns}, dtype);
      }
    }
    std::set<std::string> known;
    for (const std::string& text : fake.compiled()) {
      if (text.find("ColumnPartial") != std::string::npos && known.insert(text).second)
        texts.push_back(testing::own_text(text));
    }
    release_random_state();
    CHECK(fake.problem() == "");
  }
  CHECK(texts.size() >= 20);
  CHECK(std::ranges::any_of(texts, [](const std::string& text) {
    return text.find("columns[u][e] = column_before[e];") != std::string::npos;
  }));
  const testing::NoDiskCache off;
  for (const int architecture : {80, 90}) {
    for (const testing::KernelResources& kernel : testing::resources_of(
             jit::compile_to_cubin(testing::joined(texts), architecture, {.random = true}))) {
      INFO(kernel.entry << " for sm_" << architecture);
      CHECK(kernel.registers <= 255);
      CHECK(kernel.local_bytes <= 32);  // around the slow path of a division
      CHECK(kernel.shared_bytes <= 48 * 1024);
    }
  }
}

}  // namespace brrr::test
