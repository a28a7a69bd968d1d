// Fused kernels, relative to the bandwidth of a copy, on the CPU also to eager calls. The bytes of
// a case are those of its operands and results, each once.
#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/limits.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/module.h"
#include "brrr/nn/optim/clip.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/thread_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace brrr::measure {
namespace {

using Function = std::function<Tensor(const Tensor&)>;
using Tensors = std::vector<Tensor>;

// Captured by the step rather than passed to it: arguments of a replay are copied.
struct Operands {
  Tensor x, gradient, targets;  // targets: of each row
};

struct FusedCase {
  std::string name;
  double passes;  // tensors of the shape of x that are read or written
  std::function<Tensor(const Operands&)> compute;
};

// `length` cheap ops.
Tensor chain(Tensor x, int length) {
  for (int i = 0; i < length; ++i) x = i % 2 ? x + 0.25 : x * 0.75;
  return x;
}

std::vector<FusedCase> chains() {
  const auto of = [](Function f) {
    return [f = std::move(f)](const Operands& o) { return f(o.x); };
  };
  return {
      {"cos", 2, of([](const Tensor& x) { return cos(x); })},
      {"cos of cos", 2, of([](const Tensor& x) { return cos(cos(x)); })},
      {"relu", 2, of([](const Tensor& x) { return relu(x); })},
      {"gelu", 2, of([](const Tensor& x) { return gelu(x); })},
      {"chain of 4", 2, of([](const Tensor& x) { return chain(x, 4); })},
      {"chain of 16", 2, of([](const Tensor& x) { return chain(x, 16); })},
  };
}

// Over rows; each also with its gradient with respect to x.
std::vector<FusedCase> rows(std::int64_t columns, const Options& options) {
  const Tensor weight = rand({columns}, options), bias = rand({columns}, options);
  const auto add = [](std::vector<FusedCase>& cases, const char* name, Function f) {
    cases.push_back({name, 2, [f](const Operands& o) { return f(o.x); }});
    cases.push_back({fmt::format("{} backward", name), 3, [f](const Operands& o) {
                       const Tensor x = requires_grad_(detach(o.x));
                       return grad(sum(f(x) * o.gradient), x);
                     }});
  };
  std::vector<FusedCase> cases;
  // What each element costs that is moved, and one that is only read.
  cases.push_back({"scale", 2, [](const Operands& o) { return o.x * 2.0; }});
  cases.push_back({"sum of rows", 1, [](const Operands& o) { return sum(o.x, {1}); }});
  add(cases, "softmax", [](const Tensor& x) { return softmax(x, 1); });
  add(cases, "layer norm", [=](const Tensor& x) { return layer_norm(x, 1, weight, bias); });
  add(cases, "rms norm", [=](const Tensor& x) { return rms_norm(x, 1, weight); });
  cases.push_back({"dropout", 2, [](const Operands& o) { return dropout(o.x, 0.1); }});
  cases.push_back({"cross entropy", 1, [](const Operands& o) {
                     return nn::cross_entropy(o.x, o.targets, nn::Reduction::none);
                   }});
  cases.push_back({"cross entropy backward", 2, [](const Operands& o) {
                     const Tensor x = requires_grad_(detach(o.x));
                     return grad(nn::cross_entropy(x, o.targets), x);
                   }});
  return cases;
}

// Tensors of mixed size: 64 with about `count` elements in all.
class MixedSizes : public nn::Module {
 public:
  MixedSizes(std::int64_t count, const Options& options) : Module("many"), tensors_(64) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto share = static_cast<std::int64_t>(i % 8 + 1) * count / 288;
      tensors_[i] =
          randn({std::max<std::int64_t>(share - static_cast<std::int64_t>(i), 1)}, options);
      parameter(fmt::format("p{}", i), tensors_[i]);
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor total = sum(tensors_[0]) * x;
    for (std::size_t i = 1; i < tensors_.size(); ++i) total = total + sum(square(tensors_[i])) * x;
    return total;
  }

 private:
  std::vector<Tensor> tensors_;
};

class FusedBench {
 public:
  FusedBench(const BenchOptions& options, Results& results)
      : options_(options),
        limit_(bandwidth_limit(
            options, {options.device.is_cpu() ? plain_add(kCpuElements, num_threads()) : Batch(),
                      12.0 * static_cast<double>(kCpuElements), "plain loop of adds"})),
        results_(results) {}

