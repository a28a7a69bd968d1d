#include "cli/bench_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "brrr/measure/limits.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/fail.h"
#include "cli/training.h"

namespace brrr::cli {
namespace {

using measure::BenchOptions;
using measure::Result;
using measure::Results;
using measure::Timing;

struct Size {
  const char* name;
  std::int64_t batch, width;
  int layers;
  bool launch_bound;  // on CUDA; these sizes also run on the CPU
};
constexpr Size kSizes[] = {
    {"tiny", 32, 64, 4, true},        {"small", 128, 256, 8, true},   {"deep", 64, 128, 32, true},
    {"medium", 2048, 1024, 8, false}, {"wide", 8192, 4096, 4, false},
};
constexpr const Size& kDeep = kSizes[2];

Result result_of(std::string name, const BenchOptions& options, const Timing& timing,
                 double calls = 1) {
  return {.name = std::move(name),
          .device = options.device,
          .value = timing.median * 1e6 / calls,
          .unit = "us",
          .limit = {},
          .limit_name = {},
          .spread = timing.spread};
}

measure::Sampling sampling_of(const BenchOptions& options) {
  if (options.quick) return options.sampling();
  // As bench/peers/torch_steps.py.
  return {.samples = 60, .sample_seconds = 0.02, .budget_seconds = 0.8, .warm_seconds = 0.5};
}

// Sets the process's seed and precision as well.
TrainingOptions mlp(const Size& size, bool bf16, Mode mode, const BenchOptions& options) {
  manual_seed(options.seed);
  set_matmul_precision(bf16 || options.device.is_cpu() ? Precision::full : Precision::tf32);
  set_matmul_choice(MatmulChoice::measured);
  TrainingOptions result;
  result.toy = {.model = "mlp",
                .batch = size.batch,
                .width = size.width,
                .layers = size.layers,
                .dtype = bf16 ? DType::bf16 : DType::f32,
                .device = options.device};
  result.mode = mode;
  return result;
}

const char* name_of_precision(bool bf16, Device device) {
  return bf16 ? "bf16" : device.is_cpu() ? "f32" : "tf32";
}

void add_steps(const Size& size, bool bf16, const BenchOptions& options, Results& results) {
  const std::string name =
      fmt::format("steps/{} {}", size.name, name_of_precision(bf16, options.device));
  options.progress(name);
  Training eager(mlp(size, bf16, Mode::eager, options));
  Training graph(mlp(size, bf16, Mode::graph, options));
  Training fused(mlp(size, bf16, Mode::fused, options));
  const std::int64_t kernels = eager.cost().kernels;
  graph.cost();  // traces and captures
  const std::int64_t fused_kernels = fused.cost().kernels;
  const auto call_eager = [&] { eager.step(); };
  const auto call_graph = [&] { graph.step(); };
  const auto call_fused = [&] { fused.step(); };
  const std::vector<Timing> timings =
      measure::time_all(std::array{measure::synchronized_batch(options.device, call_eager),
                                   measure::synchronized_batch(options.device, call_graph),
                                   measure::synchronized_batch(options.device, call_fused)},
                        sampling_of(options));
  const auto add = [&](const char* mode, const Timing& timing, const std::function<void()>& call,
                       std::int64_t launches) {
    Result result = result_of(fmt::format("{} {}", name, mode), options, timing);
    const int samples = options.quick ? 5 : 21;
    const long calls = measure::calls_in_queue(launches);
    if (const auto alone = measure::time_queued(options.device, call, calls, samples)) {
      result.limit = alone->median * 1e6;
      result.limit_name = "the device alone";
    }
    results.push_back(std::move(result));
  };
  add("eager", timings[0], call_eager, kernels);
  add("graph", timings[1], call_graph, 1);
  add("fused", timings[2], call_fused, 1);
  const auto add_count = [&](std::string what, std::int64_t count) {
    results.push_back({.name = std::move(what),
                       .device = options.device,
                       .value = static_cast<double>(count),
                       .unit = "",
                       .limit = {},
                       .limit_name = {}});
  };
  add_count(name + " kernels", kernels);
  add_count(name + " kernels, fused", fused_kernels);
}

// Host time of an eager step.
void add_host(const Size& size, bool bf16, const BenchOptions& options, Results& results) {
  const std::string name =
      fmt::format("steps/{} {} host", size.name, name_of_precision(bf16, options.device));
  options.progress(name);
  std::optional<measure::BareLaunches> bare;  // outlives the training: it owns gradients' memory
  Training eager(mlp(size, bf16, Mode::eager, options));
  const auto call = [&] { eager.step(); };
  call();
  bare = measure::bare_launches(options.device, call);
  if (!bare) fail("[bench] expected {} to launch kernels and nothing else", name);
  const auto [ours, limit] =
      measure::time_host_both(options.device, call, bare->launch,
                              measure::calls_in_queue(bare->kernels), options.quick ? 5 : 61);
  Result result = result_of(name, options, ours);
  result.limit = limit.median * 1e6;
  result.limit_name = "bare launches of the same kernels";
  results.push_back(std::move(result));
}

// The overhead of a replay.
void add_replays(const BenchOptions& options, Results& results) {
  const Options here{.dtype = f32, .device = options.device};
  const auto add = [&](std::string name, auto step, double calls) {
    options.progress(name);
    const Timing timing = measure::time(
        measure::synchronized_batch(options.device, [&step] { step(); }), options.sampling());
    results.push_back(result_of(std::move(name), options, timing, calls));
  };
  const bool on_cuda = !options.device.is_cpu();

  constexpr int kNodes = 200;
  const auto chain_of = [&](std::int64_t elements) {
    return [x = rand({elements}, here)] {
      Tensor y = x;
      for (int i = 0; i < kNodes; ++i) y = y + 1.0;
      return y;
    };
  };
  add("graph/per node", compile(chain_of(256)), kNodes);
  if (on_cuda) {
    add("graph/per node, not programmatic", compile(chain_of(256), {.programmatic = false}),
        kNodes);
  } else {
    add("graph/per node, 1 element", compile(chain_of(1)), kNodes);  // host time of a call
  }

  constexpr int kChains = 16, kProducts = 10;
  const auto chains = [x = rand({kChains, 64, 64}, here), w = rand({64, 64}, here) / 64.0] {
    std::vector<Tensor> ends;
    for (int chain = 0; chain < kChains; ++chain) {
      Tensor y = select(x, 0, chain);
      for (int i = 0; i < kProducts; ++i) y = matmul(y, w);
      ends.push_back(y);
    }
    return ends;
  };
  add("graph/16 chains", compile(chains), 1);
  if (on_cuda) add("graph/16 chains, one lane", compile(chains, {.lanes = false}), 1);
}

void add_tracing(const BenchOptions& options, Results& results) {
  const std::string precision = name_of_precision(false, options.device);
  Training deep(mlp(kDeep, false, Mode::graph, options));
  deep.cost();
  if (!options.device.is_cpu()) {
    const std::string name = fmt::format("steps/deep {} replay host", precision);
    options.progress(name);
    const Timing host = measure::time_host(
        options.device, [&] { deep.step(); }, measure::calls_in_queue(1), 21);
    results.push_back(result_of(name, options, host));
  }

  options.progress("trace/deep");
  std::array<double, 5> milliseconds{};
  for (double& each : milliseconds) {
    deep.clear();
    deep.step();
    const CompiledEntry entry = *deep.compiled();
    each = entry.trace_ms + entry.plan_ms;
  }
  std::ranges::sort(milliseconds);
  const double median = milliseconds[2];
  results.push_back({.name = "trace/deep",
                     .device = options.device,
                     .value = median,
                     .unit = "ms",
                     .limit = {},
                     .limit_name = {},
                     .spread = (milliseconds[3] - milliseconds[1]) / median});
}

// The size of the arena, relative to its lower bound, peak live memory.
void add_arena(const char* name, const TrainingOptions& o, const BenchOptions& options,
               Results& results) {
  options.progress(name);
  Training training(o);
  training.step();
  const CompiledEntry entry = *training.compiled();
  results.push_back({.name = name,
                     .device = options.device,
                     .value = static_cast<double>(entry.arena_bytes) / 1024,
                     .unit = "KiB",
                     .limit = static_cast<double>(entry.least_bytes) / 1024,
                     .limit_name = "live at a time"});
}

}  // namespace

void bench_steps(const BenchOptions& options, Results& results) {
  for (const bool bf16 : {false, true}) {
    for (const Size& size : kSizes) {
      if (options.device.is_cpu() && !size.launch_bound) continue;
      add_steps(size, bf16, options, results);
      if (!options.device.is_cpu() && size.launch_bound) add_host(size, bf16, options, results);
      if (options.quick) break;
    }
  }
  add_replays(options, results);
  add_tracing(options, results);
  add_arena("arena/mlp", mlp(kDeep, false, Mode::graph, options), options, results);
  TrainingOptions blocks = mlp(kDeep, false, Mode::graph, options);
  blocks.toy = {.model = "transformer",
                .batch = 8,
                .width = 128,
                .layers = 2,
                .heads = 4,
                .seq = 64,
                .device = options.device};
  add_arena("arena/transformer", blocks, options, results);
}

}  // namespace brrr::cli
