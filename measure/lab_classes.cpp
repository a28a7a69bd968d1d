// Experiments on classes of ops. The calls of an eager step are recorded and repeated class by
// class, so that each class can be timed on its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/observe.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/transformer.h"
#include "brrr/ops/functions.h"

namespace brrr::measure::lab {
namespace {

constexpr int kClasses = 3;
enum OpClass : std::size_t { contraction, normalization, elementwise };
constexpr std::array<const char*, kClasses> kNames = {"products", "normalization", "element-wise"};

// Whether x has one value for each row of the result, like the result of a reduction over rows. A
// single number for all rows does not count.
bool is_statistic(const Tensor& x, const Tensor& result) {
  if (x.rank() == 0 || x.rank() != result.rank() || result.shape().back() == 1) return false;
  if (x.shape().back() != 1 && x.strides().back() != 0) return false;
  for (int d = 0; d + 1 < x.rank(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (x.shape()[i] > 1 && x.strides()[i] != 0) return true;
  }
  return false;
}

// Normalization is reductions, and calls that combine elements with a row's statistic.
OpClass class_of(const Call& call, std::span<const Tensor> outputs) {
  const OpInfo& info = op_info(call.op);
  if (info.algebra == Algebra::contraction) return contraction;
  if (info.kind == OpKind::reduction || info.kind == OpKind::arg_reduction) return normalization;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    if (is_statistic(call.input(static_cast<int>(i)), outputs[0])) return normalization;
  }
  return elementwise;
}

// A call that can be repeated: owns its operands and the tensors that it writes in place.
class RecordedCall {
 public:
  RecordedCall(const Call& call, std::span<const Tensor> outputs) : call_(call) {
    for (std::uint32_t i = 0; i < call.n_inputs; ++i)
      inputs_.push_back(call.input(static_cast<int>(i)));
    if (call.in_place) outputs_.assign(outputs.begin(), outputs.end());
  }

  void make() const {
    std::vector<const Tensor*> inputs;
    for (const Tensor& x : inputs_) inputs.push_back(&x);
    Call call = call_;
    call.inputs = inputs.data();
    Tensor outputs[kMaxOutputs];
    std::ranges::copy(outputs_, outputs);
    dispatch(call, outputs);
  }

 private:
  Call call_;
  std::vector<Tensor> inputs_, outputs_;
};

struct ClassOfOps {
  std::vector<RecordedCall> calls;
  Cost cost;
  Timing timing;

  double rate() const { return static_cast<double>(cost.flops) / timing.median; }
  double bandwidth() const { return static_cast<double>(cost.bytes) / timing.median; }
  double intensity() const {
    return static_cast<double>(cost.flops) / static_cast<double>(cost.bytes);
  }
};
using Classes = std::array<ClassOfOps, kClasses>;

class Recorder : public Observer {
 public:
  void after(const Call& call, std::span<const Tensor> outputs) override {
    if (!does_work(call)) return;
    const std::lock_guard lock(mutex_);
    ClassOfOps& one = classes[class_of(call, outputs)];
    one.calls.emplace_back(call, outputs);
    one.cost += cost_of(call, outputs);
  }

  Classes classes;

 private:
  std::mutex mutex_;
};

// Runs the step once, then times its calls by class, and the step itself.
struct Profile {
  Classes classes;
  Timing step;

