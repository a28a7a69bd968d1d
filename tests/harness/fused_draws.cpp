// Draws inside of fused kernels: the numbers of eager calls.
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/fused_programs.h"
#include "tests/harness/rounding_bounds.h"

namespace brrr::test {
namespace {

// What the step of a function gave after this seed is within bounds of what it gives in f64.
void check_bounds(const TensorsFunction& function, const Tensors& arguments, std::uint64_t seed,
                  Tensors got) {
  if (arguments[0].dtype() == f64) return;
  manual_seed(seed);
  got.insert(got.end(), arguments.begin(), arguments.end());
  CHECK(beyond_bounds(function, arguments, {arguments[0].dtype()}, got) == "");
}

}  // namespace

void check_fused_draws(Device device) {
  const auto function = [](const Tensors& a) {
    const Tensor dropped = dropout(a[0] * 2.0, 0.3);
    return Tensors{dropped + randn_like(a[0]), rand({5, 1, 7}, {.device = a[0].device()}),
                   cast(transpose(dropped, 0, 1), f32), narrow(rand_like(a[0]), 0, 1, 2) * 3.0};
  };
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const Dims& shape : {Dims{9, 37}, Dims{64, 128}, Dims{3, 2, 80}}) {
      INFO(name_of(dtype));
      const Tensors arguments = {to(noise(shape, 1, dtype), device)};
      auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
      manual_seed(5);
      const Tensors first = step(arguments), second = step(arguments);
      manual_seed(5);
      CHECK(bits_of(first) == bits_of(function(arguments)));
      CHECK(bits_of(second) == bits_of(function(arguments)));
      check_bounds(function, arguments, 5, first);
      INFO(step.graph_text());
      // Two kernels, a draw alone, the advance of the generator.
      CHECK(step.report().entries.at(0).nodes == 4);
    }
    // Rows that begin inside of a Philox block, or at its middle.
    for (const std::int64_t row : {37, 36, 40}) {
      const auto columns = [row](const Tensors& a) {
        const Tensor ones = full({16, row}, 1, {a[0].dtype(), a[0].device()});
        return Tensors{narrow(rand_like(ones), 1, 0, 8) * a[0],
                       narrow(dropout(ones, 0.4), 1, 4, 8) * a[0]};
      };
      const Tensors arguments = {to(noise({16, 8}, 2, dtype), device)};
      auto step = compile(columns, {.mode = Mode::fused, .fallback = OnFallback::refuse});
      manual_seed(6);
      const Tensors drawn = step(arguments);
      manual_seed(6);
      CHECK(bits_of(drawn) == bits_of(columns(arguments)));
      check_bounds(columns, arguments, 6, drawn);
    }
    // Draws of what is reduced, along rows and along columns.
    for (const std::int64_t row : {37, 36, 256}) {
      const auto reduced = [](const Tensors& a) {
        return Tensors{max(dropout(a[0], 0.3), {1}), max(dropout(a[0], 0.6), {0}),
                       max(rand_like(a[0]) * a[0], {1})};
      };
      const Tensors arguments = {to(noise({70, row}, 3, dtype), device)};
      auto step = compile(reduced, {.mode = Mode::fused, .fallback = OnFallback::refuse});
      manual_seed(7);
      const Tensors drawn = step(arguments);
      manual_seed(7);
      CHECK(bits_of(drawn) == bits_of(reduced(arguments)));
      check_bounds(reduced, arguments, 7, drawn);
    }
  }
}

}  // namespace brrr::test
