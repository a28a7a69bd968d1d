// Hessian-vector products without the Hessian, as the gradient of (gradient · v). Newton's method
// with conjugate gradients uses them to minimize a function of many variables.
#include <brrr/brrr.h>

#include <cstdio>
#include <functional>
#include <utility>

using namespace brrr;

using Function = std::function<Tensor(const Tensor&)>;

Tensor hessian_vector_product(const Function& f, const Tensor& x, const Tensor& v) {
  const Tensor at = requires_grad_(clone(x));
  const Tensor slope = grad(f(at), at, {.create_graph = true});
  return grad(sum(slope * v), at);
}

// Solves H step = slope.
Tensor newton_step(const Function& f, const Tensor& x, const Tensor& slope) {
  Tensor step = zeros_like(x), residual = clone(slope), direction = clone(slope);
  double squares = item(sum(square(residual)));
  for (int i = 0; i < x.numel() && squares > 1e-20; ++i) {
    const Tensor curved = hessian_vector_product(f, x, direction);
    const double rate = squares / item(sum(direction * curved));
    step += rate * direction;
    residual -= rate * curved;
    const double before = std::exchange(squares, item(sum(square(residual))));
    direction = residual + squares / before * direction;
  }
  return step;
}

int main() try {
  manual_seed(0);
  const std::int64_t n = 50;
  const Tensor a = randn({n, n}, {.dtype = f64}), b = randn({n}, {.dtype = f64});
  const Function f = [&](const Tensor& x) {
    return sum(softplus(matmul(a, x) - b)) + 0.5 * sum(square(x));
  };

  // Compares with a difference of gradients.
  const auto slope_at = [&](const Tensor& x) {
    const Tensor at = requires_grad_(clone(x));
    return grad(f(at), at);
  };
  Tensor x = zeros({n}, {.dtype = f64});
  const Tensor v = randn({n}, {.dtype = f64});
  const double h = 1e-5;
  const Tensor difference = (slope_at(x + h * v) - slope_at(x - h * v)) / (2 * h);
  const Tensor product = hessian_vector_product(f, x, v);
  const double error = item(norm(product - difference)) / item(norm(product));
  std::printf("H v against differences: relative error %.1e\n\n", error);

  double steepness = 0;
  for (int i = 0; i < 8; ++i) {
    const Tensor slope = slope_at(x);
    steepness = item(norm(slope));
    std::printf("step %d  f %.12f  |gradient| %.1e\n", i, item(f(x)), steepness);
    x -= newton_step(f, x, slope);
  }
  return error < 1e-6 && steepness < 1e-8 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
