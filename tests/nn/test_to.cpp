// Modules that move to another type or device, and where new ones are made.
#include <functional>
#include <memory>

#include "tests/harness/catch.h"
#include "tests/harness/nn_reference.h"

#include "brrr/tensor/tensor_impl.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// A parameter under two names, a constant one, a buffer of floats and one of integers.
struct Mixed : nn::Module {
  Tensor weight = tensor({1, 2, 3}), same = weight, fixed = ones({2});
  Tensor mean = full({3}, 0.5), count = tensor<std::int64_t>({7});
  nn::Linear inner{3, 2};
  Mixed() : Module("mixed") {
    parameter("weight", weight);
    parameter("same", same);
    parameter("fixed", fixed);
    requires_grad_(fixed, false);
    buffer("mean", mean);
    buffer("count", count);
    child("inner", inner);
  }
  Tensor forward(const Tensor& x) override { return inner(x * weight + same - mean); }
};

}  // namespace

TEST_CASE("nn: a module converts its floating tensors", "[nn]") {
  Mixed mixed;
  const std::vector<float> weight = to_vector<float>(mixed.weight),
                           inner = to_vector<float>(mixed.inner.weight);
  backward(sum(mixed(ones({1, 3}))));
  const std::vector<float> gradient = to_vector<float>(grad_of(mixed.weight));
  const Tensor before = mixed.weight;

  nn::Module& given = mixed.to(f64);
  CHECK(&given == &mixed);
  for (const auto& entry : mixed.named_tensors()) {
    INFO(entry.name);
    CHECK(entry.tensor->dtype() == (entry.name == "count" ? i64 : f64));
    CHECK(is_leaf(*entry.tensor));
    CHECK(requires_grad(*entry.tensor) == (entry.parameter && entry.name != "fixed"));
  }
  CHECK(TensorImpl::of(mixed.same) == TensorImpl::of(mixed.weight));
  CHECK(to_vector<double>(mixed.weight) == std::vector<double>(weight.begin(), weight.end()));
  CHECK(to_vector<double>(mixed.inner.weight) == std::vector<double>(inner.begin(), inner.end()));
  CHECK(grad_of(mixed.weight).dtype() == f64);
  CHECK(to_vector<double>(grad_of(mixed.weight)) ==
        std::vector<double>(gradient.begin(), gradient.end()));
  CHECK(before.dtype() == f32);  // the old tensor is as it was

  // The new leaves collect gradients, and an optimizer that is made now steps them.
  optim::Optimizer optimizer(mixed, optim::sgd(0.5));
  optimizer.zero_grad();
  backward(sum(mixed(ones({1, 3}, {.dtype = f64}))));
  optimizer.step();
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(to_vector<double>(mixed.weight)[i] == Approx(weight[i] - 0.5 * gradient[i]));
}

TEST_CASE("nn: to() leaves what is right already, and refuses what it cannot do", "[nn]") {
  Mixed mixed;
  const Tensor weight = mixed.weight;
  mixed.to(cpu).to(f32).to(cpu, f32);
  CHECK(TensorImpl::of(mixed.weight) == TensorImpl::of(weight));
  CHECK(error_of([&] { mixed.to(i32); }) ==
        "[mixed] expected a floating type to convert to, got i32");
  {
    const nn::Parameters packed(mixed);
    const Tensor before = mixed.weight;
    CHECK_NOTHROW(mixed.to(f32));
    CHECK(error_of([&] { mixed.to(f64); }) ==
          "[mixed] expected a module that is not packed, got weight, which nn::Parameters or an "
          "optimizer has packed: call to(...) before making those");
    CHECK(TensorImpl::of(mixed.weight) == TensorImpl::of(before));
    CHECK(mixed.mean.dtype() == f32);
  }
  mixed.to(f64);  // packed no more
  CHECK(mixed.weight.dtype() == f64);

  auto step = compile([&](const Tensor& x) {
    mixed.to(f32);
    return x * 2;
  });
  CHECK_THAT(error_of([&] { step(ones({2})); }),
             Catch::StartsWith("[Module::to] cannot be part of the compiled function"));
  CHECK(mixed.weight.dtype() == f64);
  CHECK(item(sum(mixed.weight)) == 6);
}
