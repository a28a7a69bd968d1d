// Fused steps on CUDA.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/nn/losses.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/matmul.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/fused_programs.h"
#include "tests/harness/skip.h"

namespace brrr::test {

TEST_CASE("fused programs on CUDA give what eager ones do", "[gpu][fuse][sanitized]") {
  check_fused_programs(cuda(0));
}

TEST_CASE("draws in a fused kernel on CUDA are those of eager calls", "[gpu][fuse][sanitized]") {
  check_fused_draws(cuda(0));
}

TEST_CASE("a bad index in a fused kernel on CUDA is reported at the next wait", "[gpu][fuse]") {
  auto loss = compile(
      [](const Tensor& x, const Tensor& target) { return nn::cross_entropy(x * 2.0, target); },
      {.mode = Mode::fused, .fallback = OnFallback::refuse});
  const Tensor x = to(noise({40, 9}, 1), cuda(0));
  Tensor target = integers({40}, 9, 2), wrong = clone(target);
  fill_(narrow(wrong, 0, 17, 1), 9);
  fill_(narrow(wrong, 0, 33, 1), -1);
  const auto loss_of = [&](const Tensor& t) { return item<float>(loss(x, to(t, cuda(0)))); };
  const float good = loss_of(target);
  CHECK_THROWS_WITH(loss_of(wrong),
                    Catch::Contains("[cross_entropy] expected indices in [0, 9), got 9 at position "
                                    "17"));
  CHECK(loss_of(target) == good);
}

TEST_CASE("fast programs on CUDA give what eager ones do, nearly", "[gpu][fuse]") {
  check_fused_programs(cuda(0), Rounding::fast);
}

TEST_CASE("products and what follows them are one kernel, with eager's bits",
          "[gpu][fuse][sanitized]") {
  check_fused_products(cuda(0));
}

TEST_CASE("large products and what follows them are one kernel", "[gpu][fuse][sanitized][tma]") {
  if (jit::architecture_of(cuda(0)) != 90) return testing::skip("needs compute capability 9.0");
  check_fused_tile_products(cuda(0));
}

TEST_CASE("products of copied factors are those of the factors", "[gpu][fuse]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const auto function = [](const std::vector<Tensor>& a) {
    return std::vector{matmul(transpose(a[0], 0, 1), a[1])};
  };
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1024, 1024, 2048},
                                {1000, 1100, 2500},
                                {512, 2048, 4096},
                                {2049, 515, 4097}}) {
    INFO(m << " x " << n << " x " << k);
    const Tensor a = noise({k, m}, 1), b = noise({k, n}, 2);
    const std::vector<Tensor> arguments = {to(a, cuda(0)), to(b, cuda(0))};
    auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const Tensor got = to(step(arguments)[0], cpu);
    CHECK(step.graph_text().find(" = copy(") != std::string::npos);
    const Tensor wanted = matmul(to(transpose(a, 0, 1), f64), to(b, f64));
    // Ten bits of each factor, and sums of k products that are independent.
    const double scale = std::sqrt(static_cast<double>(k)) * 0x1p-10;
    CHECK(item(max(abs(to(got, f64) - wanted))) <= 6 * scale);
    CHECK(to_vector<float>(to(step(arguments)[0], cpu)) == to_vector<float>(got));
  }
}

TEST_CASE("a kernel stores a result and its transpose", "[gpu][fuse][sanitized]") {
  const auto function = [](const std::vector<Tensor>& a) {
    const Tensor x = a[0] * 2.0 + a[1];
    return std::vector{x, contiguous(transpose(x, -1, -2)),
                       contiguous(transpose(a[0], -1, -2)) + x};
  };
  for (const DType dtype : {f32, bf16, f64, i64}) {
    for (const Dims& shape : {Dims{64, 64}, Dims{129, 129}, Dims{200, 200}, Dims{3, 70, 70}}) {
      const Tensor x = to(noise(shape, 1) * 100.0, dtype), y = to(noise(shape, 2) * 100.0, dtype);
      auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
      const std::vector<Tensor> got = step(std::vector<Tensor>{to(x, cuda(0)), to(y, cuda(0))}),
                                wanted = function({x, y});
      INFO(x.describe() << step.graph_text());
      CHECK(step.kernels().size() == 1);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        CHECK(to_vector<double>(to(to(got[i], cpu), f64)) == to_vector<double>(to(wanted[i], f64)));
    }
  }
}

