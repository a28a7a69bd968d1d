// Bodies with a contraction on CUDA: a matrix product whose results go through the body's values on
// their way to memory. The tile kernel is the one that an eager product of the same shape runs
// (matmul_small.cu), so sums have eager's bits; the body's text takes the place of its entry.
#pragma once

#include <optional>
#include <span>

#include <brrr/ops/body_kernel.h>
#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/ops/cuda/matmul_small.h>
#include <brrr/ops/jit/geometry.h>

namespace brrr::on_cuda {

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
  int a = 0, b = 0;  // the inputs that are the factors
  Roles roles;
  MatrixProduct product;  // strides of the factors; those of results are in `results`
  // The results in the order of batch, row, column; inputs and outputs of the body are operands.
  StridedSpace results;
  // Outputs, as bits, that the results of one column or of one row store, since they do not vary
  // along the rows or columns.
  std::uint32_t first_row = 0, first_column = 0;
};

// `strides` of each operand, inputs first. None where a factor's rows, columns or summed dimensions
// do not have one stride.
std::optional<Contraction> contraction_of(const BodySpec& spec, std::span<const Dims> strides);

// One of the bodies in a launch.
struct ContractionPart {
  const jit::Body* body;
  Contraction contraction;
  SmallSchedule schedule;
  // What is loaded before the wait for the previous kernel: factors, and all other inputs. With
  // both factors only what follows the product waits.
  bool prefetch_a = false, prefetch_b = false, prefetch_others = false;
};
// The kernel's text, with the entry `contraction`.
std::string contraction_text(std::span<const ContractionPart> parts);

// Runs a body and those beside it. `prefetchable`: see BodyOperands.
void run_contraction(const BodySpec& spec, const Tensor* const* inputs, const Tensor* outputs,
                     const std::vector<bool>& prefetchable);

}  // namespace brrr::on_cuda
