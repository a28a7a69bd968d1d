// Facts of the op table's rows: attributes, effects, algebra, accumulators, costs.
#include <string>
#include <vector>

#include "brrr/dispatch/expression.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/jit/body.h"
#include "brrr/ops/register_op.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;

namespace {

using Kind = Attribute::Kind;

std::string attributes_of(const Call& call) {
  std::string text;
  for_each_attribute(call, [&](const CallAttribute& attribute) {
    text += attribute.row.name + "=" + attribute.text() + " ";
  });
  return text;
}

// Described as calls are made.
class LastCall : public Observer {
 public:
  void after(const Call& call, std::span<const Tensor> outputs) override {
    attributes = attributes_of(call);
    cost = cost_of(call, outputs);
    works = does_work(call);
  }
  std::string attributes;
  Cost cost;
  bool works = false;
};

}  // namespace

TEST_CASE("attributes are parsed when a row enters the table", "[facts]") {
  const std::vector<Attribute> row = parse_attributes("axis scale:double value:number  shape...");
  REQUIRE(row.size() == 4);
  CHECK(row[0].name == "axis");
  CHECK(row[1].name == "scale");
  CHECK(row[3].name == "shape");
  CHECK((row[0].kind == Kind::integer && row[1].kind == Kind::real && row[2].kind == Kind::number &&
         row[3].kind == Kind::shape));
  CHECK(parse_attributes("").empty());
  CHECK_THROWS_AS(parse_attributes("scale:float"), Error);

  LastCall last;
  const Observing observing(last);
  full({2, 3}, 4, {.dtype = i64});
  CHECK(last.attributes == "value=4 shape=[2, 3] ");
  full({}, 0.5);
  CHECK(last.attributes == "value=0.5 ");
  sum(ones({2, 3}), {1}, true);
  CHECK(last.attributes == "dims={1} keepdim=1 ");
}

TEST_CASE("an expression says what its value is", "[facts]") {
  CHECK(algebra_of("a + b") == Algebra::sum);
  CHECK(algebra_of("a-b") == Algebra::difference);
  CHECK(algebra_of("(a * b)") == Algebra::product);
  CHECK(algebra_of("K(a / b)") == Algebra::quotient);
  CHECK(algebra_of("-a") == Algebra::negation);
  CHECK(algebra_of("a") == Algebra::identity);
  CHECK(algebra_of("minimum(maximum(a, b), c)") == Algebra::selection);
  CHECK(algebra_of("where(a, b, c)") == Algebra::selection);
  CHECK(algebra_of("maximum(a, K(0)) + log1p(a)") == Algebra::other);
  CHECK(algebra_of("(a) * (b)") == Algebra::product);
  CHECK(algebra_of("K(1) / a") == Algebra::other);
  CHECK(algebra_of("a * a") == Algebra::other);

  const Op own = register_op(PointwiseOp{.name = "facts_sum", .arity = 2, .expression = "a+b"});
  CHECK(op_info(own).algebra == Algebra::sum);
  CHECK(op_info(own).effect == Effect::pure);
}

TEST_CASE("registered ops promise what they do", "[facts]") {
  StructuredOp op;
  op.name = "facts_unknown";
  op.infer = [](const Call& call, OutputSpec* out) {
    out[0] = {call.dtype, call.input(0).device(), Dims(call.input(0).shape())};
  };
  op.cpu = [](const Call&, Tensor*) {};
  CHECK_THROWS_WITH(register_op(op),
                    Catch::Contains("[register_op] expected a cost for facts_unknown"));
  op.cost = cost_of_moving;
  const Op unknown = register_op(op);
  op.name = "facts_pure";
  op.pure = true;
  op.cost = [](const Call& call, std::span<const Tensor>) {
    return Cost{7 * call.input(0).numel(), 5};
  };
  const Op pure = register_op(op);
  CHECK(op_info(unknown).effect == Effect::unknown);
  CHECK(op_info(pure).effect == Effect::pure);

  LastCall last;
  const Observing observing(last);
  const Tensor x = ones({3});
  call_op(unknown, {x}, {});
  CHECK((last.cost.flops == 0 && last.cost.bytes == 2 * 12));
  call_op(pure, {x}, {});
  CHECK((last.cost.flops == 21 && last.cost.bytes == 5));
}

TEST_CASE("what costs nothing does no work", "[facts]") {
  LastCall last;
  const Observing observing(last);
  const Tensor x = ones({3, 4});
  CHECK(last.works);
  transpose(x, 0, 1);
  CHECK_FALSE(last.works);
  empty({5});
  CHECK_FALSE(last.works);
  CHECK(last.cost.bytes == 0);
  clone(x);
  CHECK(last.works);
}

TEST_CASE("the loops and the generated kernels accumulate in the types that the table says",
          "[facts]") {
  constexpr Device gpu = cuda(0);
  int row = 0;
  for (int op = 0; op < kBuiltinOps; ++op) {
    const OpInfo& info = op_info(static_cast<Op>(op));
    if (info.kind != OpKind::reduction) continue;
    for (int i = 0; i < kDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (!contains(info.types, dtype)) continue;
      INFO(info.name << " of " << name_of(dtype));
      const on_cpu::ReductionLoops& loops = on_cpu::loops->reduction[row][i];
      if (!is_half(dtype)) CHECK(loops.accumulator == accumulator_of(info, dtype, cpu));
      const jit::Body body = jit::reduction_body(info, dtype, result_dtype(info.rule, dtype));
      CHECK(body.values.back().type == accumulator_of(info, dtype, gpu));
    }
    ++row;
  }
  CHECK(row > 5);
}