TEST_CASE("a kernel stores a factor and its transposed copy", "[gpu][fuse]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const auto function = [](const std::vector<Tensor>& a) {
    const Tensor activation = gelu_tanh(a[0] + a[1]);
    return std::vector{activation * 2.0, matmul(transpose(a[2], 0, 1), activation)};
  };
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{1024, 1024, 2048}, {1100, 1000, 2500}, {1028, 515, 4099}}) {
    INFO(m << " x " << n << " x " << k);
    const Tensor x = noise({k, n}, 1), bias = noise({n}, 2), g = noise({k, m}, 3);
    const std::vector<Tensor> arguments = {to(x, cuda(0)), to(bias, cuda(0)), to(g, cuda(0))};
    auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const std::vector<Tensor> got = step(arguments);
    INFO(step.graph_text());
    CHECK(step.graph_text().find("copy](") != std::string::npos);
    const Tensor activation = gelu_tanh(to(x, f64) + to(bias, f64));
    const auto error = [](const Tensor& got, const Tensor& wanted) {
      return item(max(abs(to(to(got, cpu), f64) - wanted)));
    };
    CHECK(error(got[0], activation * 2.0) <= 1e-5);
    CHECK(error(got[1], matmul(to(transpose(g, 0, 1), f64), activation)) <=
          6 * std::sqrt(static_cast<double>(k)) * 0x1p-10);
  }
}

// A layer whose weight begins anywhere in a packed parameter, with its gradients packed.
TEST_CASE("steps of odd widths compute what eager calls do", "[gpu][fuse][sanitized][tma]") {
  const MatmulPrecisionGuard tf32(Precision::tf32);
  for (const DType dtype : {f32, bf16, f16}) {
    for (const auto& [batch, in, out, first] : {std::array<std::int64_t, 4>{256, 257, 257, 0},
                                                {300, 321, 516, 1},
                                                {513, 130, 771, 7},
                                                {1023, 263, 259, 2}}) {
      INFO(name_of(dtype) << " " << batch << " x " << in << " x " << out << " from " << first);
      const auto function = [in = in, out = out, first = first](const std::vector<Tensor>& a) {
        const Tensor weight = reshape(slice(a[1], 0, first, first + in * out), {out, in});
        const Tensor z = matmul(a[0], transpose(weight, 0, 1)), dz = relu(z) * a[2];
        const std::vector<Tensor> gradients = {
            reshape(matmul(transpose(dz, 0, 1), a[0]), {in * out}), sum(dz, 0)};
        return std::vector{z, matmul(dz, weight) + a[0], cat(gradients) * 2.0};
      };
      const auto here = [&](const Tensor& x) { return to(to(x, dtype), cuda(0)); };
      const std::vector<Tensor> arguments = {here(noise({batch, in}, 1)),
                                             here(noise({first + in * out}, 2) * 0.1),
                                             here(noise({batch, out}, 3))};
      auto step = compile(function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
      const std::vector<Tensor> got = step(arguments);
      std::vector<Tensor> exact;
      for (const Tensor& x : arguments) exact.push_back(to(to(x, cpu), f64));
      const std::vector<Tensor> wanted = function(exact);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const Tensor error = max(abs(to(to(got[i], cpu), f64) - wanted[i]));
        CHECK(item(error) <= (dtype == bf16 ? 0.03 : 0.005) * item(max(abs(wanted[i]))));
      }
    }
  }
}

