// gather, index_select and scatter_add on CUDA. Operands are read and written with the strides they
// have. An index out of range is reported through tensor/cuda_faults.h, since the host does not see
// it.
//
// Cost: gather and index_select are one pass. scatter_add copies base, then adds in the order of
// the index: serially along the dimension where that is short, else after a stable sort of the
// indices, whose passes (three launches each, one for each eight bits of the destination's number)
// come to some 20 us for an embedding's gradient. A destination named k times takes k dependent
// additions.
#include <fmt/format.h>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/hand_written.h"
#include "brrr/ops/cuda/radix.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/text.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/cuda_faults.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::text {
extern const char gather_cu[];
extern const char scatter_cu[];
}  // namespace brrr::text

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

// What gather.cu and scatter.cu both ask for.
std::string text_in_front(DType index, int rank, bool wide) {
  return text::faults_inl + typedef_of(index, "Index") +
         fmt::format("constexpr int kRank = {};\nconstexpr bool kWide = {};\n", rank, wide);
}

void require_places(const char* op, const Tensor& x, int dim) {
  if (size_along(x, dim) > 0) return;
  fail(fmt::format("[{}] expected at least one element along dimension {} to index, got {}", op,
                   dim, x.describe()));
}

// The strides of an operand in the space of `rank` dimensions, with that along `dim` set.
void add_strides(jit::Space& space, std::span<const std::int64_t> strides, int dim,
                 std::int64_t along) {
  std::int64_t* row = space.stride[space.operands++];
  for (int d = 0; d < space.rank; ++d) row[d] = d == dim ? along : strides[d];
}

// How many elements can move together: those of a line share an index, and out and x are read by
// vectors.
int width_of(const jit::Space& space, const Tensor& out, const Tensor& x, std::int64_t stride) {
  const int inner = space.rank - 1;
  if (space.stride[1][inner] != 0) return 1;
  jit::Space moved = space;
  moved.operands = 2;
  std::copy(std::begin(space.stride[2]), std::end(space.stride[2]), std::begin(moved.stride[1]));
  if (moved.stride[0][inner] != 1 || moved.stride[1][inner] != 1) return 1;
  const void* data[] = {out.data(), x.data()};
  const auto size = static_cast<std::uint8_t>(size_of(x.dtype()));
  const std::uint8_t sizes[] = {size, size};
  int width = jit::vector_width(moved, data, sizes, 16 / size);
  while (stride % width != 0) width /= 2;
  return width;
}

