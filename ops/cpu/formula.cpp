// Formula rows on the CPU. Operands that are not of the type computed in are converted tile by
// tile.
#include <algorithm>

#include "brrr/dispatch/op_info.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/formulas.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

constexpr int kMaxElements = 4;

#define BRRR_ONE(name) +1
#define BRRR_FORMULA(name, written, read, numbers, ...)                                     \
  static_assert(0 BRRR_EACH(BRRR_ONE, written) BRRR_EACH(BRRR_ONE, read) <= kMaxElements && \
                    0 BRRR_EACH(BRRR_ONE, written) <= kMaxOutputs &&                        \
                    0 BRRR_EACH(BRRR_ONE, numbers) < kMaxAttrs,                             \
                #name " has more elements or numbers than a call of a formula takes");
#include "brrr/dispatch/ops.def"
#undef BRRR_ONE

// Few elements of the type computed in, contiguous: the loop takes them as they are.
bool run_few(FormulaLoop loop, const double* numbers, const Call& call, Tensor* outputs,
             const Formula& body, DType type) {
  const i64 n = outputs[0].numel();
  if (n > kSharedGrain) return false;
  const void* from[kMaxElements];
  void* to[kMaxElements];
  bool plain = true;
  for (int k = 0; k < body.elements; ++k) {
    const TensorImpl& x = *TensorImpl::of(*call.inputs[k]);
    from[k] = x.data;
    plain &= x.word.contiguous() && x.word.dtype() == type;
  }
  for (int k = 0; k < body.written; ++k) {
    const TensorImpl& y = *TensorImpl::of(outputs[k]);
    to[k] = y.data;
    plain &= y.word.contiguous();
  }
  if (plain) loop(to, from, numbers, n);
  return plain;
}

struct Elements {
  Tensor of[kMaxElements];
  int count = 0;

  char* at(int k, i64 place) const {
    return static_cast<char*>(of[k].data()) + place * static_cast<i64>(size_of(of[k].dtype()));
  }
};

}  // namespace

void formula(const Call& call, Tensor* outputs) {
  const Formula& body = op_info(call.op).formula;
  const DType type = formula_dtype(call);
  const int row = static_cast<int>(call.op) - (kBuiltinOps - kFormulaRows);
  const FormulaLoop loop = loops->formula[row][type == DType::f64];
  double numbers[kMaxAttrs];
  each_number(call, [&](int k, const Tensor* tensor) {
    if (tensor) {
      convert(DType::f64, &numbers[k], tensor->dtype(), tensor->data(), 1);
    } else {
      numbers[k] = call.attrs[k].d();
    }
  });
  if (run_few(loop, numbers, call, outputs, body, type)) return;
  Elements in, out;
  bool direct = true;
  for (; in.count < body.elements; ++in.count) {
    const Tensor& x = call.input(in.count);
    in.of[in.count] = contiguous_as(x, x.dtype());
    direct &= x.dtype() == type;
  }
  for (; out.count < body.written; ++out.count) {
    const Tensor& y = outputs[out.count];
    out.of[out.count] = y.is_contiguous() ? y : make_tensor(y.dtype(), y.shape(), cpu);
  }
  parallel_for(outputs[0].numel(), shared_grain(1), [&](i64 begin, i64 end) {
    alignas(64) char memory[kMaxElements][kTileBytes];
    for (i64 at = begin, count; at < end; at += count) {
      count = direct ? end - at : std::min(end - at, kTile);
      const void* from[kMaxElements];
      void* to[kMaxElements];
      for (int k = 0; k < in.count; ++k) {
        const bool converts = in.of[k].dtype() != type;
        from[k] = converts ? memory[k] : in.at(k, at);
        if (converts) convert(type, memory[k], in.of[k].dtype(), in.at(k, at), count);
        if (k < out.count) to[k] = converts ? memory[k] : out.at(k, at);
      }
      loop(to, from, numbers, count);
      for (int k = 0; k < out.count; ++k) {
        if (to[k] == memory[k]) convert(out.of[k].dtype(), out.at(k, at), type, memory[k], count);
      }
    }
  });
  for (int k = 0; k < out.count; ++k) {
    if (TensorImpl::of(out.of[k]) != TensorImpl::of(outputs[k])) copy_tensor(outputs[k], out.of[k]);
  }
}

}  // namespace brrr::on_cpu
