// Contractions: bodies that multiply two matrices, recognized in the strides of the factors over
// the body's space, on any device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <brrr/ops/body_spec.h>
#include <brrr/ops/jit/matrix_product.h>
#include <brrr/tensor/strided_space.h>

namespace brrr::jit {

// The dimensions of a body's space by what they are of the product.
struct Roles {
  std::vector<int> rows, columns, summed;
  std::vector<std::vector<int>> batches;  // by dimension of the product's batch
};
// The stride of the joint index of dimensions, outermost first; none if there is none.
std::optional<std::int64_t> joint_stride(const BodySpec& spec, const Dims& strides,
                                         const std::vector<int>& dims);

// The bytes of an element of what a factor may be computed from.
constexpr std::size_t kWidestOfFactor = 4;

// A factor of a body's product: an input, or a value that is computed from inputs for each element
// that is loaded (a prologue).
struct ContractionFactor {
  // Strides as in FactorLines.
  struct Input {
    int number = 0;  // of the body's input
    std::int64_t line_stride = 0, depth_stride = 0;
    Dims batch_strides;
  };
  int value = 0;              // of the body
  std::vector<Input> inputs;  // first one that varies along all of the factor's dimensions

  int first() const { return inputs.front().number; }
  bool reads(int input) const {
    return std::ranges::find(inputs, input, &Input::number) != inputs.end();
  }
};

// A body's space as a product of matrices.
struct Contraction {
  ContractionFactor a, b;
  DType dtype = f32;  // of both
  Roles roles;
  // Strides are those of the factors' first inputs; those of results are in `results`.
  MatrixProduct product;
  // The results in the order of batch, row, column; inputs and outputs of the body are operands.
  StridedSpace results;
  // Outputs, as bits, that the results of one column or of one row store, since they do not vary
  // along the rows or columns.
  std::uint32_t first_row = 0, first_column = 0;
};

// None where the rows, columns or summed dimensions of an input of a factor do not have one stride,
// or no input of a factor varies along all of them. `swapped`: as the product of the second
// factor's lines by the first's, whose result is D transposed.
std::optional<Contraction> contraction_of(const BodyStrides& body, bool swapped = false);

// Whether a factor of the body's contraction is not an input.
bool has_computed_factor(const Body& body);
// The values that a factor is computed from, in order, itself last.
std::vector<int> values_of_factor(const Body& body, int factor);
// Inputs of a computed factor are loaded for each of its elements, also where they do not vary
// along the summed dimension.
void load_factors_per_element(Body& body);
// Whether a kernel can compute the body's values: factors from inputs that nothing else reads, and
// scalars; all others after the product, or by reducing a factor. No part of a factor is stored.
bool has_separate_factors(const Body& body);

}  // namespace brrr::jit
