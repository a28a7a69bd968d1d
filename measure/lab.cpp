#include "brrr/measure/lab.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

constexpr Experiment kExperiments[] = {
    {"growth", "Growth of compute and of memory bandwidth",
     "processors double their rate in 1.6 years, memory its bandwidth in 2.7", lab::growth},
    {"peaks", "Tensor cores against plain units",
     "matrix products run at 312 TFLOP/s on an A100, anything else at 19.5", lab::peaks},
    {"operator-classes", "Operator classes of a BERT layer's training step",
     "products are 99.8 % of the flops and 61 % of the run time", lab::operator_classes},
    {"achieved-flops", "Flops achieved by operator class",
     "normalization achieves 250 times less than products, element-wise ops 700 times less",
     lab::achieved_flops},
    {"memory-ladder", "Bandwidth by working set",
     "storage for what is used is fast and small, and the large one is slow", lab::memory_ladder},
    {"transfers", "Copies between host and device",
     "moving data from the CPU to the GPU costs more than moving it within the GPU",
     lab::transfers},
    {"cos-of-cos", "Memory accesses of x.cos().cos()",
     "fusion makes two accesses of four, and halves the time", lab::accesses},
    {"fusion-onto", "Pointwise ops fused onto a reduction and onto a product",
     "pointwise ops can be fused onto reductions and products, which saves their accesses",
     lab::fusion_onto},
    {"fused-cost", "The cost of more ops in one kernel",
     "a fused cos(cos(x)) costs nearly as much as cos(x)", lab::fused_cost},
    {"activations", "The cost of activation functions",
     "activation functions cost nearly the same, gelu as much as relu", lab::activations},
    {"in-place", "Ops in place, and gradients that are dropped",
     "a trick such as ops in place helps by the accesses that it saves, and by nothing else",
     lab::in_place},
    {"recomputation", "Rematerialization of a chain of pointwise rounds",
     "recomputing values in the backward pass lowers both memory and run time", lab::recomputation},
    {"break-even", "Operations per element before compute binds", "about a hundred on an A100",
     lab::break_even},
    {"repeat", "The sweep of compute intensity",
     "run time is flat until 64 multiplications, then the rate is near its peak", lab::repeat},
    {"multiply-add", "Multiplications alone against multiply-adds",
     "multiplications alone reach half of the peak, 9.75 of 19.5 TFLOP/s", lab::multiply_add},
    {"share-of-peak", "Achieved share of peak",
     "a step that achieves 80 % of peak is compute-bound for at least 80 % of its time",
     lab::share_of_peak},
    {"additions", "Additions a second",
     "32 million in a loop of Python, 280 thousand through PyTorch's dispatcher", lab::additions},
    {"one-addition", "Flame graph of one addition",
     "of the time of one addition in PyTorch, all but one small box is overhead", lab::one_addition,
     "flame graph of the samples; the width of a bar is its share of the time"},
    {"batch-doubling", "Doubling the batch",
     "where the batch doubles and the time grows by 10 %, the step is overhead-bound",
     lab::batch_doubling},
    {"square-products", "Rate of square products by size",
     "small products leave most of the peak unused", lab::square_products},
    {"data-loading", "A step that waits for its data",
     "where the host's own code binds, tracing gains no more than all else takes; run beside the "
     "step, it costs the longer of both",
     lab::data_loading},
    {"remedies", "A remedy for each regime",
     "tracing helps an overhead-bound step, fusion a bandwidth-bound one, tensor cores a "
     "compute-bound one",
     lab::remedies},
    {"chain", "An optimizer as a chain of transformations",
     "clipping composes with Adam in one line, chain(clip(1.0), adam(1e-2))", lab::chain},
    {"parallel", "When communication binds parallel training",
     "data parallelism needs some 2500 tokens per H100, tensor parallelism reaches 8 ways",
     lab::parallel},
    // Last: with CUPTI, which stays attached, the host takes longer for each launch.
    {"timelines", "Two timelines: gaps against run-ahead",
     "with small ops the GPU has gaps while it waits for the host; with large ones the host runs "
     "ahead and there are none",
     lab::timelines},
    {"gpu-util", "GPU-Util against the share of peak",
     "GPU-Util is the share of time in which a kernel runs: it shows gaps, and nothing of how much "
     "of the peak is used",
     lab::gpu_util},
};

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

std::string to_string(const Interval& claim) {
  if (number_text(claim.least) == number_text(claim.most)) return number_text(claim.least);
  if (std::isinf(claim.most)) return "at least " + number_text(claim.least);
  return number_text(claim.least) + " to " + number_text(claim.most);
}

std::vector<std::string> Finding::doubts() const {
  std::vector<std::string> lines;
  if (gpu) lines = disturbances(*gpu);
  lines.insert(lines.end(), incomplete.begin(), incomplete.end());
  for (const Reading& r : readings) {
    if (r.claim && r.disturbed())
      lines.push_back(fmt::format("samples of {} spread by {:.0f} %", r.name, 100 * r.spread));
  }
  return lines;
}

Outcome Finding::outcome() const {
  if (!doubts().empty()) return Outcome::undecided;
  return std::ranges::all_of(readings, &Reading::holds) ? Outcome::confirmed : Outcome::differs;
}

double Finding::spread() const {
  double most = 0;
  for (const Reading& reading : readings) most = std::max(most, reading.spread);
  return most;
}