  double seconds() const {
    double sum = 0;
    for (const ClassOfOps& each : classes) sum += each.timing.median;
    return sum;
  }
  double flops() const {
    double sum = 0;
    for (const ClassOfOps& each : classes) sum += static_cast<double>(each.cost.flops);
    return sum;
  }
  double time_share(OpClass which) const { return 100 * classes[which].timing.median / seconds(); }
  double flop_share(OpClass which) const {
    return 100 * static_cast<double>(classes[which].cost.flops) / flops();
  }
  double spread(OpClass which) const { return classes[which].timing.spread; }
};
Profile profile(const LabOptions& options, const Step& step) {
  for (int i = 0; i < 2; ++i) step();
  Recorder recorder;
  {
    const Observing observing(recorder);
    step();
  }
  Profile result{.classes = std::move(recorder.classes), .step = {}};
  std::vector<Batch> batches = {synchronized_batch(options.device, step)};
  for (const ClassOfOps& one : result.classes) {
    batches.push_back(synchronized_batch(options.device, [&one] {
      const NoGrad no_grad;
      for (const RecordedCall& call : one.calls) call.make();
    }));
  }
  const std::vector<Timing> timings = time_all(batches, options.sampling());
  result.step = timings[0];
  for (std::size_t i = 0; i < kClasses; ++i) result.classes[i].timing = timings[i + 1];
  return result;
}

// Forward and backward of an encoder layer of BERT: base on a CPU, large on CUDA.
Profile bert_layer(const LabOptions& options) {
  const MatmulPrecisionGuard precision(options.device.is_cpu() ? Precision::full : Precision::tf32);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const bool small = options.device.is_cpu();
  const std::int64_t width = small ? 768 : 1024, length = small ? 128 : 512;
  const std::int64_t batch = options.quick ? 1 : small ? 4 : 8;
  const auto layer = std::make_shared<nn::TransformerBlock>(
      width, small ? 12 : 16, Options{.dtype = f32, .device = options.device}, /*causal=*/false,
      /*dropout=*/0.1);
  return profile(options,
                 training_step(options.device, layer, {batch, length, width}, /*update=*/false));
}

std::string rates_text(const Profile& p) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kClasses; ++i) {
    const ClassOfOps& one = p.classes[i];
    parts.push_back(fmt::format("{} {} GFLOP/s and {} GB/s", kNames[i],
                                number_text(one.rate() * 1e-9),
                                number_text(one.bandwidth() * 1e-9)));
  }
  return fmt::format(
      "achieved: {}, {}, {}; the calls take {:.0f} us separately and the step {:.0f}", parts[0],
      parts[1], parts[2], p.seconds() * 1e6, p.step.median * 1e6);
}

// Why products take more or less of the time than the article's: this device computes more or
// fewer flops in the time in which other calls move a byte.
std::string balance_text(const Profile& p) {
  double bytes = 0, seconds = 0;
  for (const OpClass which : {normalization, elementwise}) {
    bytes += static_cast<double>(p.classes[which].cost.bytes);
    seconds += p.classes[which].timing.median;
  }
  const ClassOfOps& products = p.classes[contraction];
  return fmt::format(
      "the layer's products compute {} flops for each byte that other calls move, and this device "
      "computes {} in the time of a byte, at {} GFLOP/s and {} GB/s: products take {} times as "
      "long as all other calls",
      number_text(static_cast<double>(products.cost.flops) / bytes),
      number_text(products.rate() / (bytes / seconds)), number_text(products.rate() * 1e-9),
      number_text(bytes / seconds * 1e-9), number_text(products.timing.median / seconds));
}

// The rate of a class that is bound by bandwidth: its flops a byte times the bytes a second.
std::string rate_text(const Profile& p, OpClass which) {
  const ClassOfOps& one = p.classes[which];
  return fmt::format("{}: {} flops a byte at {} GB/s are {} GFLOP/s", kNames[which],
                     number_text(one.intensity()), number_text(one.bandwidth() * 1e-9),
                     number_text(one.rate() * 1e-9));
}

}  // namespace

Finding operator_classes(const LabOptions& options) {
  constexpr double kFlops[] = {99.80, 0.17, 0.03}, kTimes[] = {61.0, 25.5, 13.5};
  const Profile p = bert_layer(options);
  Finding finding;
  for (std::size_t i = 0; i < kClasses; ++i) {
    const auto which = static_cast<OpClass>(i);
    finding.readings.push_back({.name = fmt::format("{}, of the flops", kNames[i]),
                                .value = p.flop_share(which),
                                .unit = "%",
                                .article = kFlops[i]});
    finding.readings.push_back({.name = fmt::format("{}, of the run time", kNames[i]),
                                .value = p.time_share(which),
                                .unit = "%",
                                .article = kTimes[i],
                                .spread = p.spread(which)});
  }
  // The article's shares of the run time, within a factor of two.
  finding.readings[0].claim = Interval{99, 100};
  finding.readings[0].miss =
      fmt::format("{} of the layer's {} Gflop are outside of products",
                  number_text((100 - p.flop_share(contraction)) / 100 * p.flops() * 1e-9),
                  number_text(p.flops() * 1e-9));
  for (std::size_t i = 0; i < kClasses; ++i) {
    Reading& time = finding.readings[2 * i + 1];
    time.claim = Interval{kTimes[i] / 2, std::min(2 * kTimes[i], 100.0)};
    time.miss = balance_text(p);
  }
  finding.why = rates_text(p);
  return finding;
}

