// checked: a copy that first compares every value with the bounds.
#include <atomic>

#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/kernels.h"
#include "brrr/tensor/out_of_range.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

template <class T>
void require_between(const char* op, const Tensor& x, T low, T high) {
  const Tensor stored = contiguous_as(x, dtype_of<T>);
  const T* values = stored.data<T>();
  const auto inside = [=](T value) { return value >= low && value <= high; };  // NaN is not
  std::atomic<bool> bad{false};
  parallel_for(stored.numel(), kGrain, [&](i64 begin, i64 end) {
    bool all = true;
    for (i64 i = begin; i < end; ++i) all &= inside(values[i]);
    if (!all) bad.store(true, std::memory_order_relaxed);
  });
  if (!bad.load()) return;
  for (i64 position = 0;; ++position) {
    if (!inside(values[position])) value_out_of_range(op, low, high, values[position], position);
  }
}

}  // namespace

void checked(const Call& call, Tensor* outputs) {
  const Tensor& x = call.input(0);
  if (is_floating(x.dtype())) {
    require_between<double>("checked", x, call.attrs[0].d(), call.attrs[1].d());
  } else {
    require_between<i64>("checked", x, call.attrs[0].i(), call.attrs[1].i());
  }
  copy_tensor(outputs[0], x);
}

}  // namespace brrr::on_cpu
