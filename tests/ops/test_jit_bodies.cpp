// Bodies of many ops: softmax, norms and losses in one kernel, gathered elements, draws, checks. On
// the CPU they are compiled and run; for CUDA they compile, and gpu_bodies.cpp runs them.
#include <array>
#include <cstring>

#include "brrr/ops/cpu/vector_math.h"
#include "brrr/ops/jit/cpu_kernel.h"
#include "tests/harness/catch.h"
#include "tests/harness/jit_bodies.h"
#include "tests/harness/op_harness.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

namespace {
using std::sqrt;
#define BRRR_SCALAR_FN inline
#include "brrr/ops/jit/philox.inl"
}  // namespace

TEST_CASE("bodies of many levels give the results of f64", "[jit]") {
  for (const DType dtype : {f32, f64}) {
    for (const Case& c : cases_with_references(dtype)) {
      INFO(c.body.name << " " << name_of(dtype) << " " << c.dims[0] << " x " << c.dims[1]);
      CpuFault fault;
      CHECK(error_of(c, run_on_cpu(c, &fault)) <= c.tolerance);
      CHECK(fault.position == -1);
    }
  }
}

TEST_CASE("draws, coordinates and checks of generated kernels on the CPU", "[jit][sanitized]") {
  for (const bool by_halves : {false, true}) {
    const Case dropout = dropout_case(f32, 37, 53, by_halves);
    const std::vector<Tensor> outputs = run_on_cpu(dropout);
    const std::vector<double> x = values_of(dropout.inputs[0]), kept = values_of(outputs[0]),
                              y = values_of(outputs[1]);
    std::int64_t wrong = 0, chosen = 0;
    for (std::int64_t i = 0; i < 37 * 53; ++i) {
      const auto k = static_cast<std::size_t>(i);
      // Of the generator's state {seed, step, base}, at place 5 + base.
      const auto block = [&](std::size_t width) {
        return brrr_random_block(100, 101, 5 + 102, k / width);
      };
      const bool drawn =
          by_halves ? brrr_bernoulli(block(8), k, 1 << 15) : brrr_uniform_f32(block(4), k) < 0.5f;
      const bool expected = drawn && i % 53 >= i / 53;
      wrong += kept[k] != (expected ? 1 : 0);
      wrong += y[k] != (expected ? x[k] : x[k] / 2);
      chosen += expected;
    }
    CHECK(wrong == 0);
    CHECK(chosen > 300);
  }

  // Rows 3 and 5 have an index out of range: it is clamped, and the first of them is reported.
  const Case gather = gather_case(f32, 16, 24, false);
  CpuFault fault;
  CHECK(error_of(gather, run_on_cpu(gather, &fault)) == 0);
  CHECK(fault.position == 3);
  CHECK(fault.value == 11);
  CHECK(fault.high == 11);
}

TEST_CASE("an output of a generated kernel may be the memory of an input", "[jit][sanitized]") {
  for (const bool by_columns : {false, true}) {
    Builder b(by_columns ? "in_place_columns" : "in_place_rows", f32);
    const int x = b.body.add_input(f32);
    b.body.add_output(b.op("exp", {x}), f32);  // over x
    b.body.add_output(x, f32);
    b.body.add_output(x, bf16);
    b.body.add_output(b.reduce("max", x), f32);
    const Dims dims = {by_columns ? 700 : 7, by_columns ? 24 : 704};
    const Tensor values = sample(f32, dims, 14), written = clone(values);
    const std::vector<Tensor> outputs = {
        written, make_tensor(f32, dims, cpu), make_tensor(bf16, dims, cpu),
        make_tensor(f32, by_columns ? Dims{1, 24} : Dims{7, 1}, cpu)};
    const Case c{b.body, dims, by_columns ? 1u : 2u, {written}, {}, {}, {}, {}, {}, 0};
    run_on_cpu(c, outputs, nullptr, nullptr);
    CHECK(values_of(outputs[0]) == values_of(exp(values)));
    CHECK(values_of(outputs[1]) == values_of(values));
    CHECK(values_of(outputs[2]) == values_of(cast(values, bf16)));
    CHECK(values_of(outputs[3]) == values_of(max(values, {by_columns ? 0 : 1}, true)));
  }
}

TEST_CASE("values of another type are not computed from what was stored over an input",
          "[jit][sanitized]") {
  Builder b("in_place_of_two_types", f32);
  const int x = b.body.add_input(f32);
  b.body.add_output(b.op("exp", {x}), f32);  // over x
  b.body.add_output(add_pointwise(b.body, row_named("exp"), f64, f64, {x}), f64);
  const Dims dims = {7, 704};
  const Tensor values = sample(f32, dims, 15), written = clone(values);
  const std::vector<Tensor> outputs = {written, make_tensor(f64, dims, cpu)};
  run_on_cpu({b.body, dims, 0, {written}, {}, {}, {}, {}, {}, 0}, outputs, nullptr, nullptr);
  CHECK(values_of(outputs[0]) == values_of(exp(values)));
  CHECK(values_of(outputs[1]) == values_of(exp(cast(values, f64))));
}

