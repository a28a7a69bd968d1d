// The texts of the hand-written kernels, ready for the compiler: each .cu file with the types and
// constants that it asks for in front. Tests compile every one of them where there is no GPU.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/ops/jit/compiler.h>
#include <brrr/tensor/dtype.h>

namespace brrr::on_cuda {

enum class Lies : std::uint8_t;

}  // namespace brrr::on_cuda

namespace brrr::on_cuda::sources {

std::string turn(DType dtype);  // by size: types of one size share a text
std::string matmul_integer(DType dtype);
// `ahead` chunks of the summed dimension are loaded at once.
std::string matmul_small(DType dtype, Lies a, Lies b, int ahead);
// Elements by size; `width` of them move together.
std::string gather(DType dtype, int width, DType index, int rank, bool wide);
std::string scatter(DType dtype, DType index, int rank, bool wide);
std::string radix();
std::string scan(DType in, DType out);
DType scan_sum(DType out);             // what its sums are kept in
std::string cat(int log2_word_bytes);  // 0 to 4
std::string draw(DType dtype, bool normal);
jit::CompileOptions draw_options();
std::string checked(DType dtype);

}  // namespace brrr::on_cuda::sources
