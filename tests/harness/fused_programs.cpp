#include "tests/harness/fused_programs.h"

#include <cmath>

#include "brrr/nn/losses.h"
#include "brrr/ops/matmul.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/product_programs.h"
#include "tests/harness/rounding_bounds.h"

namespace brrr::test {
namespace {

double most_different(const Tensor& a, const Tensor& b) {
  const Tensor x = to(contiguous(cast(a, f64)), cpu), y = to(contiguous(cast(b, f64)), cpu);
  double most = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i];
    if (std::isnan(p) && std::isnan(q)) continue;
    const double error = std::abs(p - q) / std::max(1.0, std::abs(q));
    most = std::isnan(error) ? INFINITY : std::max(most, error);
  }
  return most;
}

Tensors arguments_of(const Program& program, DType dtype, Device device) {
  Tensors arguments;
  std::uint64_t seed = 1;
  for (const Dims& shape : program.arguments)
    arguments.push_back(to(noise(shape, seed++, dtype), device));
  return arguments;
}

// What a program gives is within bounds of what it gives in f64.
void check_bounds(const Program& program, DType dtype, Device device, Tensors results,
                  const Tensors& arguments) {
  const bool tf32 = device.is_cuda() && matmul_precision() == Precision::tf32;
  results.insert(results.end(), arguments.begin(), arguments.end());
  CHECK(beyond_bounds(program.function, arguments_of(program, dtype, cpu), {dtype, tf32},
                      results) == "");
}

// `may_be_more`: kernels.
void check(const Program& program, DType dtype, Device device, Rounding rounding = Rounding::eager,
           bool may_be_more = false) {
  INFO(program.name << " of " << name_of(dtype));
  const Tensors eager_arguments = arguments_of(program, dtype, device);
  const Tensors fused_arguments = arguments_of(program, dtype, device);
  auto step = compile([&](const Tensors& arguments) { return program.function(arguments); },
                      {.mode = Mode::fused, .rounding = rounding, .fallback = OnFallback::refuse});
  const bool exact = program.exact && rounding == Rounding::eager;
  const double bound = dtype == f32 ? program.f32_error : rounding == Rounding::eager ? 1e-2 : 5e-2;
  for (int call = 0; call < 2; ++call) {
    const Tensors wanted = program.function(eager_arguments);
    const Tensors got = step(fused_arguments);
    REQUIRE(got.size() == wanted.size());
    if (call == 0) check_bounds(program, dtype, device, got, fused_arguments);
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i << " of call " << call << "\n" << step.graph_text());
      CHECK(got[i].describe() == wanted[i].describe());
      if (exact) {
        CHECK(bits_of(got[i]) == bits_of(wanted[i]));
      } else {
        CHECK(most_different(got[i], wanted[i]) <= bound);
      }
    }
    for (std::size_t i = 0; i < fused_arguments.size(); ++i) {
      if (rounding == Rounding::eager) {
        CHECK(bits_of(fused_arguments[i]) == bits_of(eager_arguments[i]));
      } else {
        CHECK(most_different(fused_arguments[i], eager_arguments[i]) <= bound);
      }
    }
  }
  INFO(step.graph_text());
  const int nodes = step.report().entries.at(0).nodes;
  const int wanted =
      program.kernels + (device.is_cuda() ? program.more_on_cuda : program.more_on_cpu);
  CHECK((may_be_more ? nodes >= wanted : nodes == wanted));
}

// Indices below `count`, computed in f32, so that they are equal in all types.
Tensor places(const Tensor& x, int count) {
  const Tensor scaled = abs(cast(x, f32)) * static_cast<double>(count);
  return cast(clamp(floor(scaled), 0, count - 1), i64);
}

