// Bodies with a contraction: which layouts are products, and that their texts compile. Nothing here
// needs a GPU.
#include <array>
#include <cstdlib>

#include "brrr/ops/cuda/contraction.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::on_cuda;
using Scope = jit::Body::Scope;

namespace {

// tanh(a b + row), and a b + row, over dimensions [batch, row, column, summed].
BodySpec layer_of(DType dtype, const Dims& dims) {
  BodySpec spec;
  spec.dims = dims;
  spec.reduced = 1u << (dims.size() - 1);
  jit::Body& body = spec.body;
  body.name = "layer";
  body.strict = true;
  const int a = body.add_input(dtype), b = body.add_input(dtype),
            row = body.add_input(dtype, Scope::row);
  jit::Body::Value product;
  product.kind = jit::Body::Value::Kind::contraction;
  product.dtype = product.type = f32;
  product.operands = {a, b};
  const int sum = body.add_expression("a + b", dtype, dtype, {body.add(product), row});
  body.add_output(sum, dtype);
  body.add_output(body.add_expression("tanh(a)", dtype, dtype, {sum}), dtype);
  // The sums of the rows of a, and the largest of the columns of b.
  const auto reduce = [&](int factor, const char* combine) {
    jit::Body::Value value;
    value.kind = jit::Body::Value::Kind::reduction;
    value.dtype = dtype;
    value.type = f32;
    value.operands = {factor};
    value.text = "a", value.identity = "K(0)", value.combine = combine, value.finish = "x";
    return body.add(std::move(value));
  };
  body.add_output(reduce(a, "x + y"), dtype);
  body.add_output(reduce(b, "x > y ? x : y"), dtype);
  return spec;
}

}  // namespace

TEST_CASE("contractions are found by their strides", "[jit][cuda]") {
  const BodySpec spec = layer_of(bf16, {4, 24, 32, 48});
  const Dims out = {24 * 32, 32, 1, 0}, row = {0, 0, 1, 0}, of_a = {24, 1, 0, 0},
             of_b = {32, 0, 1, 0};
  SECTION("a batch of products") {
    const auto c = contraction_of(
        spec,
        std::vector<Dims>{{24 * 48, 48, 0, 1}, {48 * 32, 0, 1, 32}, row, out, out, of_a, of_b});
    REQUIRE(c);
    CHECK(c->product.m == 24);
    CHECK(c->product.n == 32);
    CHECK(c->product.k == 48);
    CHECK(c->product.batch == Dims{4});
    CHECK(c->product.b.row == 32);
    CHECK(c->product.b.col == 1);
    CHECK(c->first_column == 4);  // outputs that vary along rows alone
    CHECK(c->first_row == 8);
  }
  SECTION("a batch against one matrix has its rows") {
    const auto c = contraction_of(
        spec,
        std::vector<Dims>{{24 * 48, 48, 0, 1}, {0, 0, 1, 32}, row, out, out, of_a, {0, 0, 1, 0}});
    REQUIRE(c);
    CHECK(c->product.m == 96);
    CHECK(c->product.batch.empty());
    CHECK(c->results.rank == 2);  // rows and columns: the added row repeats
  }
  SECTION("rows without one stride are no matrix's") {
    CHECK_FALSE(contraction_of(
        spec, std::vector<Dims>{{1000 * 48, 48, 0, 1}, {0, 0, 1, 32}, row, out, out, of_a, of_b}));
  }
  SECTION("a factor that does not vary along the sum is none") {
    CHECK_FALSE(contraction_of(
        spec,
        std::vector<Dims>{{24 * 48, 48, 0, 0}, {48 * 32, 0, 1, 32}, row, out, out, of_a, of_b}));
  }
}

TEST_CASE("contractions compile for CUDA", "[jit][cuda]") {
  if (const std::string problem = cu::open_library(cu::Library::nvrtc); !problem.empty()) {
    brrr::testing::skip(problem);
    return;
  }
  ::setenv("BRRR_CACHE", "off", 1);
  for (const DType dtype : {f32, f16, bf16}) {
    const BodySpec spec = layer_of(dtype, {4, 24, 32, 48});
    const Dims out = {24 * 32, 32, 1, 0}, row = {0, 0, 1, 0}, of_a = {24, 1, 0, 0},
               of_b = {32, 0, 1, 0};
    const auto c = contraction_of(
        spec,
        std::vector<Dims>{{24 * 48, 48, 0, 1}, {48 * 32, 0, 1, 32}, row, out, out, of_a, of_b});
    REQUIRE(c);
    for (const OperandLayout b : {OperandLayout::mn_contiguous, OperandLayout::strided}) {
      ContractionPart part{&spec.body, *c, {dtype, OperandLayout::k_contiguous, b, 2}};
      ContractionPart other = part;
      other.prefetch_a = other.prefetch_others = true;
      other.prefetch_b = b != OperandLayout::strided;
      const std::string text = contraction_text(std::array{part, other});
      INFO(name_of(dtype) << " " << static_cast<int>(b));
      for (const int architecture : {80, 90}) {
        for (const auto& kernel :
             testing::resources_of(jit::compile_to_cubin(text, architecture))) {
          CHECK(kernel.registers <= 128);
          CHECK(kernel.local_bytes <= 16);  // around the slow path of a function
        }
      }
    }
  }
  ::unsetenv("BRRR_CACHE");
}
