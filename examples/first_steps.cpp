// Tensors, broadcasting, a matrix product, softmax: one dense layer and what it says of two inputs.
#include <brrr/brrr.h>

#include <cmath>
#include <cstdio>

using namespace brrr;

int main() {
  const Device device = cuda_is_available() ? cuda() : cpu;
  std::printf("running on %s\n\n", to_string(device).c_str());
  manual_seed(0);

  // A row and a column make a table.
  const Tensor row = arange(1, 5, {.dtype = f32, .device = device});
  const Tensor column = view(row, {4, 1});
  std::printf("times table = %s\n\n", to_string(row * column).c_str());

  // Two inputs of three features, four classes.
  const Tensor x = tensor({{1, 0, -1}, {0.5, 2, 1}}, device);
  const Tensor weight = randn({3, 4}, {.device = device});
  const Tensor bias = zeros({4}, {.device = device});
  const Tensor scores = matmul(x, weight) + bias;
  const Tensor chances = softmax(scores, 1);
  std::printf("chances = %s\n", to_string(chances).c_str());
  std::printf("best class = %s\n\n", to_string(argmax(chances, 1)).c_str());

  // Views share memory: doubling the first column of `chances` shows in `chances`.
  const double before = item(sum(chances));
  chances[{Slice{}, 0}] *= 2;
  std::printf("sum of all chances: %.3f, with the first column doubled: %.3f\n\n", before,
              item(sum(chances)));

  // A misuse is an error that says what was expected.
  try {
    matmul(x, x);
  } catch (const Error& error) {
    std::printf("as it should be: %s\n", error.what());
  }
  return std::abs(before - 2) < 1e-5 ? 0 : 1;
}