const std::vector<Program> kPrograms = {
    {"a chain", {{7, 33}}, 1, [](const Tensors& a) { return Tensors{exp(-square(a[0])) * 2.0}; }},
    {"several results",
     {{5, 8}},
     1,
     [](const Tensors& a) {
       const Tensor x = a[0] + 1.0;
       return Tensors{x, tanh(x), x > 0.5};
     }},
    {"numbers and products that are chosen",
     {{9, 33}},
     1,
     [](const Tensors& a) {
       const Tensor only_stored = where(a[0] > 0.5, a[0] * 1.37, -1.1);
       const Tensor used = where(a[0] > 0.0, a[0] * 1.37, 0.3);
       return Tensors{only_stored, used, used * 3.0, where(a[0] < 0.0, only_stored, 0.7)};
     }},
    {"a row and a column broadcast",
     {{6, 9}, {9}, {6, 1}},
     1,
     [](const Tensors& a) { return Tensors{a[0] * a[1] + a[2]}; }},
    {"transposed",
     {{6, 9}, {9, 6}},
     1,
     [](const Tensors& a) { return Tensors{transpose(exp(a[0]), 0, 1) + a[1]}; }},
    {"reshaped",
     {{4, 6}, {24}, {2, 2, 6}},
     1,
     [](const Tensors& a) {
       return Tensors{reshape(a[0] * 2.0, {24}) + a[1] + reshape(square(a[2]), {24})};
     }},
    {"a slice of what is made",
     {{8, 10}},
     1,
     [](const Tensors& a) { return Tensors{narrow(exp(a[0]), 1, 2, 5) * 3.0}; }},
    {"a slice of what is also returned",
     {{8, 10}},
     2,
     [](const Tensors& a) {
       const Tensor x = exp(a[0]);
       return Tensors{x, narrow(x, 1, 2, 5) * 3.0};
     }},
    {"in place",
     {{5, 7}, {5, 7}},
     1,
     [](const Tensors& a) {
       Tensor x = a[0];
       mul_(x, 0.5);
       add_(x, a[1]);
       return Tensors{x * 2.0};
     }},
    {"rows that the ones before them scale in place",
     {{50, 80}},
     2,
     [](const Tensors& a) {
       Tensor x = narrow(a[0], 0, 1, 49);
       mul_(x, exp(narrow(a[0], 0, 0, 49)));
       return Tensors{x * 2.0};
     }},
    {"halves that are exchanged in place",
     {{4, 8}},
     3,
     [](const Tensors& a) {
       Tensor x = narrow(a[0], 1, 0, 4), y = narrow(a[0], 1, 4, 4);
       const Tensor sum = x + y;
       copy_(x, y);
       add_(y, sum);
       return Tensors{sum};
     }},
    {"copies of what is permuted",
     {{6, 9, 4}, {9, 24}},
     1,
     [](const Tensors& a) {
       const Tensor x = contiguous(permute(exp(a[0]), {1, 0, 2}));
       return Tensors{contiguous(transpose(reshape(x, {9, 24}) * a[1], 0, 1))};
     }},
    {"a row that is copied to all rows in place",
     {{6, 9}, {9}},
     1,
     [](const Tensors& a) {
       Tensor x = a[0];
       copy_(x, a[1] * 2.0);
       return Tensors{x + 1.0};
     }},
    {"a softmax of a transposed copy",
     {{66, 20}},
     1,
     [](const Tensors& a) { return Tensors{softmax(contiguous(transpose(a[0] - 1.0, 0, 1)), 1)}; },
     false,
     1},
    {"a copy into columns of what is summed by rows",
     {{66, 20}},
     1,
     [](const Tensors& a) {
       const Tensor x = contiguous(transpose(a[0] - 1.0, 0, 1));
       return Tensors{x, sum(x, {1})};
     },
     false,
     1},
    {"gradients of slices, added",
     {{6, 24}, {6, 8}, {6, 8}},
     1,
     [](const Tensors& a) {
       const Tensor x = requires_grad_(detach(a[0]));
       const Tensor y = narrow(x, 1, 0, 8) * a[1] + narrow(x, 1, 8, 8) * a[2];
       return Tensors{contiguous(transpose(grad(sum(y), x), 0, 1))};
     },
     true,
     0,
     2e-6,
     2},
    {"gradients of slices of what is permuted",
     {{4, 3, 2, 8}, {2, 4, 8}, {2, 4, 8}, {2, 4, 8}},
     1,
     [](const Tensors& a) {
       const Tensor x = requires_grad_(detach(a[0]));
       const Tensor parts = permute(x, {1, 2, 0, 3});
       Tensor loss;
       for (int k = 0; k < 3; ++k) {
         const Tensor part = sum(select(parts, 0, k) * a[static_cast<std::size_t>(k) + 1]);
         loss = loss.defined() ? loss + part : part;
       }
       return Tensors{grad(loss, x) * 0.5};
     },
     true,
     0,
     2e-6,
     3},
    {"a rotation of halves",
     {{6, 5, 16}, {5, 16}, {5, 16}},
     1,
     [](const Tensors& a) {
       const Tensor low = narrow(a[0], 2, 0, 8), high = narrow(a[0], 2, 8, 8);
       return Tensors{a[0] * a[1] + cat({-high, low}, 2) * a[2]};
     },
     true,
     0,
     2e-6,
     2},
    {"a slice across blocks",
     {{4, 8}, {4, 5}, {4, 3}},
     1,
     [](const Tensors& a) {
       const Tensor x = cat({exp(a[0]), a[1], -a[2]}, 1);
       return Tensors{narrow(x, 1, 6, 8) - 1.0};
     },
     true,
     0,
     2e-6,
     3},
    {"blocks of blocks",
     {{4, 6}, {2, 6}, {6, 3}},
     1,
     [](const Tensors& a) {
       return Tensors{square(cat({cat({a[0], a[1]}, 0), a[2]}, 1))};
     },
     true,
     0,
     2e-6,
     2},
    {"sums of rows of blocks",
     {{30, 40}, {30, 24}},
     1,
     [](const Tensors& a) {
       const Tensor x = cat({a[0], a[1]}, 1);
       return Tensors{x / sum(square(x), {1}, true)};
     },
     false,
     0,
     2e-6,
     1},
    {"sums of columns of blocks",
     {{30, 40}, {50, 40}},
     1,
     [](const Tensors& a) {
       return Tensors{sum(cat({tanh(a[0]), a[1]}, 0), {0})};
     },
     false,
     0,
     2e-6,
     2},
    {"what a softmax keeps for its gradient",
     {{9, 64}, {9, 64}},
     1,
     [](const Tensors& a) {
       const Tensor x = requires_grad_(detach(a[0]));
       return Tensors{grad(sum(softmax(x, 1) * a[1]), x)};
     },
     false},
    {"softmax", {{9, 65}}, 1, [](const Tensors& a) { return Tensors{softmax(a[0], 1)}; }, false},
    {"softmax of columns",
     {{70, 9}},
     1,
     [](const Tensors& a) { return Tensors{softmax(a[0], 0)}; },
     false},
    {"layer norm",
     {{8, 64}, {64}, {64}},
     1,
     [](const Tensors& a) {
       const Tensor centered = a[0] - mean(a[0], {1}, true);
       const Tensor scale = rsqrt(mean(square(centered), {1}, true) + 1e-5);
       return Tensors{centered * scale * a[1] + a[2]};
     },
     false},
    {"a sum of columns of what is also returned",
     {{40, 12}, {40, 12}},
     1,
     [](const Tensors& a) {
       const Tensor x = a[0] * tanh(a[1]);
       return Tensors{x, sum(x, {0})};
     },
     false},
    {"gradients of a norm's scale and of its shift",
     {{40, 12}, {40, 12}},
     1,
     [](const Tensors& a) {
       return Tensors{sum(a[0] * a[1], {0}), sum(a[0], {0})};
     },
     false},
    {"a sum of columns and one of rows of one tensor",
     {{40, 12}},
     2,
     [](const Tensors& a) {
       return Tensors{sum(a[0], {0}), sum(a[0], {1})};
     },
     false,
     -1},
    {"reductions over different dimensions",
     {{12, 10}},
     2,
     [](const Tensors& a) { return Tensors{sum(sum(a[0] * 2.0, {0}) + 1.0, {0})}; },
     false},
    {"a group that another one runs between the calls of",
     {{64, 64}, {64}},
     3,
     [](const Tensors& a) {
       const Tensor y = square(a[0]), x = sin(a[1]);
       const Tensor t = x * select(y, 0, 0);
       return Tensors{t, y + cumsum(x, 0)};
     }},
    {"elements at computed places",
     {{7, 9}, {7, 4}},
     1,
     [](const Tensors& a) { return Tensors{gather(a[0], 1, places(a[1], 9)) * 2.0}; }},
    {"elements of columns at computed places",
     {{9, 6}, {4, 6}, {4, 6}},
     1,
     [](const Tensors& a) {
       return Tensors{exp(gather(transpose(a[0], 0, 1), 1, places(transpose(a[1], 0, 1), 9))) +
                      transpose(a[2], 0, 1)};
     }},
    {"an embedding and what is added to it",
     {{11, 24}, {3, 5}, {5, 24}},
     3,
     [](const Tensors& a) { return Tensors{embedding(a[0], places(a[1], 11)) + a[2]}; },
     true,
     -2},
    {"elements of what is computed",
     {{7, 9}, {7, 4}},
     2,
     [](const Tensors& a) { return Tensors{gather(exp(a[0]), 1, places(a[1], 9)) * 2.0}; }},
    {"one element of each row is added to",
     {{7, 9}, {7, 1}, {7, 1}},
     1,
     [](const Tensors& a) {
       return Tensors{scatter_add(a[0] * 2.0, 1, places(a[1], 9), a[2]) + 1.0};
     }},
    {"several elements of each row are added to",
     {{7, 9}, {7, 4}, {7, 4}},
     4,
     [](const Tensors& a) {
       return Tensors{scatter_add(a[0] * 2.0, 1, places(a[1], 9), a[2]) + 1.0};
     }},
    {"values that are checked",
     {{7, 9}},
     1,
     [](const Tensors& a) { return Tensors{checked(a[0] * 0.5, -8, 8) + 1.0}; }},
    {"a softmax and its elements at computed places",
     {{40, 9}, {40}},
     1,
     [](const Tensors& a) {
       const Tensor chosen = gather(a[0], 1, unsqueeze(places(a[1], 9), 1));
       return Tensors{logsumexp(a[0], {1}) - squeeze(chosen, 1)};
     },
     false},
    {"a cross entropy and its gradient",
     {{40, 9}, {40}},
     2,
     [](const Tensors& a) {
       const Tensor x = requires_grad_(detach(a[0]));
       const Tensor loss = nn::cross_entropy(x, places(a[1], 9));
       return Tensors{detach(loss), grad(loss, x)};
     },
     false},
    {"the gradients of two losses",
     {{40, 9}, {40}, {40, 9}, {40}},
     2,
     [](const Tensors& a) {
       Tensors gradients;
       for (const std::size_t i : {0u, 2u}) {
         const Tensor x = requires_grad_(detach(a[i]));
         gradients.push_back(grad(nn::cross_entropy(x, places(a[i + 1], 9)), x));
       }
       return gradients;
     },
     false},
    {"a number in a tensor",
     {{40, 9}},
     1,
     [](const Tensors& a) {
       return Tensors{a[0] * full({9}, 1.37, {a[0].dtype(), a[0].device()})};
     }},
    {"a result of rows by its rows",
     {{6, 5, 4}},
     1,
     [](const Tensors& a) {
       const Tensor rows = max(reshape(a[0], {30, 4}), {1}, true);
       return Tensors{reshape(a[0], {30, 4}) - rows, exp(rows)};
     },
     false},
};

}  // namespace

