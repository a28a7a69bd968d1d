// Reductions over any dimensions of any layout. Work is cut into blocks whose boundaries depend on
// the shape and strides only, each with separate accumulators, merged in order: the bits do not
// depend on threads.
//
// Two ways to read: where a reduced dimension is contiguous, runs along it are folded into one
// accumulator each; where a kept dimension is, whole rows are folded into a row of accumulators.
// Anything else is gathered.
#include <algorithm>
#include <cstring>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

constexpr i64 kColumns = 512;
constexpr i64 kBlock = i64{1} << 17;  // elements folded into one set of accumulators

// One reduction of a strided tensor.
class StridedReduction {
 public:
  StridedReduction(const ReductionLoops& loops, DType element, const Tensor& in, i64 mask,
                   const Tensor& out)
      : loops_(loops),
        element_(element),
        in_(static_cast<const char*>(in.data())),
        in_type_(in.dtype()),
        out_(static_cast<char*>(out.data())),
        out_type_(out.dtype()) {
    split_dims(kept_, reduced_, in, out, static_cast<std::uint64_t>(mask));
    if (reduced_.rank > 1) {
      sort_dims(reduced_);  // their order is free
      coalesce(reduced_);
    }
    kept_count_ = kept_.count();
    reduced_count_ = reduced_.count();
    plan();
  }

  void run() {
    if (kept_count_ == 0) return;
    const i64 work = kept_count_ / units_ * std::min(reduced_count_, block_) + 1;
    const Grain grain = shared_grain(work);
    if (blocks_ == 1) {
      parallel_for(units_, grain, [&](i64 begin, i64 end) {
        alignas(64) char accumulators[kColumns * 8];
        for (i64 u = begin; u < end; ++u) {
          const Unit unit(*this, u);
          loops_.identity(accumulators, unit.columns);
          fold(accumulators, unit, 0, reduced_count_);
          finish(accumulators, unit);
        }
      });
      return;
    }
    const Tensor scratch = make_tensor(DType::f64, Dims{units_ * blocks_ * width_}, cpu);
    char* partial = static_cast<char*>(scratch.data());
    const i64 bytes = width_ * 8;
    parallel_for(units_ * blocks_, grain, [&](i64 begin, i64 end) {
      for (i64 t = begin; t < end; ++t) {
        const Unit unit(*this, t / blocks_);
        const i64 first = t % blocks_ * block_;
        loops_.identity(partial + t * bytes, unit.columns);
        fold(partial + t * bytes, unit, first, std::min(first + block_, reduced_count_));
      }
    });
    for (i64 u = 0; u < units_; ++u) {
      const Unit unit(*this, u);
      char* total = partial + u * blocks_ * bytes;
      for (i64 b = 1; b < blocks_; ++b) loops_.merge(total, total + b * bytes, unit.columns);
      finish(total, unit);
    }
  }

 private:
  // Adjacent kept elements along the last dimension, which share a set of accumulators.
  struct Unit {
    const char* in;
    char* out;
    i64 columns;

    Unit(const StridedReduction& r, i64 number) {
      const i64 row = number / r.column_tiles_, first = number % r.column_tiles_ * r.width_,
                size = r.kept_.inner_size();
      columns = std::min(r.width_, size - first);
      const Coordinates place(r.kept_, row * size + first);
      in = r.in_ + place.offset(r.kept_, 0) * r.in_size();
      out = r.out_ + place.offset(r.kept_, 1) * static_cast<i64>(size_of(r.out_type_));
    }
  };

  i64 in_size() const { return static_cast<i64>(size_of(in_type_)); }
  i64 column_stride() const { return kept_.inner_stride(0); }

  void plan() {
    by_rows_ = false;
    if (reduced_.inner_stride(0) != 1) {
      for (int d = kept_.rank - 1; d >= 0 && !by_rows_; --d) {
        by_rows_ = kept_.stride[0][d] == 1 && kept_.size[d] > 1;
        if (by_rows_) move_dim(kept_, d, kept_.rank - 1);
      }
    }
    const i64 size = std::max<i64>(1, kept_.inner_size()),
              reduced = std::max<i64>(1, reduced_count_);
    width_ = std::min(size, by_rows_ ? kColumns : std::clamp<i64>(kGrain / reduced, 1, kColumns));
    column_tiles_ = (size - 1) / width_ + 1;
    units_ = std::max<i64>(1, kept_count_ / size * column_tiles_);
    block_ = std::max<i64>(1, kBlock / (by_rows_ ? width_ : 1));
    blocks_ = (reduced - 1) / block_ + 1;
  }

  // Folds the reduced elements numbered [begin, end) into the unit's accumulators.
  void fold(char* accumulators, const Unit& unit, i64 begin, i64 end) const {
    if (begin == end) return;
    const i64 stride = reduced_.inner_stride(0);
    if (!by_rows_ && reduced_.rank == 1 && stride == 1 && in_type_ == element_) {
      loops_.fold_runs(accumulators, unit.in + begin * in_size(), end - begin, unit.columns,
                       column_stride());
      return;
    }
    const auto fold_run = [&](i64, i64 n, i64 offset) {
      const char* from = unit.in + offset * in_size();
      if (by_rows_) return fold_rows(accumulators, from, unit.columns, n, stride);
      for (i64 c = 0; c < unit.columns; ++c) {
        fold_strided(accumulators + c * static_cast<i64>(size_of(loops_.accumulator)),
                     from + c * column_stride() * in_size(), n, stride);
      }
    };
    if (reduced_.rank == 1) return fold_run(0, end - begin, begin * stride);
    each_run(reduced_, 0, Coordinates(reduced_, begin), end - begin, fold_run);
  }