std::string Finding::verdict() const {
  const Outcome decided = outcome();
  std::vector<std::string> parts = doubts();
  for (const Reading& r : readings) {
    if (!r.claim || (decided == Outcome::differs && r.holds())) continue;
    const char* space = r.unit.empty() ? "" : " ";
    parts.push_back(fmt::format("{} is {}{}{} (claimed: {})", r.name, number_text(r.value), space,
                                r.unit, to_string(*r.claim)));
  }
  return fmt::format("{}: {}", name_of(decided), fmt::join(parts, "; "));
}

namespace {

// Readings with the same explanation are explained once.
void explain_misses(Finding& finding) {
  std::vector<std::string> parts;
  if (!finding.why.empty()) parts.push_back(finding.why);
  for (const Reading& r : finding.readings) {
    if (r.holds() || r.miss.empty()) continue;
    if (std::ranges::find(parts, r.miss) == parts.end()) parts.push_back(r.miss);
  }
  finding.why = fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

Finding run_experiment(const Experiment& experiment, const LabOptions& options) {
  const auto run = [&] {
    manual_seed(options.seed);  // the same draws alone and among all
    std::optional<GpuState> before;
    if (options.device.is_cuda()) before = gpu_state(options.device);
    Finding finding = experiment.run(options);
    if (before) finding.gpu = worse_of(*before, gpu_state(options.device));
    return finding;
  };
  Finding calmest = run();
  for (int again = 0; again < 2 && calmest.disturbed() && !options.quick; ++again) {
    Finding finding = run();
    if (finding.spread() < calmest.spread()) calmest = std::move(finding);
  }
  explain_misses(calmest);
  return calmest;
}

namespace lab {

PreparedStep prepare(Device device, Step step, Mode mode, Rounding rounding, Remat remat) {
  PreparedStep result{.call = step};
  std::shared_ptr<Compiled<Step>> compiled;
  if (mode != Mode::eager) {
    // Without a compiler a fused step is replayed unfused, and says so.
    compiled = std::make_shared<Compiled<Step>>(
        compile(std::move(step),
                {.mode = mode,
                 .rounding = rounding,
                 .remat = remat,
                 .fallback = mode == Mode::fused ? OnFallback::warn : OnFallback::refuse}));
    result.call = [compiled] { (*compiled)(); };
  }
  for (int i = 0; i < 2; ++i) result.call();  // the second one is captured
  const StepCost cost = cost_of_step(device, result.call);
  result.bytes = static_cast<double>(cost.bytes);
  result.flops = static_cast<double>(cost.flops);
  result.kernels = cost.kernels;
  if (!cost.replayed.empty()) result.entry = cost.replayed.front();
  return result;
}

double InModes::spread() const { return std::ranges::max(timings, {}, &Timing::spread).spread; }

InModes time_modes(const LabOptions& options, const std::function<Step()>& make) {
  InModes result;
  std::vector<Batch> batches;
  for (const Mode mode : {Mode::eager, Mode::graph, Mode::fused}) {
    PreparedStep& step = result.steps[static_cast<std::size_t>(mode)];
    step = prepare(options.device, make(), mode);
    batches.push_back(synchronized_batch(options.device, step.call));
  }
  const std::vector<Timing> timings = time_all(batches, options.sampling());
  std::ranges::copy(timings, result.timings.begin());
  return result;
}

Step training_step(Device device, std::shared_ptr<nn::Module> model, const Dims& shape,
                   bool update) {
  const Options here{.dtype = f32, .device = device};
  const Tensor x = randn(shape, here), y = randn(shape, here);
  const auto optimizer = std::make_shared<optim::Optimizer>(*model, optim::adam(1e-4));
  return [=] {
    optimizer->zero_grad();
    backward(nn::mse_loss((*model)(x), y));
    if (update) optimizer->step();
  };
}

std::int64_t large(const LabOptions& options) {
  return std::int64_t{1} << (options.device.is_cpu() || options.quick ? 24 : 26);
}

std::int64_t pass_elements(const LabOptions& options) {
  return large(options) / (options.quick ? 16 : 1);
}

BandwidthLimit copy_limit(const LabOptions& options) {
  const std::int64_t n = large(options);
  if (options.device.is_cpu())
    return {plain_add(n, num_threads()), 12.0 * static_cast<double>(n), "plain loop of adds"};
  return {device_copy(options.device, 4 * n), 8.0 * static_cast<double>(n), "cuMemcpyDtoD"};
}

MultiplyAdds multiply_add_limit(const LabOptions& options) {
  return options.device.is_cpu() ? plain_multiply_adds(f32, num_threads())
                                 : device_multiply_adds(options.device, f32);
}

ProductRate product_rate(const LabOptions& options, std::int64_t n, DType dtype) {
  const MatmulPrecisionGuard precision(options.device.is_cpu() ? Precision::full : Precision::tf32);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const Options here{.dtype = dtype, .device = options.device};
  const Tensor a = rand({n, n}, here) - 0.5, b = rand({n, n}, here) - 0.5;
  const Timing timing =
      time(synchronized_batch(options.device, [&] { matmul(a, b); }), options.sampling());
  const auto size = static_cast<double>(n);
  return {2 * size * size * size / timing.median, timing.spread};
}

std::int64_t full_product(const LabOptions& options) {
  if (options.device.is_cpu()) return options.quick ? 512 : 1024;
  return options.quick ? 2048 : 4096;
}

Reading microseconds(std::string name, const Timing& timing) {
  return {
      .name = std::move(name), .value = timing.median * 1e6, .unit = "us", .spread = timing.spread};
}

}  // namespace lab
}  // namespace brrr::measure