// Two layers: the product's epilogue stores gelu's copy, and both gradients of a layer are one
// launch, with the factors of one of them swapped.
TEST_CASE("a TF32 step has the gradients of its layers", "[gpu][fuse]") {
  if (jit::architecture_of(cuda(0)) != 90) return testing::skip("needs compute capability 9.0");
  const MatmulPrecisionGuard tf32(Precision::tf32);
  const auto gradients = [](std::vector<Tensor> a) {
    for (Tensor& x : a) x = requires_grad_(detach(x));
    const Tensor h = gelu_tanh(affine(a[0], transpose(a[1], 0, 1), a[2]));
    const Tensor y = affine(h, transpose(a[3], 0, 1), a[4]);
    return grad(sum(square(y - a[5])), {a[0], a[1], a[2], a[3], a[4]});
  };
  for (const auto& [batch, in, width, out] : {std::array<std::int64_t, 4>{2048, 1024, 1024, 1024},
                                              {2052, 1000, 1100, 1024},
                                              {2052, 516, 1028, 772}}) {
    INFO(batch << " x " << in << ", " << width << ", " << out);
    const double of_in = 1 / std::sqrt(static_cast<double>(in)),
                 of_width = 1 / std::sqrt(static_cast<double>(width));
    const std::vector<Tensor> values = {noise({batch, in}, 1), noise({width, in}, 2) * of_in,
                                        noise({width}, 3),     noise({out, width}, 4) * of_width,
                                        noise({out}, 5),       noise({batch, out}, 6)};
    std::vector<Tensor> arguments, exact;
    for (const Tensor& x : values) arguments.push_back(to(x, cuda(0))), exact.push_back(to(x, f64));
    auto step = compile([&](const std::vector<Tensor>& a) { return gradients(a); },
                        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const std::vector<Tensor> got = step(arguments), again = step(arguments),
                              wanted = gradients(exact);
    INFO(step.graph_text());
    CHECK(step.graph_text().find("fused[affine, gelu_tanh, copy](") != std::string::npos);
    CHECK(step.graph_text().find("matmul, gelu_tanh_gradient](") != std::string::npos);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      INFO("gradient " << i);
      const Tensor error = to(to(got[i], cpu), f64) - wanted[i];
      const double scale = item(max(abs(wanted[i])));
      CHECK(item(max(abs(error))) <= 4e-3 * scale);
      CHECK(to_vector<float>(to(got[i], cpu)) == to_vector<float>(to(again[i], cpu)));
    }
  }
}

namespace {

// Numerators and divisors of any size, zeros, subnormal numbers, infinities and NaN; a row has one
// divisor. Some quotients are next to the midpoint of two numbers of bf16.
std::vector<Tensor> numerators_and_divisors() {
  constexpr std::int64_t kRows = 4000, kCols = 250;
  Tensor numerators = empty({kRows, kCols}), divisors = empty({kRows, kCols});
  const float special[] = {
      0.0f,      -0.0f,     1e-45f,    -1e-40f,       1.17549435e-38f, 3e38f,         -3.4e38f,
      INFINITY,  -INFINITY, NAN,       0x1.fffffep0f, 0x1.fffffcp0f,   0x1.fffffap0f, 0x1.fffff8p0f,
      0x1p-100f, 0x1p100f,  0x1p-101f, 0x1p24f,       0x1p-24f};
  std::mt19937 random(5);
  const auto bits = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); };
  std::uniform_real_distribution<float> ordinary(-4, 4);
  for (std::int64_t i = 0; i < kRows; ++i) {
    const float divisor = i < 200    ? special[i % std::size(special)]
                          : i < 1000 ? bits()
                          : i < 1500
                              ? std::ldexp(ordinary(random), static_cast<int>(random() % 60) - 30)
                              : ordinary(random);
    for (std::int64_t j = 0; j < kCols; ++j) {
      const std::uint32_t midpoint = (static_cast<std::uint32_t>(random()) & 0xffff0000u) | 0x8000u;
      numerators.data<float>()[i * kCols + j] = j < 20    ? special[j % std::size(special)]
                                                : j < 100 ? bits()
                                                : j < 150 ? std::bit_cast<float>(midpoint) * divisor
                                                          : ordinary(random);
      divisors.data<float>()[i * kCols + j] = divisor;
    }
  }
  return {numerators, divisors};
}

}  // namespace

