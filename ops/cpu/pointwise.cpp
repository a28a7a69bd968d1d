// Pointwise kernels: finds the loop of an op and a type, and runs it over operands of any layout.
//
// Four ways, by cost: contiguous operands of one shape go to the loop as they are; a few elements
// are laid out on the stack; numbers beside contiguous operands go as tiles; everything else goes
// tile by tile, where 16-bit floats become f32.
#include <algorithm>
#include <cstring>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

constexpr i64 kFew = 64;

DType compute_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

// The dtypes of a pointwise call's operands and result in the loop.
struct Types {
  DType compute;  // of operands and, unless it is a predicate, of the result
  DType first;    // of operand 0: bool for `where`
  DType result;

  explicit Types(const Call& call) {
    const DTypeRule rule = op_info(call.op).rule;
    compute = compute_type(call.dtype);
    first = rule == DTypeRule::select ? DType::boolean : compute;
    result = rule == DTypeRule::predicate ? DType::boolean : compute;
  }
  DType operand(int i) const { return i == 0 ? first : compute; }
};

int operand_count(const Call& call) {
  int count = static_cast<int>(call.n_inputs);
  for (unsigned bits = call.scalars; bits; bits &= bits - 1) ++count;
  return count;
}
Element scalar(const Call& call, int operand, DType dtype) {
  return element_of(dtype, call.attrs[operand].bits, is_floating(call.dtype));
}

// Copies a few elements of an operand in the order of the output. One step at a time: vectors would
// cost more than they save.
template <class W>
void lay_out(W* to, const TensorImpl& in, const TensorImpl& out) {
  const W* from = static_cast<const W*>(in.data);
  const int rank = out.word.rank(), in_rank = in.word.rank(), missing = rank - in_rank;
  const auto stride = [&](int d) {
    return d < missing || in.dims[d - missing] == 1 ? 0 : in.strides[d - missing];
  };
  if (rank <= 2) [[likely]] {
    const i64 inner = rank ? out.dims[rank - 1] : 1, step = rank ? stride(rank - 1) : 0;
    const i64 next_row = (rank == 2 ? stride(0) : 0) - inner * step;
    for (i64 k = 0, column = 0; k < out.numel; ++k) {
      to[k].bits = from->bits;
      from += step;
      if (++column == inner) {
        from += next_row;
        column = 0;
      }
    }
    return;
  }
  StridedSpace space = space_of({out.dims, static_cast<std::size_t>(rank)});
  add_operand(space, {in.dims, static_cast<std::size_t>(in_rank)},
              {in.strides, static_cast<std::size_t>(in_rank)});
  each_run(space, 0, Coordinates(), out.numel, [&](i64 done, i64 n, i64 offset) {
    for (i64 i = 0; i < n; ++i) to[done + i].bits = from[offset + i * space.inner_stride(0)].bits;
  });
}

// A few elements, all types as the loop wants them, the output contiguous: no tiles, no space.
bool run_few(Loop loop, const Call& call, const Types& types, const TensorImpl& out) {
  const int n_operands = operand_count(call);
  if (n_operands > 3 || out.word.dtype() != types.result) return false;
  alignas(64) char memory[3][kFew * 8];
  const void* operands[3];
  const Tensor* const* next = call.inputs;
  for (int i = 0; i < n_operands; ++i) {
    const DType dtype = types.operand(i);
    operands[i] = memory[i];
    if (call.is_scalar(i)) {
      const auto size = static_cast<i64>(size_of(dtype));
      if (dtype == DType::f32) {
        const float value = static_cast<float>(call.attrs[i].d());
        for (i64 k = 0; k < out.numel; ++k) std::memcpy(memory[i] + k * size, &value, sizeof value);
      } else {
        fill_elements(memory[i], scalar(call, i, dtype), size, out.numel);
      }
      continue;
    }
    const TensorImpl& in = *TensorImpl::of(**next++);
    if (in.word.dtype() != dtype) return false;
    if (in.numel == out.numel && in.word.contiguous()) {
      operands[i] = in.data;
      continue;
    }
    switch (size_of(dtype)) {
      case 1: lay_out(reinterpret_cast<Word<std::uint8_t>*>(memory[i]), in, out); break;
      case 4: lay_out(reinterpret_cast<Word<std::uint32_t>*>(memory[i]), in, out); break;
      default: lay_out(reinterpret_cast<Word<std::uint64_t>*>(memory[i]), in, out); break;
    }
  }
  loop(out.data, operands, out.numel);
  return true;
}

