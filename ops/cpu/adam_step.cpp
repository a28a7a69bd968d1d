// Adam's step on the CPU. Operands that are not of the type computed in are converted tile by tile.
#include "brrr/ops/adam_step.h"

#include <algorithm>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

using namespace adam_step_call;

constexpr int kRead = 4, kWritten = 3;  // param, mean, square, and the gradient

void convert(DType to_type, void* to, DType from_type, const void* from, i64 n) {
  loops->convert[static_cast<int>(from_type)][static_cast<int>(to_type)](to, from, n);
}

double value_of(const Tensor& x) {
  double value;
  convert(DType::f64, &value, x.dtype(), x.data(), 1);
  return value;
}

AdamNumbers numbers_of(const Call& call) {
  AdamNumbers numbers;
  double* const fields[kCoefficients] = {&numbers.rate, &numbers.mean_weight,
                                         &numbers.square_weight, &numbers.eps, &numbers.decay};
  int next = kOperands;
  for (int i = 0; i < kCoefficients; ++i)
    *fields[i] = is_tensor(call, i) ? value_of(call.input(next++)) : call.attrs[i].d();
  numbers.mean_of_ones = value_of(call.input(4));
  numbers.square_of_ones = value_of(call.input(5));
  return numbers;
}

}  // namespace

void adam_step(const Call& call, Tensor* outputs) {
  const DType type = call.input(1).dtype() == DType::f64 ? DType::f64 : DType::f32;
  const AdamLoop loop = loops->adam_step[static_cast<int>(type)][decays(call)];
  const AdamNumbers numbers = numbers_of(call);
  Tensor in[kRead], out[kWritten];
  bool direct = true;
  for (int k = 0; k < kRead; ++k) {
    in[k] = contiguous_as(call.input(k), call.input(k).dtype());
    direct &= in[k].dtype() == type;
  }
  for (int k = 0; k < kWritten; ++k) {
    out[k] = outputs[k].is_contiguous() ? outputs[k]
                                        : make_tensor(outputs[k].dtype(), outputs[k].shape(), cpu);
  }
  const auto place = [](const Tensor& x, i64 at) {
    return static_cast<char*>(x.data()) + at * static_cast<i64>(size_of(x.dtype()));
  };
  parallel_for(outputs[0].numel(), kGrain, [&](i64 begin, i64 end) {
    alignas(64) char memory[kRead][kTileBytes];
    for (i64 at = begin, count; at < end; at += count) {
      count = direct ? end - at : std::min(end - at, kTile);
      const void* from[kRead];
      void* to[kWritten];
      for (int k = 0; k < kRead; ++k) {
        const bool converts = in[k].dtype() != type;
        from[k] = converts ? memory[k] : place(in[k], at);
        if (converts) convert(type, memory[k], in[k].dtype(), place(in[k], at), count);
        if (k < kWritten) to[k] = converts ? memory[k] : place(out[k], at);
      }
      loop(to, from, numbers, count);
      for (int k = 0; k < kWritten; ++k) {
        if (to[k] == memory[k]) convert(out[k].dtype(), place(out[k], at), type, memory[k], count);
      }
    }
  });
  for (int k = 0; k < kWritten; ++k) {
    if (out[k].impl() != outputs[k].impl()) copy_tensor(outputs[k], out[k]);
  }
}

}  // namespace brrr::on_cpu