TEST_CASE("quotients by a number of their row have eager's bits", "[gpu][fuse]") {
  const std::vector<Tensor> numbers = numerators_and_divisors();
  const auto check = [&](DType given, DType result, const char* form) {
    INFO(name_of(given) << " to " << name_of(result));
    std::vector<Tensor> arguments;
    for (const Tensor& x : numbers) arguments.push_back(to(to(x, cuda(0)), given));
    const auto function = [=](const std::vector<Tensor>& a) {
      return to(a[0] / max(a[1], {1}, true), result);
    };
    auto step = compile(function, {.mode = Mode::fused});
    const Tensor wanted = to(to(function(arguments), f32), cpu),
                 got = to(to(step(arguments), f32), cpu);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < wanted.numel(); ++i) {
      const float a = wanted.data<float>()[i], b = got.data<float>()[i];
      wrong += std::bit_cast<std::uint32_t>(a) != std::bit_cast<std::uint32_t>(b) &&
               !(std::isnan(a) && std::isnan(b));
    }
    CHECK(wrong == 0);
    REQUIRE(step.kernels().size() == 1);
    CHECK(step.kernels()[0].source.find(form) != std::string::npos);
  };
  check(f32, f32, "divided(");
  check(f32, f16, "divided(");
  check(f16, f16, "divided(");
  check(f32, bf16, "divided_for_bf16(");
  check(bf16, bf16, "divided_for_bf16(");
}

TEST_CASE("random programs on CUDA have eager's bits when they are fused", "[gpu][programs]") {
  check_random_programs(cuda(0), 100, Mode::fused);
}

TEST_CASE("sin and cos on CUDA are right for all angles, whatever their neighbours",
          "[gpu][fuse]") {
  std::vector<float> angles;
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 65537) {
    angles.push_back(std::bit_cast<float>(bits));
    angles.push_back(-angles.back());
  }
  for (int quarter = 0; quarter < 100'000; ++quarter)
    angles.push_back(static_cast<float>(quarter * 1.5707963267948966));
  while (angles.size() % 28 != 0) angles.push_back(1);
  const auto count = static_cast<std::int64_t>(angles.size());
  const Tensor x = tensor<float>(std::span<const float>(angles), {count}, cpu);
  const auto worst = [&](const Tensor& got, auto exact) {
    double most = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double wanted = exact(static_cast<double>(angles[static_cast<std::size_t>(i)]));
      int exponent = 0;
      std::frexp(static_cast<float>(wanted), &exponent);
      const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
      most = std::max(most, std::abs(static_cast<double>(got.data<float>()[i]) - wanted) / ulp);
    }
    return most;
  };
  const Tensor sines = to(sin(to(x, cuda(0))), cpu), cosines = to(cos(to(x, cuda(0))), cpu);
  CHECK(worst(sines, [](double a) { return std::sin(a); }) < 2);
  CHECK(worst(cosines, [](double a) { return std::cos(a); }) < 2);
  CHECK(std::signbit(sines.data<float>()[1]));  // of -0

  // A large angle in each vector: all of it is computed again.
  Tensor mixed = clone(x);
  for (std::int64_t i = 3; i < count; i += 4) mixed.data<float>()[i] = 1e10f;
  const Tensor beside = to(sin(to(mixed, cuda(0))), cpu);
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < count; ++i)
    different += i % 4 != 3 && beside.data<float>()[i] != sines.data<float>()[i];
  CHECK(different == 0);

  // In fused kernels, over vectors, single elements and rows.
  const auto both = [](const Tensors& a) {
    return Tensors{sin(a[0]) * cos(a[0]), max(cos(a[0]) * sin(a[0] * 0.5), {1}),
                   max(cos(a[0] * 0.25), {0}, true) + a[0] * 0};
  };
  for (const std::int64_t row : {4, 7}) {
    const Tensors rows = {to(view(mixed, {count / row, row}), cuda(0))};
    auto fused = compile(both, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const Tensors got = fused(rows), wanted = both(rows);
    for (std::size_t k = 0; k < got.size(); ++k) {
      const Tensor a = to(got[k], cpu), b = to(wanted[k], cpu);
      const std::int64_t each = count / a.numel();
      for (std::int64_t i = 0; i < a.numel(); ++i) {
        const float x = a.data<float>()[i], y = b.data<float>()[i];
        if (std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y)) continue;
        INFO("result " << k << ", rows of " << row << ", angle " << mixed.data<float>()[i * each]
                       << ": " << x << ", " << y << " eagerly");
        REQUIRE((x == y && std::signbit(x) == std::signbit(y)));
      }
    }
  }
}

}  // namespace brrr::test