class TiledLoop {
 public:
  TiledLoop(Loop loop, const Call& call, const Types& types, const Tensor& out)
      : loop_(loop), result_(types.result), space_(out.shape()), n_inputs_(operand_count(call)) {
    space_.add(out);
    for (std::uint32_t i = 0; i < call.n_inputs; ++i) space_.add(call.input(static_cast<int>(i)));
    sort_dims(space_);
    coalesce(space_);
    for (int k = 1; k < space_.operands; ++k) straighten(space_, k, straight_[k - 1]);
    bool buffered = is_buffered(0, types.result);
    for (int i = 0, operand = 1; i < n_inputs_; ++i) {
      Input& input = inputs_[i];
      input.compute = types.operand(i);
      if (call.is_scalar(i)) {
        input.scalar = scalar(call, i, input.compute);
        buffered = true;
        continue;
      }
      input.operand = operand++;
      buffered |= is_buffered(input.operand, input.compute);
    }
    length_ = buffered ? kTile : kSharedGrain;
  }

  void run() const {
    const Tiling tiling(space_, length_);
    parallel_for(tiling.tiles, shared_grain(tiling.length),
                 [&](i64 begin, i64 end) { run_tiles(tiling, begin, end); });
  }

 private:
  struct Input {
    int operand = 0;  // of the space; 0 for a scalar
    DType compute = DType::f32;
    Element scalar;
  };
  // The elements that an input's buffer has, so that none are gathered twice in a row.
  struct Buffered {
    const char* start = nullptr;
    i64 count = 0;
  };

  bool is_buffered(int operand, DType compute) const {
    return space_.inner_stride(operand) != 1 || space_.dtype[operand] != compute;
  }

  // Whether tiles that start at the same element have the same elements.
  bool repeats(const Tiling& tiling, int operand) const {
    const i64* strides = space_.stride[operand];
    return tiling.long_rows() ||
           std::all_of(strides, strides + space_.rank - 1, [](i64 stride) { return stride == 0; });
  }

  void run_tiles(const Tiling& tiling, i64 begin, i64 end) const {
    alignas(64) char memory[kMaxInputs + 1][kTileBytes];
    alignas(64) char raw[kTileBytes];
    const void* pointers[kMaxInputs];
    Buffered buffered[kMaxInputs];
    bool is_direct[kMaxInputs] = {}, is_repeating[kMaxInputs] = {};
    for (int i = 0; i < n_inputs_; ++i) {
      const Input& input = inputs_[i];
      pointers[i] = memory[i];
      if (input.operand) {
        is_direct[i] = direct(space_, tiling, input.operand);
        is_repeating[i] = repeats(tiling, input.operand);
      } else {
        fill_elements(memory[i], input.scalar, static_cast<i64>(size_of(input.compute)),
                      std::min(tiling.length, kTile));
      }
    }
    const DType out = space_.dtype[0];
    const bool out_direct = direct(space_, tiling, 0), out_converts = out != result_;

    for (i64 t = begin; t < end; ++t) {
      const Tile tile(space_, tiling, t);
      for (int i = 0; i < n_inputs_; ++i) {
        const Input& input = inputs_[i];
        if (!input.operand) continue;
        const char* start = tile.start(space_, input.operand);
        const DType dtype = space_.dtype[input.operand];
        const bool converts = dtype != input.compute;
        if (is_direct[i] && !converts) {
          pointers[i] = start;
          continue;
        }
        if (is_repeating[i] && buffered[i].start == start && buffered[i].count >= tile.count)
          continue;
        buffered[i] = {start, tile.count};
        const void* from = start;
        if (!is_direct[i]) {
          gather(converts ? raw : memory[i], space_, input.operand, tile);
          from = raw;
        }
        if (converts) convert(input.compute, memory[i], dtype, from, tile.count);
      }
      char* start = tile.start(space_, 0);
      void* result = out_direct && !out_converts ? start : memory[kMaxInputs];
      loop_(result, pointers, tile.count);
      if (out_converts) {
        void* to = out_direct ? start : raw;
        convert(out, to, result_, result, tile.count);
        result = to;
      }
      if (!out_direct) scatter(space_, 0, tile, result);
    }
  }

  Loop loop_;
  DType result_;
  Tensor straight_[kMaxInputs];  // copies of large operands that are transposed
  TensorSpace space_;
  int n_inputs_;
  i64 length_;
  Input inputs_[kMaxInputs];
};