// `space` has the operands out, index and x without its dimension `dim`.
void pick(const char* op, jit::Space& space, Tensor& out, const Tensor& index, const Tensor& x,
          int dim, std::int64_t position_stride) {
  require_places(op, x, dim);
  cu::CudaStream& stream = cu::current_stream(x.device());
  jit::coalesce(space);
  const std::int64_t stride = stride_along(x, dim);
  const int width = width_of(space, out, x, stride);
  const bool wide = !jit::is_narrow(space);
  jit::Geometry geometry;
  jit::fill(geometry, space, width);
  const std::size_t size = size_of(x.dtype());
  const std::uint64_t variant = static_cast<std::uint64_t>(space.rank) | std::uint64_t{wide} << 4 |
                                std::uint64_t{index.dtype() == i32} << 5 |
                                static_cast<std::uint64_t>(width) << 6 | size << 12;
  const CUfunction kernel = hand_written(stream, text::gather_cu, variant, "gather", [&] {
    return text_in_front(index.dtype(), space.rank, wide) + typedef_of_bits(x.dtype(), "Element") +
           fmt::format("constexpr int kWidth = {};\n", width) + text::gather_cu;
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
  jit::Space space;
  for (const std::int64_t size : index.shape()) space.add_dim(size);
  jit::add_operand(space, out.shape(), out.strides());
  jit::add_operand(space, index.shape(), index.strides());
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
  jit::Space space;
  for (const std::int64_t size : out.shape()) space.add_dim(size);
  jit::add_operand(space, out.shape(), out.strides());
  add_strides(space, {kRepeated, static_cast<std::size_t>(space.rank)}, dim, 1);
  add_strides(space, x.strides(), dim, 0);
  pick("index_select", space, out, index, x, dim, 1);
}

namespace {

// As scatter.cu has it.
struct Scatter {
  void* out;
  const void* source;
  const void* index;
  std::int64_t places, bound;
  std::int64_t out_stride, source_stride, index_stride, position_stride;
};

// How the kernels of scatter.cu walk the lines, and on what.
struct ScatterForm {
  int rank;
  bool wide;
  DType element, index;
};

CUfunction scatter_kernel(cu::CudaStream& stream, const ScatterForm& form, const char* entry,
                          std::uint64_t which) {
  const std::uint64_t variant =
      which | static_cast<std::uint64_t>(form.rank) << 2 | std::uint64_t{form.wide} << 6 |
      std::uint64_t{form.index == i32} << 7 | static_cast<std::uint64_t>(form.element) << 8;
  return hand_written(stream, text::scatter_cu, variant, entry, [&] {
    return text_in_front(form.index, form.rank, form.wide) + typedef_of(form.element, "Element") +
           text::scatter_cu;
  });
}

// True when every line reads the same indices: a 1-d index that was expanded.
bool serves_every_line(const Tensor& index, int dim) {
  for (int d = 0; d < index.rank(); ++d) {
    if (d != dim && index.shape()[d] > 1 && index.strides()[d] != 0) return false;
  }
  return true;
}

// Up to here a thread walks a line in less time than a sort takes. It rounds at every step, so
// halves, whose sums are kept in f32, go this way only where nothing is added twice.
constexpr std::int64_t short_line(DType dtype) { return is_half(dtype) ? 1 : 64; }
constexpr std::int64_t kMostEntries = std::int64_t{1} << 31;  // of the sort, and of its keys

}  // namespace

void scatter_add(const Call& call, Tensor* outputs) {
  const Tensor &base = call.input(0), &index = call.input(1), &source = call.input(2);
  Tensor& out = outputs[0];
  if (!out.same_view_as(base) && out.numel() > 0) copy_into(out, base);
  if (index.numel() == 0) return;
  const int dim = static_cast<int>(call.attrs[0].i());
  require_places("scatter_add", out, dim);

  const bool shared = serves_every_line(index, dim);
  const Dims positions = contiguous_strides(index.shape());
  Scatter s{out.data(),
            source.data(),
            index.data(),
            size_along(index, dim),
            size_along(out, dim),
            stride_along(out, dim),
            stride_along(source, dim),
            stride_along(index, dim),
            out.rank() == 0 ? 0 : positions[dim]};
  jit::Space lines;
  for (int d = 0; d < index.rank(); ++d) lines.add_dim(d == dim ? 1 : index.shape()[d]);
  add_strides(lines, out.strides(), dim, 0);
  add_strides(lines, source.strides(), dim, 0);
  add_strides(lines, index.strides(), dim, 0);
  add_strides(lines, positions, dim, 0);
  jit::coalesce(lines);
  const std::int64_t line_count = lines.count();

  cu::CudaStream& stream = cu::current_stream(base.device());
  const int multiprocessors = stream.on->multiprocessors;
  const bool wide = !jit::is_narrow(lines);
  jit::Geometry geometry;
  jit::fill(geometry, lines, 1);
  const ScatterForm form{lines.rank, wide, out.dtype(), index.dtype()};
  const cu::FaultSink sink = cu::fault_sink(stream.device, "scatter_add");

  const std::int64_t sorted_lines = shared ? 1 : line_count;
  const std::int64_t entries = sorted_lines * s.places;
  const bool too_many = entries >= kMostEntries || sorted_lines > kMostEntries / s.bound;
  if (s.places <= short_line(out.dtype()) || too_many) {
    launch(scatter_kernel(stream, form, "scatter_serial", 0),
           {blocks_for(line_count, kThreads, multiprocessors)}, kThreads, stream, s, geometry,
           sink);
    return;
  }
  const SortedPairs pairs = new_pairs(entries, stream.device);
  const auto no_key = static_cast<std::uint32_t>(sorted_lines * s.bound);
  jit::Geometry sorted_geometry = geometry;
  if (shared) sorted_geometry.count = 1;
  launch(scatter_kernel(stream, form, "scatter_keys", 1),
         {blocks_for(entries, kThreads, multiprocessors)}, kThreads, stream, s, sorted_geometry,
         entries, no_key, pairs.keys, pairs.values, sink);
  const SortedPairs sorted = sort_pairs(pairs, entries, no_key, stream);
  if (!shared) {
    launch(scatter_kernel(stream, form, "scatter_elements", 3), {ceil_div(entries, kThreads)},
           kThreads, stream, s, geometry, entries, no_key, sorted.keys, sorted.values);
    return;
  }
  int across = 1;
  while (across < kThreads && across < line_count) across *= 2;
  const Grid grid{ceil_div(entries, kThreads / across),
                  std::min<std::int64_t>(ceil_div(line_count, across), 64)};
  launch(scatter_kernel(stream, form, "scatter_rows", 2), grid, kThreads, stream, s, geometry,
         entries, no_key, sorted.keys, sorted.values, across);
}

}  // namespace brrr::on_cuda
