// What tests of memory check on either device.
#pragma once

#include <functional>
#include <vector>

#include "tests/harness/catch.h"
#include <brrr/graph/compile.h>
#include <brrr/ops/functions.h>
#include <brrr/tensor/allocator.h>
#include <brrr/tensor/stream.h>

namespace brrr::testing {

// The memory that a replay of a step takes at its peak, relative to what is there without the step,
// and what was planned for it. Clears the step, whose leaves keep their gradients.
struct PlannedPeak {
  std::int64_t measured, planned;
};
template <class Step>
PlannedPeak planned_peak(Step& step, Device device) {
  const auto stats = [&] {
    synchronize(device);
    return memory_stats(device);
  };
  synchronize(device);
  reset_peak_memory(device);
  step();
  const MemoryStats with = stats();
  const CompiledEntry entry = step.report().entries.at(0);
  step.clear();
  const MemoryStats without = stats();
  return {with.peak - without.live + with.captured - without.captured,
          static_cast<std::int64_t>(entry.planned_bytes())};
}

// An eager op that allocates nothing from the system once it has run a few times.
struct SteadyOp {
  const char* name;
  std::function<void()> run;
};

// The functions own the tensors that they read.
inline std::vector<SteadyOp> steady_ops(Device device) {
  const Options options{.device = device};
  struct Operands {
    Tensor one, column, row, middle, large, square, batch, halves, index, target, wide;
  };
  Operands o{ones({1}, options),
             ones({2, 1}, options),
             ones({1, 2}, options),
             ones({1000}, options),
             ones({300, 301}, options),
             ones({64, 64}, options),
             ones({2, 16, 16}, options),
             ones({1000}, {.dtype = bf16, .device = device}),
             arange(10, {.device = device}),
             ones({1000}, options),
             ones({300, 301}, options)};
  return {
      {"add of one element", [o] { add(o.one, o.one); }},
      {"add of a number", [o] { add(o.one, 1.5); }},
      {"add", [o] { add(o.middle, o.middle); }},
      {"add of large", [o] { add(o.large, o.large); }},
      {"broadcast add", [o] { add(o.column, o.row); }},
      {"add of a transpose", [o] { add(o.square, transpose(o.square, 0, 1)); }},
      {"scalar mul", [o] { mul(o.middle, 2); }},
      {"chain", [o] { mul(add(o.middle, o.middle), 2) - o.middle; }},
      {"mixed types", [o] { add(o.halves, o.middle); }},
      {"exp", [o] { exp(o.middle); }},
      {"where", [o] { where(gt(o.middle, 0), o.middle, o.middle); }},
      {"in place", [o]() mutable { o.target += o.middle; }},
      {"view",
       [o] {
         view(o.large, {301, 300});
       }},
      {"views", [o] { unsqueeze(slice(transpose(o.large, 0, 1), 0, 3, 200, 2), 0); }},
      {"reshape that copies", [o] { reshape(transpose(o.square, 0, 1), {64 * 64}); }},
      {"sum of all", [o] { sum(o.large); }},
      {"sum of dimension 0", [o] { sum(o.large, {0}); }},
      {"sum of dimension 1", [o] { sum(o.large, {1}); }},
      {"max", [o] { max(o.large, {1}); }},
      {"argmax", [o] { argmax(o.large, 1); }},
      {"matmul", [o] { matmul(o.square, o.square); }},
      {"matmul of a transpose", [o] { matmul(o.square, transpose(o.square, 0, 1)); }},
      {"matmul of a batch", [o] { matmul(o.batch, o.batch); }},
      {"matrix by vector", [o] { matmul(o.square, select(o.square, 0, 0)); }},
      {"copy_", [o]() mutable { copy_(o.target, o.middle); }},
      {"copy_ that converts", [o]() mutable { copy_(o.target, o.halves); }},
      {"copy_ that broadcasts", [o]() mutable { copy_(o.wide, o.one); }},
      {"cast", [o] { cast(o.middle, bf16); }},
      {"softmax", [o] { softmax(o.large, 1); }},
      {"layer_norm", [o] { layer_norm(o.large, 1); }},
      {"zeros", [options] { zeros({100}, options); }},
      {"fill_", [o]() mutable { fill_(o.target, 3); }},
      {"randn", [options] { randn({100}, options); }},
      {"index_select", [o] { index_select(o.large, 0, o.index); }},
      {"cumsum", [o] { cumsum(o.large, 1); }},
      {"item", [o] { item(o.one); }},
  };
}

inline void check_live_and_peak(Device device) {
  const Options options{.device = device};
  const auto live = [device] { return memory_stats(device).live; };
  const auto peak = [device] { return memory_stats(device).peak; };
  const std::int64_t before = live();
  {
    const Tensor a = empty({1000}, options);
    CHECK(live() == before + 4000);
    const Tensor b = empty({3, 5, 7}, {.dtype = f64, .device = device});
    CHECK(live() == before + 4000 + 840);
    const Tensor c = empty({13}, {.dtype = bf16, .device = device});
    CHECK(live() == before + 4000 + 840 + 26);
    const Tensor d = scalar_tensor(1.0, options);
    CHECK(live() == before + 4000 + 840 + 26 + 4);
    const Tensor flag = empty({3}, {.dtype = boolean, .device = device});
    CHECK(live() == before + 4000 + 840 + 26 + 4 + 3);
    const Tensor nothing = empty({0}, options), shape_only = meta({1000, 1000});
    const Tensor same = a, part = slice(a, 0, 10, 20), reshaped = reshape(a, {10, 100});
    CHECK(live() == before + 4873);
  }
  CHECK(live() == before);

  reset_peak_memory(device);
  CHECK(peak() == before);
  {
    Tensor a = empty({1000}, options);
    { const Tensor b = empty({500}, options); }
    CHECK(peak() == before + 6000);
    a = Tensor();
    const Tensor c = empty({250}, options);
    CHECK(live() == before + 1000);
    CHECK(peak() == before + 6000);
    reset_peak_memory(device);
    CHECK(peak() == before + 1000);
  }
  {
    const Tensor a = ones({1000}, options), b = ones({1000}, options);
    reset_peak_memory(device);
    const Tensor c = add(a, b);
    CHECK(live() == before + 12000);
    CHECK(peak() == before + 12000);
  }
  CHECK(live() == before);
}

}  // namespace brrr::testing
