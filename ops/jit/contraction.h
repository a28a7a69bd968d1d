// Contractions: bodies that multiply two matrices, recognized in the strides of the factors over
// the body's space, on any device.
#pragma once

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

// A body's space as a product of matrices.
struct Contraction {
  int a = 0, b = 0;   // the inputs that are the factors
  DType dtype = f32;  // of both
  Roles roles;
  MatrixProduct product;  // strides of the factors; those of results are in `results`
  // The results in the order of batch, row, column; inputs and outputs of the body are operands.
  StridedSpace results;
  // Outputs, as bits, that the results of one column or of one row store, since they do not vary
  // along the rows or columns.
  std::uint32_t first_row = 0, first_column = 0;
};

// None where a factor's rows, columns or summed dimensions do not have one stride. `swapped`: as
// the product of the second factor's lines by the first's, whose result is D transposed.
std::optional<Contraction> contraction_of(const BodyStrides& body, bool swapped = false);

}  // namespace brrr::jit
