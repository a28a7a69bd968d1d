// From a KernelSpec to text that compiles after the preludes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <brrr/ops/jit/spec.h>

namespace brrr::jit {

// CUDA C++ with the entry `spec.name`, for load_kernel. What the entry takes:
//   flat            outputs, inputs, scalars, i64 count of elements
//   strided, tiled  outputs, inputs, scalars, Geometry of outputs and inputs
//   reductions      outputs, inputs, scalars, Partial*, Geometry of the results (inputs, outputs),
//   Geometry of the
//                   reduced elements (inputs), i64 reduced elements of one part, i64 elements of a
//                   result
// A reduction split over gridDim.y > 1 parts leaves Partials; `<name>_join_warp` or
// `<name>_join_block` (a warp or a block a result) combine them and take: outputs, scalars,
// Partials, Geometry of the results, i32 parts, i64 elements of a result.
std::string render_cuda(const KernelSpec& spec);
// Bytes of a Partial: what one result needs in scratch memory for each part.
std::size_t partial_size(const KernelSpec& spec);

// C++ with the entry `extern "C" void <name>(void* out, const void* const* in, long long n)`: a
// flat spec of one output over contiguous operands. After the inputs `in` has a pointer to each
// scalar.
std::string render_cpu(const KernelSpec& spec);

// Pieces that the renderers share.

namespace pieces {

std::string_view c_name(DType dtype);         // of an element in memory
std::string_view register_name(DType dtype);  // of a value in a register

// One function for each expression, and for the pieces of each reduction.
std::string functions(const KernelSpec& spec);
// Statements that compute values of one level (0: per element, 1: per result of a reduction) from
// the names x<i> of inputs, s<i> of scalars, `index`, and r<i> of finished reductions.
std::string statements(const KernelSpec& spec, int level);
// 0 or 1 for each value; scalars are 0.
std::vector<int> levels(const KernelSpec& spec);
// The name of a value, converted to a register of `type`.
std::string converted(const KernelSpec& spec, int value, DType type);
std::string name_of_value(const KernelSpec& spec, int value);

}  // namespace pieces

// The two families of CUDA kernels.
std::string render_pointwise(const KernelSpec& spec);
std::string render_reduction(const KernelSpec& spec);

}  // namespace brrr::jit
