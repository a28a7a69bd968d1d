// Draws inside of fused kernels: the numbers of eager calls.
#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/fused_programs.h"

namespace brrr::test {

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
      INFO(step.graph_text());
      // Two kernels, a draw alone, the advance of the generator.
      CHECK(step.report().entries.at(0).nodes == 4);
    }
    // Rows that begin inside of a Philox block.
    const auto columns = [](const Tensors& a) {
      return Tensors{narrow(rand({16, 37}, {a[0].dtype(), a[0].device()}), 1, 0, 8) * a[0]};
    };
    const Tensors arguments = {to(noise({16, 8}, 2, dtype), device)};
    auto step = compile(columns, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    manual_seed(6);
    const Tensors drawn = step(arguments);
    manual_seed(6);
    CHECK(bits_of(drawn) == bits_of(columns(arguments)));
  }
}

}  // namespace brrr::test
