// cat on CUDA: copies of rows, many inputs a launch, in the widest words that every row and address
// allows.
#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/strided_space.h"

namespace brrr::sources {
extern const char cat_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

constexpr int kMostInputs = 64;

// The argument of cat.cu. Lengths are in elements until copy_inputs converts them to words.
struct CatInput {
  const void* from;
  std::int64_t from_pitch, row, at;
};
struct CatArguments {
  void* out;
  std::int64_t out_pitch, rows;
  CatInput input[kMostInputs];
};

// The stride between rows, where a row is all dimensions from `dim` on. Empty if rows are not
// contiguous or not evenly spaced.
std::optional<std::int64_t> pitch_of(const Tensor& x, int dim) {
  const StridedSpace rows = space_of_dims(x.shape(), x.strides(), 0, dim),
                     row = space_of_dims(x.shape(), x.strides(), dim, x.rank());
  if (rows.rank > 1 || !is_contiguous(row, 0)) return {};
  return rows.count() == 1 ? 0 : rows.stride[0][0];
}

void copy_inputs(CatArguments& arguments, int count, std::size_t element, cu::CudaStream& stream) {
  const auto size = static_cast<std::int64_t>(element);
  // The lowest bit set in any length or address, in bytes.
  std::uint64_t bits = 16 | reinterpret_cast<std::uintptr_t>(arguments.out) |
                       static_cast<std::uint64_t>(arguments.out_pitch * size);
  std::int64_t longest = 0;
  for (int i = 0; i < count; ++i) {
    const CatInput& input = arguments.input[i];
    bits |= reinterpret_cast<std::uintptr_t>(input.from) |
            static_cast<std::uint64_t>(input.row * size) |
            static_cast<std::uint64_t>(input.at * size) |
            static_cast<std::uint64_t>(input.from_pitch * size);
    longest = std::max(longest, input.row);
  }
  const int log2 = std::countr_zero(bits);
  const std::int64_t word = std::int64_t{1} << log2;
  const auto in_words = [&](std::int64_t& length) { length = length * size / word; };
  in_words(arguments.out_pitch);
  in_words(longest);
  for (int i = 0; i < count; ++i) {
    in_words(arguments.input[i].from_pitch);
    in_words(arguments.input[i].row);
    in_words(arguments.input[i].at);
  }
  const CUfunction kernel =
      hand_written(stream, sources::cat_cu, static_cast<std::uint64_t>(log2), "cat", [&] {
        constexpr std::string_view kWords[] = {"u8", "u16", "u32", "u64", "uint4"};
        return typedef_of(kWords[log2], "Word") + sources::cat_cu;
      });
  constexpr int kThreads = 256, kOfBlock = 4 * kThreads;
  const Grid grid{blocks_for(arguments.rows * longest, kOfBlock, stream.on->multiprocessors),
                  count};
  launch(kernel, grid, kThreads, stream, arguments);
}

void join(const Call& call, Tensor& out) {
  const int dim = static_cast<int>(call.attrs[0].i());
  cu::CudaStream& stream = cu::current_stream(out.device());
  std::int64_t inner = 1, rows = 1;
  for (int d = 0; d < out.rank(); ++d) (d < dim ? rows : inner) *= d == dim ? 1 : out.shape()[d];
  CatArguments arguments;
  arguments.rows = rows;
  std::vector<Tensor> copies;  // of inputs without a row pitch, until the kernel is launched
  int count = 0;
  std::int64_t at = 0;
  const auto flush = [&] {
    if (count == 0) return;
    arguments.out = out.data();
    arguments.out_pitch = out.shape()[dim] * inner;
    copy_inputs(arguments, count, size_of(out.dtype()), stream);
    count = 0;
    copies.clear();
  };
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    const Tensor& x = call.input(static_cast<int>(i));
    const std::int64_t row = x.shape()[dim] * inner;
    if (row == 0) continue;
    const void* from = x.data();
    std::optional<std::int64_t> pitch = pitch_of(x, dim);
    if (!pitch) {
      copies.push_back(contiguous_copy(x));
      from = copies.back().data();
      pitch = row;
    }
    arguments.input[count++] = {from, *pitch, row, at};
    at += row;
    if (count == kMostInputs) flush();
  }
  flush();
}

}  // namespace

void cat(const Call& call, Tensor* outputs) {
  if (outputs[0].numel() == 0) return;
  write_contiguous(outputs[0], [&](Tensor& out) { join(call, out); });
}

}  // namespace brrr::on_cuda