  void fold_rows(char* accumulators, const char* from, i64 columns, i64 rows, i64 stride) const {
    if (in_type_ == element_) {
      loops_.fold_rows(accumulators, from, columns, rows, stride);
      return;
    }
    alignas(64) char converted[kTileBytes];
    const i64 most = kTile / columns;
    for (i64 r = 0; r < rows; r += most) {
      const i64 n = std::min(most, rows - r);
      for (i64 i = 0; i < n; ++i) {
        convert(converted + i * columns * static_cast<i64>(size_of(element_)),
                from + (r + i) * stride * in_size(), columns);
      }
      loops_.fold_rows(accumulators, converted, columns, n, columns);
    }
  }

  void fold_strided(char* accumulator, const char* from, i64 n, i64 stride) const {
    const bool converts = in_type_ != element_;
    if (stride == 1 && !converts) {
      loops_.fold_runs(accumulator, from, n, 1, 0);
      return;
    }
    alignas(64) char gathered[kTileBytes], converted[kTileBytes];
    for (i64 i = 0; i < n; i += kTile) {
      const i64 count = std::min(kTile, n - i);
      const char* run = from + i * stride * in_size();
      if (stride != 1) {
        gather_strided(gathered, run, in_size(), count, stride);
        run = gathered;
      }
      if (converts) {
        convert(converted, run, count);
        run = converted;
      }
      loops_.fold_runs(accumulator, run, count, 1, 0);
    }
  }

  void convert(void* to, const void* from, i64 n) const {
    on_cpu::convert(element_, to, in_type_, from, n);
  }

  void finish(const char* accumulators, const Unit& unit) const {
    alignas(64) char results[kColumns * 8], converted[kColumns * 8];
    loops_.finish(results, accumulators, unit.columns, reduced_count_);
    const void* from = results;
    if (loops_.result != out_type_) {
      on_cpu::convert(out_type_, converted, loops_.result, results, unit.columns);
      from = converted;
    }
    const i64 size = static_cast<i64>(size_of(out_type_)), stride = kept_.inner_stride(1);
    for (i64 c = 0; c < unit.columns; ++c) {
      std::memcpy(unit.out + c * stride * size, static_cast<const char*>(from) + c * size,
                  static_cast<std::size_t>(size));
    }
  }

  const ReductionLoops& loops_;
  DType element_;
  const char* in_;
  DType in_type_;
  char* out_;
  DType out_type_;
  StridedSpace kept_, reduced_;
  i64 kept_count_, reduced_count_;
  bool by_rows_;
  i64 width_ = 1, column_tiles_ = 1, units_ = 1, block_ = 1, blocks_ = 1;
};

}  // namespace

void reduction(const Call& call, Tensor* outputs) {
  const auto row = static_cast<int>(call.op) - kLoopRows;
  const Tensor& in = call.input(0);
  DType element = is_half(in.dtype()) ? DType::f32 : in.dtype();
  if (!loops->reduction[row][static_cast<int>(element)].finish) element = DType::f32;
  StridedReduction(loops->reduction[row][static_cast<int>(element)], element, in, call.attrs[0].i(),
                   outputs[0])
      .run();
}

void arg_reduction(const Call& call, Tensor* outputs) {
  const auto row = static_cast<int>(call.op) - kLoopRows - kReductionRows;
  const int dim = static_cast<int>(call.attrs[0].i());
  const DType given = call.input(0).dtype(), element = is_half(given) ? DType::f32 : given;
  const Tensor in = contiguous_as(call.input(0), element);
  if (in.numel() == 0) return;
  const ArgLoops& best = loops->arg_reduction[row][static_cast<int>(element)];
  const AroundDim sizes(in.shape(), dim);
  const i64 outer = sizes.outer, n = sizes.n, inner = sizes.inner;
  const i64 size = static_cast<i64>(size_of(element));
  const char* data = static_cast<const char*>(in.data());
  i64* out = static_cast<i64*>(outputs[0].data());

  if (inner == 1 && outer == 1 && n > kGrain) {
    // The best of each block in parallel, then the best of those.
    const i64 blocks = (n - 1) / kGrain + 1;
    const Tensor indices = make_tensor(DType::i64, Dims{blocks}, cpu),
                 values = make_tensor(element, Dims{blocks}, cpu);
    i64* index = indices.data<i64>();
    char* value = static_cast<char*>(values.data());
    parallel_for(blocks, 1, [&](i64 begin, i64 end) {
      for (i64 b = begin; b < end; ++b) {
        index[b] =
            b * kGrain + best.run(data + b * kGrain * size, std::min(kGrain, n - b * kGrain));
        std::memcpy(value + b * size, data + index[b] * size, static_cast<std::size_t>(size));
      }
    });
    out[0] = index[best.run(value, blocks)];
  } else if (inner == 1) {
    parallel_for(outer, std::max<i64>(1, kGrain / n), [&](i64 begin, i64 end) {
      for (i64 o = begin; o < end; ++o) out[o] = best.run(data + o * n * size, n);
    });
  } else {
    const i64 width = std::min(inner, kColumns), tiles = (inner - 1) / width + 1;
    parallel_for(outer * tiles, std::max<i64>(1, kGrain / (n * width)), [&](i64 begin, i64 end) {
      alignas(64) char values[kColumns * 8];
      for (i64 t = begin; t < end; ++t) {
        const i64 o = t / tiles, first = t % tiles * width;
        best.rows(out + o * inner + first, values, data + (o * n * inner + first) * size,
                  std::min(width, inner - first), n, inner);
      }
    });
  }
}

}  // namespace brrr::on_cpu