Finding achieved_flops(const LabOptions& options) {
  const Profile p = bert_layer(options);
  const auto ratio = [&](OpClass which, double article) {
    return Reading{.name = fmt::format("products over {}", kNames[which]),
                   .value = p.classes[contraction].rate() / p.classes[which].rate(),
                   .article = article,
                   .claim = Interval{article / 5, article * 5},
                   .spread = p.spread(which),
                   .miss = rate_text(p, which)};
  };
  Finding finding;
  finding.readings = {ratio(normalization, 250), ratio(elementwise, 700)};
  // The order: element-wise ops achieve less than normalization.
  finding.readings.push_back(
      {.name = "normalization over element-wise",
       .value = p.classes[normalization].rate() / p.classes[elementwise].rate(),
       .article = 700.0 / 250,
       .claim = Interval::at_least(1),
       .spread = std::max(p.spread(normalization), p.spread(elementwise)),
       .miss = fmt::format("normalization moves {} GB/s, element-wise ops {}",
                           number_text(p.classes[normalization].bandwidth() * 1e-9),
                           number_text(p.classes[elementwise].bandwidth() * 1e-9))});
  finding.why = rates_text(p);
  return finding;
}

Finding share_of_peak(const LabOptions& options) {
  const ProductRate peak = product_rate(options, full_product(options), f32);
  const MatmulPrecisionGuard precision(options.device.is_cpu() ? Precision::full : Precision::tf32);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  Finding finding;
  std::vector<std::string> numbers;
  const std::int64_t last = full_product(options);
  for (std::int64_t width = last / 16; width <= last; width *= 4) {
    options.progress(fmt::format("width {}", width));
    const auto model = std::make_shared<nn::MLP>(std::vector<std::int64_t>(5, width),
                                                 Options{.dtype = f32, .device = options.device});
    const Profile p = profile(options, training_step(options.device, model, {width, width}));
    const double share = 100 * p.flops() / p.step.median / peak.rate;
    const double bound = 100 * p.classes[contraction].timing.median / p.step.median;
    const auto percent = [&](const char* what, double value) {
      return Reading{.name = fmt::format("width {}: {}", width, what),
                     .value = value,
                     .unit = "%",
                     .spread = p.step.spread};
    };
    finding.readings.push_back(percent("achieved share of peak", share));
    finding.readings.push_back(percent("time in products", bound));
    finding.readings.push_back(percent("time in products minus achieved share", bound - share));
    // A step that achieves a share of the peak is in its products for that share at least, but for
    // noise. Products as large as the peak's take no longer than at it.
    constexpr double kNoise = 5, kMostBelowPeak = 20;
    finding.readings.back().claim =
        width == last ? Interval{-kNoise, kMostBelowPeak} : Interval::at_least(-kNoise);
    finding.readings.back().spread = std::max(finding.readings.back().spread, peak.spread);
    finding.readings.back().miss =
        fmt::format("of the step of width {} products take {:.1f} us and all {:.1f}", width,
                    p.classes[contraction].timing.median * 1e6, p.step.median * 1e6);
    numbers.push_back(fmt::format("of {} they are {:.0f} % of the flops at {:.0f} % of peak", width,
                                  p.flop_share(contraction),
                                  100 * p.classes[contraction].rate() / peak.rate));
  }
  finding.why = fmt::format(
      "peak is a square product of {} at {} GFLOP/s; products that run below it take longer than "
      "the achieved share, flops outside of products count only in the share: {}",
      last, number_text(peak.rate * 1e-9), fmt::join(numbers, ", "));
  return finding;
}

}  // namespace brrr::measure::lab