// Everything contiguous, of one size and of the types that the loop wants.
inline bool run_contiguous(Loop loop, const Call& call, bool select, Tensor* outputs) {
  const TensorImpl& out = *TensorImpl::of(outputs[0]);
  const i64 n = out.numel;
  constexpr std::uint32_t kMask = 0xffu | TensorWord::kContiguous;
  const std::uint32_t wanted = static_cast<std::uint32_t>(call.dtype) | TensorWord::kContiguous;
  const void* operands[kMaxInputs];
  std::uint32_t wrong = ~out.word.bits & TensorWord::kContiguous;
  i64 sizes = 0;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    const TensorImpl& in = *TensorImpl::of(*call.inputs[i]);
    operands[i] = in.data;
    const std::uint32_t want =
        i == 0 && select ? static_cast<std::uint32_t>(DType::boolean) | TensorWord::kContiguous
                         : wanted;
    wrong |= (in.word.bits ^ want) & kMask;
    sizes |= in.numel ^ n;
  }
  if (wrong | static_cast<std::uint64_t>(sizes)) return false;
  if (n <= kSharedGrain) [[likely]] {
    loop(out.data, operands, n);
    return true;
  }
  i64 strides[kMaxInputs];
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    strides[i] = static_cast<i64>(size_of(call.inputs[i]->dtype()));
  }
  const i64 out_stride = static_cast<i64>(size_of(out.word.dtype()));
  parallel_for(n, shared_grain(1), [&](i64 begin, i64 end) {
    const void* parts[kMaxInputs];
    for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
      parts[i] = static_cast<const char*>(operands[i]) + begin * strides[i];
    }
    loop(static_cast<char*>(out.data) + begin * out_stride, parts, end - begin);
  });
  return true;
}

// Numbers beside contiguous tensors of one size: a number fills one tile, which is read again for
// every tile of the tensors.
bool run_with_numbers(Loop loop, const Call& call, const Types& types, const TensorImpl& out) {
  const int n_operands = operand_count(call);
  if (!call.scalars || !out.word.contiguous() || out.word.dtype() != types.result) return false;
  const void* operands[kMaxInputs];
  i64 strides[kMaxInputs];
  const Tensor* const* next = call.inputs;
  for (int i = 0; i < n_operands; ++i) {
    strides[i] = 0;
    if (call.is_scalar(i)) continue;
    const TensorImpl& in = *TensorImpl::of(**next++);
    if (in.numel != out.numel || !in.word.contiguous() || in.word.dtype() != types.operand(i))
      return false;
    operands[i] = in.data;
    strides[i] = static_cast<i64>(size_of(in.word.dtype()));
  }
  alignas(64) char memory[kMaxInputs][kTileBytes];
  for (int i = 0; i < n_operands; ++i) {
    if (!call.is_scalar(i)) continue;
    const DType dtype = types.operand(i);
    fill_elements(memory[i], scalar(call, i, dtype), static_cast<i64>(size_of(dtype)),
                  std::min(out.numel, kTile));
    operands[i] = memory[i];
  }
  const i64 out_stride = static_cast<i64>(size_of(types.result));
  parallel_for(out.numel, shared_grain(1), [&](i64 begin, i64 end) {
    const void* parts[kMaxInputs];
    for (i64 first = begin; first < end; first += kTile) {
      for (int i = 0; i < n_operands; ++i)
        parts[i] = static_cast<const char*>(operands[i]) + first * strides[i];
      loop(static_cast<char*>(out.data) + first * out_stride, parts, std::min(kTile, end - first));
    }
  });
  return true;
}

[[gnu::noinline]] void run_other(Loop loop, const Call& call, Tensor* outputs) {
  const TensorImpl& out = *TensorImpl::of(outputs[0]);
  if (out.numel == 0) return;
  const Types types(call);
  if (out.numel <= kFew && out.word.contiguous() && run_few(loop, call, types, out)) return;
  if (run_with_numbers(loop, call, types, out)) return;
  TiledLoop(loop, call, types, outputs[0]).run();
}

}  // namespace

void run_loop(Loop loop, const Call& call, Tensor* outputs) {
  const bool plain = call.scalars == 0 && !is_half(call.dtype);
  if (plain && run_contiguous(loop, call, op_info(call.op).rule == DTypeRule::select, outputs))
    return;
  run_other(loop, call, outputs);
}

void pointwise(const Call& call, Tensor* outputs) {
  const auto row = static_cast<int>(call.op);
  const bool plain = call.scalars == 0 && !is_half(call.dtype);
  if (plain) [[likely]] {
    Loop loop = loops->pointwise[row][static_cast<int>(call.dtype)];
    if (run_contiguous(loop, call, call.op == Op::where, outputs)) [[likely]]
      return;
  }
  run_other(loops->pointwise[row][static_cast<int>(compute_type(call.dtype))], call, outputs);
}

}  // namespace brrr::on_cpu