void check_fused_tile_products(Device device) {
  const MatmulPrecisionGuard precision(Precision::tf32);
  const bool on_cpu = device.is_cpu();
  for (const DType dtype : {f32, bf16, f16}) {
    for (const Program& program : kTileProducts)
      check(program, dtype, device, Rounding::eager, on_cpu);
    for (const Program& program : kHalfTileProducts) {
      if (dtype != f32) check(program, dtype, device, Rounding::eager, on_cpu);
    }
  }
}

void check_fused_products(Device device) {
  const MatmulPrecisionGuard precision(Precision::tf32);
  for (const Program& program : kProducts) {
    for (const DType dtype : {f32, bf16, f16})
      check(program, dtype, device, Rounding::eager, device.is_cpu());
  }
}

void run_fused_programs(Device device, const std::function<void(const std::string& name)>& f) {
  const MatmulPrecisionGuard precision(Precision::tf32);
  for (const auto* programs : {&kPrograms, &kProducts}) {
    for (const Program& program : *programs) {
      for (const DType dtype : {f32, bf16}) {
        auto step = compile([&](const Tensors& arguments) { return program.function(arguments); },
                            {.mode = Mode::fused, .fallback = OnFallback::refuse});
        step(arguments_of(program, dtype, device));
        f(std::string(program.name) + " of " + std::string(name_of(dtype)));
      }
    }
  }
}

