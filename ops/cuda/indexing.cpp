// gather, index_select and scatter_add on CUDA. Operands are read and written with the strides they
// have. An index out of range is reported through tensor/cuda_faults.h, since the host does not see
// it.
//
// Cost: gather and index_select are one pass. scatter_add copies base, then adds in the order of
// the index: serially along the dimension where that is short, else after a stable sort of the
// indices, in passes of three launches each, one for each eight bits of the destination's number. A
// destination named k times takes k dependent additions.
#include <fmt/format.h>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/cuda/radix.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/fail.h"

namespace brrr::sources {
extern const char gather_cu[];
extern const char scatter_cu[];
}  // namespace brrr::sources

namespace brrr::on_cuda {
namespace {

constexpr int kThreads = 256;

// A tensor of no dimensions is indexed like one of a single element.
std::int64_t size_along(const Tensor& x, int dim) {
  return x.rank() == 0 ? 1 : x.shape()[static_cast<std::size_t>(dim)];
}
std::int64_t stride_along(const Tensor& x, int dim) {
  return x.rank() == 0 ? 0 : x.strides()[static_cast<std::size_t>(dim)];
}

// The definitions that gather.cu and scatter.cu need.
std::string text_in_front(DType index, int rank, bool wide) {
  return sources::faults_inl + typedef_of(index, "Index") +
         fmt::format("constexpr int kRank = {};\nconstexpr bool kWide = {};\n", rank, wide);
}

void require_places(const char* op, const Tensor& x, int dim) {
  if (size_along(x, dim) > 0) return;
  fail("[{}] expected at least one element along dimension {} to index, got {}", op, dim,
       x.describe());
}

// The strides of an operand in the space of `rank` dimensions, with that along `dim` set.
void add_strides(StridedSpace& space, std::span<const std::int64_t> strides, int dim,
                 std::int64_t along) {
  std::int64_t* row = space.stride[space.operands++];
  for (int d = 0; d < space.rank; ++d) row[d] = d == dim ? along : strides[d];
}

// How many elements can move together: those of a line share an index, and out and x are read by
// vectors.
int width_of(const StridedSpace& space, const Tensor& out, const Tensor& x, std::int64_t stride) {
  const int inner = space.rank - 1;
  if (space.stride[1][inner] != 0) return 1;
  StridedSpace moved = space;
  moved.operands = 2;
  std::copy(std::begin(space.stride[2]), std::end(space.stride[2]), std::begin(moved.stride[1]));
  if (moved.stride[0][inner] != 1 || moved.stride[1][inner] != 1) return 1;
  const void* data[] = {out.data(), x.data()};
  const auto size = static_cast<std::uint8_t>(size_of(x.dtype()));
  const std::uint8_t sizes[] = {size, size};
  int width = vector_width(moved, data, sizes, 16 / size);
  while (stride % width != 0) width /= 2;
  return width;
}

// `space` has the operands out, index and x without its dimension `dim`.
void pick(const char* op, StridedSpace& space, Tensor& out, const Tensor& index, const Tensor& x,
          int dim, std::int64_t position_stride) {
  require_places(op, x, dim);
  cu::CudaStream& stream = cu::current_stream(x.device());
  coalesce(space);
  const std::int64_t stride = stride_along(x, dim);
  const int width = width_of(space, out, x, stride);
  const bool wide = !is_narrow(space);
  jit::Geometry geometry;
  jit::fill(geometry, space, width);
  const std::size_t size = size_of(x.dtype());
  const std::uint64_t variant = static_cast<std::uint64_t>(space.rank) | std::uint64_t{wide} << 4 |
                                std::uint64_t{index.dtype() == i32} << 5 |
                                static_cast<std::uint64_t>(width) << 6 | size << 12;
  const CUfunction kernel = hand_written(stream, sources::gather_cu, variant, "gather", [&] {
    return text_in_front(index.dtype(), space.rank, wide) + typedef_of_bits(x.dtype(), "Element") +
           fmt::format("constexpr int kWidth = {};\n", width) + sources::gather_cu;
  });
  const cu::FaultSink sink = cu::fault_sink(stream.device, op);
  launch(kernel, {blocks_for(geometry.count, kThreads, stream.on->multiprocessors, 32)}, kThreads,
         stream, out.data(), index.data(), x.data(), geometry, stride, size_along(x, dim),
         position_stride, sink);
}

}  // namespace

void gather(const Call& call, Tensor* outputs) {
  const Tensor &x = call.input(0), &index = call.input(1);
  Tensor& out = outputs[0];
  if (out.numel() == 0) return;
  const int dim = static_cast<int>(call.attrs[0].i());
  StridedSpace space = space_of(index.shape());
  add_operand(space, out);
  add_operand(space, index);
  add_strides(space, x.strides(), dim, 0);
  pick("gather", space, out, index, x, dim, 0);
}

void index_select(const Call& call, Tensor* outputs) {
  const Tensor& x = call.input(0);
  Tensor& out = outputs[0];
  if (out.numel() == 0) return;
  const Tensor index = contiguous_here(call.input(1));
  const int dim = static_cast<int>(call.attrs[0].i());
  constexpr std::int64_t kRepeated[kMaxDims] = {};
  StridedSpace space = space_of(out.shape());
  add_operand(space, out);
  add_strides(space, {kRepeated, static_cast<std::size_t>(space.rank)}, dim, 1);
  add_strides(space, x.strides(), dim, 0);
  pick("index_select", space, out, index, x, dim, 1);
}

namespace {

// The same as in scatter.cu.
struct Scatter {
  void* out;
  const void* source;
  const void* index;
  std::int64_t places, bound;
  std::int64_t out_stride, source_stride, index_stride, position_stride;
};

Scatter scatter_of(const Tensor& out, const Tensor& source, const Tensor& index, int dim) {
  return {out.data(),
          source.data(),
          index.data(),
          size_along(index, dim),
          size_along(out, dim),
          stride_along(out, dim),
          stride_along(source, dim),
          stride_along(index, dim),
          out.rank() == 0 ? 0 : contiguous_strides(index.shape())[dim]};
}

// The lines along `dim`, with the operands out, source, index and position in the index.
StridedSpace lines_of(const Tensor& out, const Tensor& source, const Tensor& index, int dim) {
  StridedSpace lines;
  for (int d = 0; d < index.rank(); ++d) lines.add_dim(d == dim ? 1 : index.shape()[d]);
  add_strides(lines, out.strides(), dim, 0);
  add_strides(lines, source.strides(), dim, 0);
  add_strides(lines, index.strides(), dim, 0);
  add_strides(lines, contiguous_strides(index.shape()), dim, 0);
  coalesce(lines);
  return lines;
}

// The kernels of scatter.cu for one kind of lines and types.
class ScatterKernels {
 public:
  ScatterKernels(cu::CudaStream& stream, const StridedSpace& lines, DType element, DType index)
      : stream_(stream),
        rank_(lines.rank),
        wide_(!is_narrow(lines)),
        element_(element),
        index_(index) {}