namespace {

// Random values, `special` ones among them: one in so many.
Tensor random_values(DType dtype, std::int64_t n, std::uint64_t seed, std::int64_t special) {
  static constexpr double kSpecial[] = {0.0,  -0.0,   1,     -1,   0.5,     INFINITY, -INFINITY,
                                        NAN,  1e-310, 1e-40, 1e-8, 65504,   88.8,     -104,
                                        1e38, -1e38,  710.5, -745, 3.14159, 2,        3};
  test::Random random(seed);
  const Tensor values = make_tensor(f64, Dims{n}, cpu);
  double* at = values.data<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    at[i] = random.below(special) == 0
                ? kSpecial[random.below(static_cast<std::int64_t>(std::size(kSpecial)))]
                : random.uniform(-4, 4);
  }
  return cast(values, dtype);
}

// Elements whose bits differ; all NaNs are one value.
std::int64_t different_bits(const Tensor& x, const Tensor& y) {
  REQUIRE(x.dtype() == y.dtype());
  REQUIRE(x.numel() == y.numel());
  const Tensor a = contiguous(x), b = contiguous(y), wide_a = cast(a, f64), wide_b = cast(b, f64);
  const std::size_t size = size_of(x.dtype());
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (std::isnan(wide_a.data<double>()[i]) && std::isnan(wide_b.data<double>()[i])) continue;
    const std::size_t place = static_cast<std::size_t>(i) * size;
    different += std::memcmp(static_cast<const char*>(a.data()) + place,
                             static_cast<const char*>(b.data()) + place, size) != 0;
  }
  return different;
}

}  // namespace

TEST_CASE("generated loops have the bits of stamped ones", "[jit]") {
  constexpr std::int64_t n = 1003;
  for (const DType dtype : test::kFloatDTypes) {
    std::string text;
    std::vector<std::pair<const test::Pointwise*, Case>> cases;
    for (const test::Pointwise& row : test::pointwise_ops()) {
      const OpInfo& info = op_info(row.op);
      if (!contains(info.types, dtype)) continue;
      Case c;
      c.body = body_of(info, dtype);
      c.dims = {n};
      c.outputs = {{n}};
      for (std::size_t i = 0; i < c.body.inputs.size(); ++i)
        c.inputs.push_back(random_values(c.body.inputs[i].dtype, n, 17 + i, 4));
      text += render_cpu(c.body);
      cases.emplace_back(&row, std::move(c));
    }
    for (const auto& [row, c] : cases) {
      INFO(c.body.name);
      std::vector<test::Operand> operands;
      for (const Tensor& input : c.inputs) operands.push_back({input, {}});
      CHECK(different_bits(run_on_cpu(c, nullptr, &text)[0], row->call(operands)) == 0);
    }
    CHECK(cases.size() > 40);
  }
}

namespace {

struct Shaped {
  Dims dims;
  unsigned reduced;
  bool transposed = false;
  bool own_text = true;  // also as text for its layout alone
};
const Shaped kReducedShapes[] = {{{5, 7}, 2},
                                 {{3, 1003}, 2},
                                 {{2, 300000}, 2, false, false},
                                 {{40, 72}, 2, true},
                                 {{1003, 5}, 1},
                                 {{700, 530}, 1, false, false},
                                 {{1, 4100}, 2, true},
                                 {{4, 9, 33}, 0b101},
                                 {{4, 1500, 3}, 0b110},
                                 {{700, 48}, 1},
                                 {{9, 2048}, 2},
                                 {{1, 300000}, 2},
                                 {{3, 100, 1000}, 0b111}};

}  // namespace

