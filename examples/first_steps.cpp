// Tensors, broadcasting, a matrix product and softmax: one dense layer classifies two inputs.
#include <brrr/brrr.h>

#include <cmath>
#include <cstdio>

using namespace brrr;

int main() try {
  const Device device = cuda_is_available() ? cuda() : Device::cpu();
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
  const Tensor probabilities = softmax(scores, 1);
  std::printf("probabilities = %s\n", to_string(probabilities).c_str());
  std::printf("best class = %s\n\n", to_string(argmax(probabilities, 1)).c_str());

  // A view aliases its tensor: doubling the first column changes `probabilities`.
  const double before = item(sum(probabilities));
  probabilities[{Slice{}, 0}] *= 2;
  std::printf("sum of all probabilities: %.3f, with the first column doubled: %.3f\n\n", before,
              item(sum(probabilities)));

  // Misuse throws an error that states what was expected.
  try {
    matmul(x, x);
  } catch (const Error& error) {
    std::printf("refused as expected: %s\n", error.what());
  }
  return std::abs(before - 2) < 1e-5 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