void check_fused_programs(Device device, Rounding rounding) {
  for (const Program& program : kPrograms) {
    check(program, f32, device, rounding);
    check(program, bf16, device, rounding);
  }
}

namespace {

void count_kernels(const Program& program, DType dtype, Device device) {
  INFO(program.name << " of " << name_of(dtype));
  Tensors arguments;
  for (const Dims& shape : program.arguments)
    arguments.push_back(empty(shape, {.dtype = dtype, .device = device}));
  auto step = compile([&](const Tensors& given) { return program.function(given); },
                      {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(arguments);
  INFO(step.graph_text());
  CHECK(step.report().entries.at(0).nodes ==
        program.kernels + (device.is_cuda() ? program.more_on_cuda : program.more_on_cpu));
}

}  // namespace

void count_fused_kernels(Device device) {
  for (const Program& program : kPrograms) {
    for (const DType dtype : {f32, bf16}) count_kernels(program, dtype, device);
  }
  const MatmulPrecisionGuard precision(Precision::tf32);
  for (const Program& program : kProducts) {
    for (const DType dtype : {f32, bf16}) count_kernels(program, dtype, device);
  }
  for (const Program& program : kTileProducts) count_kernels(program, bf16, device);
  for (const Program& program : kHalfTileProducts) count_kernels(program, bf16, device);
}

void check_interpreted_programs() {
  for (const Program& program : kPrograms) {
    for (const DType dtype : {f32, bf16}) check(program, dtype, cpu, Rounding::eager, true);
  }
}

}  // namespace brrr::test
