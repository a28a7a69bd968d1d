// A minimal program of another project that uses brrr; exits with 1 if the result is wrong.
#include <brrr/brrr.h>

#include <cstdio>

#include "ops/functions.h"

// Ops may run, and be recorded, before main.
const brrr::Tensor weight = brrr::requires_grad_(brrr::tensor({2.0f, 3.0f}));
const brrr::Tensor loss = brrr::sum(weight * weight);

int main() {
  const brrr::Tensor x = brrr::arange(1, 1 + consumer::count({}), {.dtype = brrr::f32});
  const double total = brrr::item(brrr::sum(x * 2 + 1));
  std::printf("sum(x * 2 + 1) = %g\n", total);
  brrr::backward(loss);
  const double slope = brrr::item(brrr::sum(brrr::grad(weight)));
  std::printf("the sum of its gradient = %g\n", slope);
  auto step = brrr::compile([](const brrr::Tensor& t) { return brrr::sum(t * 2 + 1); });
  double replayed = 0;
  for (int i = 0; i < 3; ++i) replayed = brrr::item(step(x));
  std::printf("the sum, replayed = %g\n", replayed);
  return total == 15 && slope == 10 && replayed == 15 ? 0 : 1;
}
