// A program of tensor/ and dispatch/ alone: its link fails where dispatch/ needs a symbol of ops/
// or of what is above it. It registers an op and dispatches calls of it.
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/tensor/error.h"

using namespace brrr;

namespace {

std::span<float> values_of(const Tensor& x) {
  return {x.data<float>(), static_cast<std::size_t>(x.numel())};
}

Op add_triple(const std::string& name = "triple") {
  OpInfo info;
  info.arity = 1;
  info.infer = [](const Call& call, OutputSpec* outputs) {
    const Tensor& x = call.input(0);
    outputs[0] = {x.dtype(), x.device(), Dims(x.shape())};
  };
  info.cpu = [](const Call& call, Tensor* outputs) {
    const std::span<const float> from = values_of(call.input(0));
    const std::span<float> to = values_of(outputs[0]);
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = 3 * from[i];
  };
  return add_op(info, name);
}

Tensor call(Op op, const Tensor& x) {
  const Tensor* const inputs[] = {&x};
  Call call(op, inputs, 1);
  return dispatch(call);
}

int failures = 0;
void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "failed: %s\n", what);
  ++failures;
}

}  // namespace

int main() {
  const int before = op_count();
  const Op triple = add_triple();
  check(op_count() == before + 1, "the op is in the table");
  check(static_cast<int>(triple) >= kBuiltinOps, "its number is none of a built-in op");

  const std::int64_t shape[] = {3};
  const Tensor x = make_tensor(f32, shape, cpu);
  for (int i = 0; i < 3; ++i) values_of(x)[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
  const Tensor y = call(triple, x);
  check(values_of(y)[0] == 3 && values_of(y)[2] == 9, "the kernel ran");
  check(call(triple, make_meta_tensor(f32, shape, cpu)).is_meta(), "meta calls infer");

  try {
    add_triple();
    check(false, "a name is taken once");
  } catch (const Error&) {
  }

  // As many as the table has places for, the last of which runs.
  Op last = triple;
  while (op_count() < detail::kMaxOps) last = add_triple("triple" + std::to_string(op_count()));
  check(values_of(call(last, x))[1] == 6, "the last op of a full table runs");
  try {
    add_triple("triple_more");
    check(false, "a full table takes no op");
  } catch (const Error& error) {
    check(std::string(error.what()) ==
              "[register_op] expected fewer than 1024 ops, got triple_more as one more",
          error.what());
  }
  check(op_count() == detail::kMaxOps, "a refused op is not counted");
  return failures != 0;
}