  void run(const FusedCase& one, DType dtype, std::int64_t rows, std::int64_t columns, int sets) {
    const std::string name =
        fmt::format("fused/{} {}x{} {}", one.name, rows, columns, name_of(dtype));
    options_.progress(name);
    const Options here{.dtype = dtype, .device = options_.device};
    // One step computes with several sets of operands: they exceed the cache, and the launch of a
    // step is shared.
    std::vector<Operands> operands;
    std::vector<Tensor> results;
    for (int i = 0; i < sets; ++i) {
      operands.push_back(operands_of(here, rows, columns));
      results.push_back(contiguous(one.compute(operands.back())));
    }
    auto step = compile(
        [&] {
          for (std::size_t i = 0; i < operands.size(); ++i)
            copy_(results[i], one.compute(operands[i]));
        },
        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    for (int call = 0; call < 2; ++call) step();
    const Batch ours = device_batch(options_.device, [&] { step(); });
    const auto [timing, bare] = time_both(ours, limit_.batch, options_.sampling());
    const double bytes = one.passes * static_cast<double>(sets * rows * columns) *
                         static_cast<double>(size_of(dtype));
    results_.push_back(
        rate_result(name, options_.device, "GB/s", bytes, timing, limit_.bytes, bare, limit_.name));
  }

  // The times of a fused step and of the same calls in eager mode.
  void run_both(const FusedCase& one, std::int64_t rows, std::int64_t columns) {
    const std::string name = fmt::format("fused/{} {}x{} f32, of eager", one.name, rows, columns);
    options_.progress(name);
    const Operands operands = operands_of({.device = options_.device}, rows, columns);
    const auto eager = [&] { return one.compute(operands); };
    auto step = compile(eager, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    for (int call = 0; call < 2; ++call) eager(), step();
    const Batch ours = device_batch(options_.device, [&] { step(); }),
                calls = device_batch(options_.device, [&] { eager(); });
    const auto [timing, of_eager] = time_both(ours, calls, options_.sampling());
    results_.push_back(time_result(name, options_.device, timing, &of_eager, "eager calls"));
  }

  // The times of a fused step, and of one that replays the calls.
  void run_apart(const std::string& what, const std::function<Tensors()>& compute) {
    const std::string name = fmt::format("fused/{}, of replayed", what);
    options_.progress(name);
    auto fused = compile(compute, {.mode = Mode::fused, .fallback = OnFallback::refuse}),
         replayed = compile(compute, {.mode = Mode::graph, .fallback = OnFallback::refuse});
    for (int call = 0; call < 2; ++call) fused(), replayed();
    const Batch ours = device_batch(options_.device, [&] { fused(); }),
                calls = device_batch(options_.device, [&] { replayed(); });
    const auto [timing, of_replayed] = time_both(ours, calls, options_.sampling());
    results_.push_back(time_result(name, options_.device, timing, &of_replayed, "replayed calls"));
  }

  // Gradients clipped by their norm, and Adam: the norm reads the gradients once more.
  void run_update(std::int64_t count) {
    const Options here{.device = options_.device};
    MixedSizes model(count, here);
    optim::Optimizer optimizer(model,
                               optim::chain({optim::clip_by_global_norm(1.0), optim::adam(1e-3)}));
    backward(model(full({}, 1e-3, here)));
    std::int64_t elements = 0;
    for (const auto& [path, tensor] : model.named_parameters()) elements += tensor.numel();
    const std::string name = fmt::format("fused/clip and adam of 64 tensors, {} f32", elements);
    options_.progress(name);
    auto step =
        compile([&] { optimizer.step(); }, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    for (int call = 0; call < 2; ++call) step();
    const Batch ours = device_batch(options_.device, [&] { step(); });
    const auto [timing, bare] = time_both(ours, limit_.batch, options_.sampling());
    results_.push_back(rate_result(name, options_.device, "GB/s",
                                   32.0 * static_cast<double>(elements), timing, limit_.bytes, bare,
                                   limit_.name));
  }

 private:
  static Operands operands_of(const Options& options, std::int64_t rows, std::int64_t columns) {
    const Tensor number = arange(rows, {.dtype = i64, .device = options.device});
    return {randn({rows, columns}, options), randn({rows, columns}, options),
            remainder(number * 7, columns)};
  }

  static constexpr std::int64_t kCpuElements = 1 << 23;
  BenchOptions options_;
  BandwidthLimit limit_;
  Results& results_;
};

// Programs whose kernels do little for each element that they move.
void run_narrow(FusedBench& bench, const Options& here, bool quick) {
  const auto of = [&](std::int64_t rows, std::int64_t columns) {
    return randn({quick ? std::min<std::int64_t>(rows, 64) : rows, columns}, here);
  };
  const Tensor flat = of(1 << 20, 1);
  bench.run_apart("sin exp log tanh sigmoid silu 1048576x1 f32",
                  [=] { return Tensors{silu(sigmoid(tanh(log(exp(sin(flat))))))}; });
  for (const auto& [rows, columns] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {256, 2}, {2048, 3}, {65536, 8}, {20000, 17}}) {
    const Tensor x = of(rows, columns), g = of(rows, columns);
    const std::string size = fmt::format("{}x{} f32", rows, columns);
    bench.run_apart("sum of columns of exp " + size, [=] { return Tensors{sum(exp(x), {0})}; });
    bench.run_apart("sum of rows of exp " + size, [=] { return Tensors{sum(exp(x), {1})}; });
    bench.run_apart("softmax " + size, [=] { return Tensors{softmax(x, 1)}; });
    bench.run_apart("gelu backward and sum of columns " + size, [=] {
      const Tensor y = requires_grad_(detach(x));
      const Tensor bias = requires_grad_(zeros({x.shape()[1]}, {.device = x.device()}));
      return grad(sum(gelu(y + bias) * g), {y, bias});
    });
  }
  for (const auto& [rows, columns] :
       std::initializer_list<std::pair<std::int64_t, std::int64_t>>{{4096, 6}, {1024, 512}}) {
    const Tensor x = of(rows, columns), y = of(rows, columns), table = of(64, columns);
    const Tensor index = remainder(arange(x.shape()[0], {.dtype = i64, .device = here.device}) * 7,
                                   table.shape()[0]);
    const std::string size = fmt::format("{}x{} f32", rows, columns);
    bench.run_apart("cat " + size, [=] { return Tensors{cat({exp(x), y * 2.0}, 1)}; });
    bench.run_apart("cat of gathers " + size, [=] {
      return Tensors{cat({embedding(table, index), index_select(table, 0, index) * 2.0}, 1)};
    });
    bench.run_apart("gradient of chunks " + size, [=] {
      const Tensor leaf = requires_grad_(detach(x));
      const Tensors parts = chunk(leaf, 2, 1);
      return Tensors{grad(sum(parts[0] * sigmoid(parts[1])), leaf)};
    });
  }
}

}  // namespace

void bench_fused(const BenchOptions& options, Results& results) {
  manual_seed(options.seed);
  const bool on_cpu = options.device.is_cpu();
  FusedBench bench(options, results);
  const std::int64_t side = options.quick ? 256 : on_cpu ? 2896 : 16384;
  for (const FusedCase& one : chains()) bench.run(one, f32, side, side, 1);
  const std::int64_t count = options.quick ? 64 : on_cpu ? 2048 : 16384;
  for (const std::int64_t columns : {4096, 1000}) {
    for (const DType dtype : {f32, bf16}) {
      for (const FusedCase& one : rows(columns, {.dtype = dtype, .device = options.device}))
        bench.run(one, dtype, count, columns, on_cpu ? 1 : 4);
    }
  }
  // On CUDA a graph copies its results to new tensors, which would be part of the comparison.
  if (on_cpu) {
    bench.run_both({"chain of 6", 2, [](const Operands& o) { return chain(o.x, 6); }},
                   options.quick ? 64 : 8192, 1024);
    for (const FusedCase& one : rows(1024, {.device = options.device}))
      bench.run_both(one, options.quick ? 64 : 4096, 1024);
    run_narrow(bench, {.device = options.device}, options.quick);
  }
  bench.run_update(options.quick ? 1 << 14 : on_cpu ? 1 << 22 : 100'000'000);
}

}  // namespace brrr::measure