  // `which` numbers the entries.
  CUfunction get(const char* entry, std::uint64_t which) const {
    const std::uint64_t variant = which | static_cast<std::uint64_t>(rank_) << 2 |
                                  std::uint64_t{wide_} << 6 | std::uint64_t{index_ == i32} << 7 |
                                  static_cast<std::uint64_t>(element_) << 8;
    return hand_written(stream_, sources::scatter_cu, variant, entry, [&] {
      return text_in_front(index_, rank_, wide_) + typedef_of(element_, "Element") +
             sources::scatter_cu;
    });
  }

 private:
  cu::CudaStream& stream_;
  int rank_;
  bool wide_;
  DType element_, index_;
};

// True when every line reads the same indices: a 1-d index that was expanded.
bool is_shared(const Tensor& index, int dim) {
  for (int d = 0; d < index.rank(); ++d) {
    if (d != dim && index.shape()[d] > 1 && index.strides()[d] != 0) return false;
  }
  return true;
}

// The longest line that one thread walks in less time than a sort takes. The walk rounds after each
// addition, so 16-bit floats, whose sums must accumulate in f32, use it only if no element gets
// more than one addition.
constexpr std::int64_t short_line(DType dtype) { return is_half(dtype) ? 1 : 64; }
constexpr std::int64_t kMostEntries = std::int64_t{1} << 31;  // of the sort, and of its keys

// Sorts entries by destination. `shared`: one line's entries serve all lines.
void scatter_sorted(const ScatterKernels& kernels, const Scatter& s, const jit::Geometry& geometry,
                    bool shared, const cu::FaultSink& sink, cu::CudaStream& stream) {
  const std::int64_t sorted_lines = shared ? 1 : geometry.count, entries = sorted_lines * s.places;
  const SortedPairs pairs = new_pairs(entries, stream.device);
  const auto no_key = static_cast<std::uint32_t>(sorted_lines * s.bound);
  jit::Geometry sorted_geometry = geometry;
  sorted_geometry.count = sorted_lines;
  launch(kernels.get("scatter_keys", 1),
         {blocks_for(entries, kThreads, stream.on->multiprocessors)}, kThreads, stream, s,
         sorted_geometry, entries, no_key, pairs.keys, pairs.values, sink);
  const SortedPairs sorted = sort_pairs(pairs, entries, no_key, stream);
  if (!shared) {
    launch(kernels.get("scatter_elements", 3), {ceil_div(entries, kThreads)}, kThreads, stream, s,
           geometry, entries, no_key, sorted.keys, sorted.values);
    return;
  }
  int across = 1;
  while (across < kThreads && across < geometry.count) across *= 2;
  const Grid grid{ceil_div(entries, kThreads / across),
                  std::min<std::int64_t>(ceil_div(geometry.count, across), 64)};
  launch(kernels.get("scatter_rows", 2), grid, kThreads, stream, s, geometry, entries, no_key,
         sorted.keys, sorted.values, across);
}

}  // namespace

void scatter_add(const Call& call, Tensor* outputs) {
  const Tensor &base = call.input(0), &index = call.input(1), &source = call.input(2);
  Tensor& out = outputs[0];
  if (!out.same_view_as(base) && out.numel() > 0) copy_into(out, base);
  if (index.numel() == 0) return;
  const int dim = static_cast<int>(call.attrs[0].i());
  require_places("scatter_add", out, dim);

  cu::CudaStream& stream = cu::current_stream(base.device());
  const Scatter s = scatter_of(out, source, index, dim);
  const StridedSpace lines = lines_of(out, source, index, dim);
  jit::Geometry geometry;
  jit::fill(geometry, lines, 1);
  const ScatterKernels kernels(stream, lines, out.dtype(), index.dtype());
  const cu::FaultSink sink = cu::fault_sink(stream.device, "scatter_add");

  const bool shared = is_shared(index, dim);
  const std::int64_t sorted_lines = shared ? 1 : geometry.count;
  const bool too_many =
      sorted_lines * s.places >= kMostEntries || sorted_lines > kMostEntries / s.bound;
  if (s.places > short_line(out.dtype()) && !too_many)
    return scatter_sorted(kernels, s, geometry, shared, sink, stream);
  launch(kernels.get("scatter_serial", 0),
         {blocks_for(geometry.count, kThreads, stream.on->multiprocessors)}, kThreads, stream, s,
         geometry, sink);
}

}  // namespace brrr::on_cuda