// The order of combination is that of ops/cpu/reduction.cpp: runs in lanes, pieces, blocks,
// columns.
TEST_CASE("generated reductions have eager's bits", "[jit]") {
  for (const DType dtype : {f32, f64, bf16, i32, boolean}) {
    std::string texts[2];  // by rows, by columns
    std::vector<std::pair<const test::Reduction*, Body>> bodies;
    for (const test::Reduction& row : test::reduction_ops()) {
      const OpInfo& info = op_info(row.op);
      if (!contains(info.types, dtype)) continue;
      bodies.emplace_back(&row, reduction_body(info, dtype, result_of(info, dtype)));
      for (const bool by_columns : {false, true})
        texts[by_columns] += render_cpu(bodies.back().second, {.by_columns = by_columns});
    }
    std::vector<Case> cases;
    std::vector<Tensor> eager;
    for (const Shaped& shaped : kReducedShapes) {
      std::int64_t count = 1;
      for (const std::int64_t d : shaped.dims) count *= d;
      Tensor x = reshape(random_values(dtype, count, 3, count < 100 ? 8 : INT64_MAX), shaped.dims);
      if (shaped.transposed) x = transpose(contiguous(transpose(x, 0, 1)), 0, 1);
      Dims results = shaped.dims, over;
      for (std::size_t d = 0; d < static_cast<std::size_t>(shaped.dims.size()); ++d) {
        if (!(shaped.reduced >> d & 1)) continue;
        results[d] = 1;
        over.push_back(static_cast<std::int64_t>(d));
      }
      for (const auto& [row, body] : bodies) {
        Case c;
        c.body = body;
        c.dims = shaped.dims;
        c.reduced = shaped.reduced;
        c.inputs = {x};
        c.outputs = {results};
        INFO(body.name << " " << to_string(shaped.dims) << " over " << to_string(over));
        eager.push_back(row->over(x, over, true));
        CHECK(different_bits(run_on_cpu(c, nullptr, texts)[0], eager.back()) == 0);
        if (shaped.own_text) cases.push_back(c);
        if (!shaped.own_text) eager.pop_back();
      }
    }
    const std::vector<std::vector<Tensor>> outputs = run_all_on_cpu(cases);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO(cases[i].body.name << " " << to_string(cases[i].dims) << " of known size");
      CHECK(different_bits(outputs[i][0], eager[i]) == 0);
    }
  }
}

TEST_CASE("functions one after another have a loop each on the CPU", "[jit]") {
  const auto loops_of = [](const Body& body) {
    const std::string text = render_cpu(body), loop = "e += Lanes<float>::count";
    int loops = 0;
    for (std::size_t at = 0; (at = text.find(loop, at)) != std::string::npos; ++at) ++loops;
    return loops;
  };
  Body chain;
  chain.name = "chain";
  int value = chain.add_input(f32, Body::Scope::element);
  for (const char* text : {"tanh(a)", "a * a", "exp(a)", "a + a", "log(a)"})
    value = chain.add_expression(text, f32, f32, {value});
  chain.add_output(value, f32);
  Body beside;
  beside.name = "beside";
  const int x = beside.add_input(f32, Body::Scope::element);
  const int one = beside.add_expression("sin(a)", f32, f32, {x}),
            other = beside.add_expression("cos(a)", f32, f32, {x});
  beside.add_output(beside.add_expression("a + b", f32, f32, {one, other}), f32);
  // What is rounded before and after a function has loops of its own.
  Body rounded;
  rounded.name = "rounded";
  rounded.strict = true;
  int half = rounded.add_input(bf16, Body::Scope::element);
  for (const char* text : {"a + a", "a * a", "exp(a)", "a * a", "a + a"})
    half = rounded.add_expression(text, f32, bf16, {half});
  rounded.add_output(half, bf16);
#if BRRR_VECTOR_MATH
  CHECK(loops_of(chain) == 3);
  CHECK(loops_of(beside) == 1);
  CHECK(loops_of(rounded) == 3);
#else
  CHECK(loops_of(chain) == 0);
  CHECK(loops_of(beside) == 0);
  CHECK(loops_of(rounded) == 0);
#endif
}

TEST_CASE("a CPU tile has several short rows, and all of few columns", "[jit]") {
  Body body;
  body.name = "sum";
  const int x = body.add_input(f32, Body::Scope::element);
  BodyValue sum;
  sum.kind = BodyValue::Kind::reduction;
  sum.operands = {x};
  sum.expression = "a";
  sum.identity = "K(0)";
  sum.combine = "x + y";
  sum.finish = "x";
  body.add_output(body.add(std::move(sum)), f32);
  const auto walk_of = [&](std::int64_t rows, std::int64_t columns, bool by_columns) {
    StridedSpace of_rows, of_columns;
    of_rows.operands = of_columns.operands = 2;
    of_rows.add_dim(rows);
    of_columns.add_dim(columns);
    of_rows.stride[0][0] = columns, of_rows.stride[1][0] = by_columns ? 0 : 1;
    of_columns.stride[0][0] = 1, of_columns.stride[1][0] = by_columns ? 1 : 0;
    const StridedSpace &kept = by_columns ? of_columns : of_rows,
                       &reduced = by_columns ? of_rows : of_columns;
    return cpu_walk(body, kept, reduced, cpu_order(kept, reduced, 0));
  };
  CHECK(walk_of(1000, 17, false).lines == 24);
  CHECK(walk_of(1000, 300, false).lines == 1);
  const CpuWalk few = walk_of(1000, 3, true), blocks = walk_of(100'000, 3, true),
                wide = walk_of(100, 1001, true);
  CHECK(few.tile == 3);
  CHECK(few.lines == 170);
  CHECK_FALSE(few.splits);
  CHECK(blocks.splits);
  CHECK(wide.tile == 504);
  CHECK(wide.rest == 497);
}
