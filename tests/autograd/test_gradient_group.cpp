// GradientGroup: gradients packed into one flat tensor.
#include <brrr/brrr.h>

#include "brrr/dispatch/observe.h"
#include "brrr/dispatch/op_info.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using test::error_of;

namespace {

using Floats = std::vector<float>;
Floats floats(const Tensor& x) { return to_vector<float>(x); }

struct Leaves {
  Tensor w = requires_grad_(tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3})),
         b = requires_grad_(tensor({7, 8})), unused = requires_grad_(ones({3}));
  std::vector<Tensor> all() const { return {w, b, unused}; }
};

class Counting final : public Observer {
 public:
  void before(const Call& call) override { ++calls[op_info(call.op).name]; }
  std::map<std::string, int> calls;
};

}  // namespace

TEST_CASE("a backward fills a group with one op", "[autograd][group]") {
  const Leaves leaves;
  GradientGroup group(leaves.all());
  CHECK(group.leaves().size() == 3);
  CHECK_FALSE(group.flat().defined());
  const Tensor loss = sum(leaves.w * 2) + sum(leaves.b * leaves.b);
  Counting counting;
  {
    const Observing observing(counting);
    backward(loss);
  }
  CHECK(counting.calls["cat"] == 1);
  CHECK(counting.calls["add"] == 1);  // the two halves of the square
  CHECK(floats(group.flat()) == Floats{2, 2, 2, 2, 2, 2, 14, 16, 0, 0, 0});
  CHECK(floats(grad(leaves.w)) == Floats(6, 2));
  CHECK(grad(leaves.w).shape()[1] == 3);
  CHECK(floats(grad(leaves.b)) == Floats{14, 16});
  CHECK(floats(grad(leaves.unused)) == Floats{0, 0, 0});
  for (const Tensor& leaf : leaves.all()) CHECK(grad(leaf).shares_storage_with(group.flat()));
}

TEST_CASE("a group accumulates with two ops", "[autograd][group]") {
  const Leaves leaves;
  GradientGroup group(leaves.all());
  const auto loss = [&] { return sum(leaves.w * leaves.w); };
  backward(loss());
  const Tensor top = loss();
  Counting counting;
  {
    const Observing observing(counting);
    backward(top);
  }
  CHECK(counting.calls["cat"] == 1);
  CHECK(counting.calls["add"] == 2);  // the square's own two halves, and the group's
  CHECK(floats(grad(leaves.w)) == Floats{4, 8, 12, 16, 20, 24});
  backward(sum(leaves.b));
  CHECK(floats(group.flat()) == Floats{4, 8, 12, 16, 20, 24, 1, 1, 0, 0, 0});
  group.clear();
  CHECK_FALSE(group.flat().defined());
  CHECK_FALSE(grad(leaves.w).defined());
  backward(sum(leaves.b));
  CHECK(floats(group.flat()) == Floats{0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0});
}

TEST_CASE("a group's gradients may be replaced as one", "[autograd][group]") {
  const Leaves leaves;
  GradientGroup group(leaves.all());
  group.set_flat(arange(11.0));
  CHECK(floats(grad(leaves.w)) == Floats{0, 1, 2, 3, 4, 5});
  CHECK(floats(grad(leaves.b)) == Floats{6, 7});
  CHECK(floats(grad(leaves.unused)) == Floats{8, 9, 10});
  const Tensor flat = group.flat();
  const auto refused = [&](const Tensor& gradients, const char* got) {
    CHECK_THAT(error_of([&] { group.set_flat(gradients); }),
               Catch::Contains("[GradientGroup] expected gradients of f32[11], got") &&
                   Catch::Contains(got));
    CHECK(group.flat().same_view_as(flat));
  };
  refused(zeros({10}), "f32[10]");
  refused(zeros({11}, {.dtype = f64}), "f64[11]");
  refused(zeros({1, 11}), "f32[1, 11]");
  refused(Tensor(), "undefined");
}

TEST_CASE("grad and a failed backward leave a group alone", "[autograd][group]") {
  const Leaves leaves;
  GradientGroup group(leaves.all());
  backward(sum(leaves.w));
  const Tensor flat = group.flat();
  const Floats before = floats(flat);
  CHECK(floats(grad(sum(leaves.w * 3), leaves.w)) == Floats(6, 3));
  register_hook(leaves.unused, [](const Tensor&) -> Tensor { throw std::runtime_error("no"); });
  CHECK_THROWS(backward(sum(leaves.w) + sum(leaves.unused)));
  CHECK(group.flat().same_view_as(flat));
  CHECK(floats(group.flat()) == before);
}

TEST_CASE("leaves beside a group, and after it", "[autograd][group]") {
  const Leaves leaves;
  {
    GradientGroup group({leaves.w, leaves.b});
    backward(sum(leaves.w) + sum(leaves.b) + sum(leaves.unused));
    CHECK(floats(group.flat()) == Floats(8, 1));
    CHECK(floats(grad(leaves.unused)) == Floats(3, 1));
    CHECK_FALSE(grad(leaves.unused).shares_storage_with(group.flat()));
    CHECK_THAT(error_of([&] { zero_grad(leaves.w); }),
               Catch::Contains("[zero_grad] expected a leaf in no group"));
    CHECK_THAT(error_of([&] {
                 set_grad(leaves.w, ones({2, 3}));
               }),
               Catch::Contains("[set_grad] expected a leaf in no group"));
    Tensor w = leaves.w;
    CHECK_THAT(error_of([&] { requires_grad_(w, false); }),
               Catch::Contains("[requires_grad_] expected a leaf in no group, got f32[2, 3]"));
  }
  backward(sum(leaves.b));
  CHECK(floats(grad(leaves.b)) == Floats{2, 2});
  zero_grad(leaves.b);
  GradientGroup again({leaves.b});
  CHECK_FALSE(grad(leaves.b).defined());
}

TEST_CASE("what cannot be a group is refused", "[autograd][group]") {
  const Leaves leaves;
  const auto refused = [](std::vector<Tensor> members, const char* text) {
    CHECK_THAT(error_of([&] { GradientGroup group(members); }), Catch::Contains(text));
  };
  const char* one_kind = "[GradientGroup] expected leaves of one dtype on one device";
  refused({}, "[GradientGroup] expected at least one leaf, got none");
  refused({leaves.w, ones({2})}, one_kind);
  refused({leaves.w * 2}, one_kind);
  refused({leaves.w, requires_grad_(ones({2}, {.dtype = bf16}))}, one_kind);
  refused({leaves.w, Tensor()}, "expected a tensor, got an undefined one");
  refused({leaves.w, leaves.b, leaves.w}, "[GradientGroup] expected each leaf once, got f32[2, 3]");
  GradientGroup group({leaves.w});
  refused({leaves.b, leaves.w}, one_kind);
  // A refusal leaves no leaf in a group.
  GradientGroup rest({leaves.b, leaves.unused});
  backward(sum(leaves.b));
  CHECK(floats(rest.flat()) == Floats{1, 1, 0, 0, 0});
}
