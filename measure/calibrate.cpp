// The readings of a calibration. Kernels are timed as nodes of replayed chains, since predictions
// are about replays.
#include "brrr/measure/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/compile.h"
#include "brrr/measure/eager_calls.h"
#include "brrr/measure/limits.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/step_cost.h"
#include "brrr/nn/activation.h"
#include "brrr/nn/linear.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/nn/parameters.h"
#include "brrr/nn/sequential.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

using graph::Curve;
using graph::ProductType;
using std::int64_t;

int64_t picoseconds(double seconds) { return std::llround(seconds * 1e12); }

class Calibrator {
 public:
  explicit Calibrator(const BenchOptions& options) : options_(options) {
    result_.device = options.device;
    result_.complete = !options.quick;
  }

  Calibration run();

 private:
  Options here(DType dtype) const { return {.dtype = dtype, .device = options_.device}; }
  bool on_cpu() const { return options_.device.is_cpu(); }

  Timing read(const Batch& batch, double warm_seconds = 0);
  Timing read_host(const Batch& batch);
  Timing calmest(const std::function<Timing(const Sampling&)>& measured, double warm_seconds);
  void add(std::string name, double value, const char* unit, double spread);
  // A replay of a step without arguments.
  template <class Step>
  Timing replay(Step&& step, double warm_seconds = 0);

  void read_calls();
  int64_t read_products_called(std::span<const int64_t> sizes);
  void read_recorded_calls();
  void read_nodes();
  void read_moves();
  double read_plain(const char* name, DType dtype);
  void read_functions();
  void read_draws();
  void read_products(ProductType type, DType dtype);
  std::vector<int64_t> product_sizes(ProductType type) const;

  const BenchOptions& options_;
  Calibration result_;
};

// The reading with the least spread of up to kTries: another process that disturbs one reading has
// often ended by the next.
Timing Calibrator::calmest(const std::function<Timing(const Sampling&)>& measured,
                           double warm_seconds) {
  Sampling sampling = options_.sampling();
  if (!options_.quick) {
    sampling.samples = 15;
    sampling.budget_seconds = 0.2;
    sampling.warm_seconds = warm_seconds;
  }
  Timing best = measured(sampling);
  constexpr int kTries = 6;
  for (int again = 1; again < kTries && best.disturbed() && !options_.quick; ++again) {
    const Timing timing = measured(sampling);
    if (timing.spread < best.spread) best = timing;
  }
  // Other work makes samples longer, never shorter.
  if (best.disturbed()) best.median = best.least;
  return best;
}

Timing Calibrator::read(const Batch& batch, double warm_seconds) {
  return calmest([&](const Sampling& sampling) { return time(batch, sampling); }, warm_seconds);
}

// What the host takes, at the speed that it had when small calls were read: the speed of a shared
// host changes by a third within a tenth of a second, and predictions are relative to small calls.
Timing Calibrator::read_host(const Batch& batch) {
  const Batch calls = small_calls(options_.device);
  Timing timing =
      calmest([&](const Sampling& sampling) { return time_relative(batch, calls, sampling); }, 0);
  const double unit = static_cast<double>(result_.ceilings.eager.call_ps) * 1e-12;
  for (double* const each : {&timing.median, &timing.least, &timing.most}) *each *= unit;
  return timing;
}

void Calibrator::add(std::string name, double value, const char* unit, double spread) {
  result_.readings.push_back({.name = std::move(name),
                              .device = options_.device,
                              .value = value,
                              .unit = unit,
                              .limit = {},
                              .limit_name = {},
                              .spread = spread});
}

template <class Step>
Timing Calibrator::replay(Step&& step, double warm_seconds) {
  auto compiled = compile(std::forward<Step>(step));
  for (int i = 0; i < 2; ++i) compiled();  // the second one is captured
  return read(synchronized_batch(options_.device, [&] { compiled(); }), warm_seconds);
}

// Reads the host time of eager calls, and on CUDA the device time of a kernel in a full stream.
void Calibrator::read_calls() {
  options_.progress("calls");
  graph::EagerTimes& eager = result_.ceilings.eager;
  const auto keep = [&](const char* name, const Timing& timing, int calls = 1) {
    add(name, timing.median / calls * 1e9, "ns", timing.spread);
    return picoseconds(timing.median / calls);
  };
  eager.call_ps = keep("eager call", read(small_calls(options_.device)));
  const Tensor a = ones({256}, here(f32));
  const Dims square{16, 16};
  eager.view_ps = keep("eager view", read_host(host_batch([&] { view(a, square); })));
  eager.product_ps = eager.library_ps = eager.queued_ps = eager.call_ps;
  if (on_cpu()) return;
  eager.product_ps = read_products_called(std::array<int64_t, 2>{64, 256});
  eager.library_ps = read_products_called(std::array<int64_t, 1>{options_.quick ? 16 : 1024});
  constexpr int kKernels = 50, kSamples = 15;
  const std::optional<Timing> queued = time_queued(
      options_.device,
      [&] {
        for (int i = 0; i < kKernels; ++i) brrr::add(a, a);
      },
      5, kSamples);
  if (!queued) fail("[calibrate] expected a stream that queues {} kernels", 5 * kKernels);
  eager.queued_ps = keep("eager kernel in a full stream", *queued, kKernels);
}

// The factors of a product x w, transposed so that they have this order.
std::pair<Tensor, Tensor> in_order(FactorOrder order, const Tensor& x, const Tensor& w) {
  return {order == FactorOrder::across ? transpose(x, 0, 1) : x,
          order == FactorOrder::along ? transpose(w, 0, 1) : w};
}

// Reads the host time of an eager product, averaged over types and orders of factors. Kernels of
// brrr's own, for small products, take little longer to launch than other kernels; a call of
// cuBLASLt takes two to four times as long.
int64_t Calibrator::read_products_called(std::span<const int64_t> sizes) {
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const MatmulPrecisionGuard precision(Precision::tf32);
  double sum = 0;
  int count = 0;
  for (const DType dtype : {f32, bf16}) {
    for (const int64_t n : sizes) {
      const Tensor x = rand({n, n}, here(dtype));
      for (std::size_t order = 0; order < graph::kFactorOrders.size(); ++order) {
        const auto [a, b] = in_order(static_cast<FactorOrder>(order), x, x);
        const Timing timing =
            read_host(enqueued_batch(options_.device, [a = a, b = b] { matmul(a, b); }));
        add(fmt::format("eager product {0}x{0}x{0} {1}, {2}", n, dtype == f32 ? "tf32" : "bf16",
                        graph::kFactorOrders[order]),
            timing.median * 1e9, "ns", timing.spread);
        sum += timing.median;
        ++count;
      }
    }
  }
  return picoseconds(sum / count);
}

// Reads the overhead of autograd: a training step of tiny layers has many calls and little to
// compute. Its time minus that of its calls is autograd's.
void Calibrator::read_recorded_calls() {
  options_.progress("recorded calls");
  const std::int64_t width = on_cpu() || options_.quick ? 1 : 64;
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const MatmulPrecisionGuard precision(on_cpu() ? Precision::full : Precision::tf32);
  nn::Sequential model;
  for (int layer = 0; layer < 16; ++layer) {
    model.add<nn::Linear>(width, width);
    model.add<nn::Function>(gelu_tanh);
  }
  model.to(options_.device);
  nn::Parameters parameters(model);
  optim::Optimizer optimizer(parameters, optim::adam(1e-3));
  const Tensor x = ones({width, width}, here(f32)), y = zeros({width, width}, here(f32));
  const auto step = [&] {
    optimizer.zero_grad();
    backward(nn::mse_loss(model(x), y));
    optimizer.step();
  };
  step();
  const EagerCalls calls = cost_of_step(options_.device, step).eager;
  const Timing timing = read_host(synchronized_batch(options_.device, step));
  graph::EagerTimes& eager = result_.ceilings.eager;
  eager.record_ps = 0;
  const std::int64_t others = calls.ps(eager);
  eager.record_ps = std::max<std::int64_t>(0, picoseconds(timing.median) - others) /
                    std::max<std::int64_t>(calls.recorded, 1);
  add("autograd, for a recorded call", static_cast<double>(eager.record_ps) * 1e-3, "ns",
      timing.spread);
}

void Calibrator::read_nodes() {
  options_.progress("nodes");
  constexpr int kNodes = 200;
  const auto chain = [x = ones({on_cpu() ? 1 : 256}, here(f32))](int nodes) {
    return [x, nodes] {
      Tensor y = x;
      for (int i = 0; i < nodes; ++i) y = y + 1.0;
      return y;
    };
  };
  const Timing one = replay(chain(1)), many = replay(chain(kNodes));
  const double node = std::max(0.0, many.median - one.median) / (kNodes - 1);
  result_.ceilings.node_ps = picoseconds(node);
  result_.ceilings.replay_ps = picoseconds(std::max(0.0, one.median - node));
  add("replayed node", node * 1e9, "ns", many.spread);
  add("replay, beside its nodes", std::max(0.0, one.median - node) * 1e9, "ns", one.spread);
}

// Reads bandwidths: in-place sums of two tensors by size, from caches to memory; then with cold
// caches a sum on the CPU, a copy on CUDA.
void Calibrator::read_moves() {
  Curve& curve = result_.ceilings.moved;
  const auto add_point = [&](int64_t bytes, double seconds, double spread, const char* what) {
    const int64_t least = curve.points.empty() ? 0 : curve.points.back().ps;
    curve.points.push_back({bytes, std::max(least, picoseconds(seconds))});
    add(fmt::format("{} of {} KiB", what, bytes / 1024),
        static_cast<double>(bytes) / std::max(seconds, 1e-12) * 1e-9, "GB/s", spread);
  };
  const double node = static_cast<double>(result_.ceilings.node_ps) * 1e-12;
  const int first = on_cpu() ? 10 : 14, last = options_.quick ? first : 22;
  for (int log = first; log <= last; log += 2) {
    const int64_t elements = int64_t{1} << log;
    const int nodes = elements <= 1 << 18 ? 32 : 4;
    options_.progress(fmt::format("moving {} KiB", 12 * elements / 1024));
    const Tensor a = full({elements}, 1e-6, here(f32));
    Tensor y = zeros({elements}, here(f32));
    const Timing timing = replay([a, y, nodes]() mutable {
      for (int i = 0; i < nodes; ++i) add_(y, a);
    });
    add_point(12 * elements, std::max(timing.median / nodes - node, 1e-12), timing.spread, "sums");
  }
  options_.progress("copy");
  const int64_t elements = int64_t{1} << (options_.quick ? 16 : on_cpu() ? 24 : 27);
  const Batch batch =
      on_cpu() ? plain_add(elements, num_threads()) : device_copy(options_.device, 4 * elements);
  const Timing timing = read(batch);
  add_point((on_cpu() ? 12 : 8) * elements, timing.median, timing.spread, "copy");
}

double Calibrator::read_plain(const char* name, DType dtype) {
  options_.progress(name);
  const MultiplyAdds work = on_cpu() ? plain_multiply_adds(dtype, num_threads())
                                     : device_multiply_adds(options_.device, dtype);
  // An idle processor takes a while to raise its clock, and a GPU at its power limit to recover.
  const Timing timing = read(work.batch, 0.3);
  const double rate = work.flops / timing.median;
  add(name, rate * 1e-9, "GFLOP/s", timing.spread);
  return rate;
}

// Reads the rate of logistic functions. On CUDA the ops are fused; one by one they would be bound
// by memory.
void Calibrator::read_functions() {
  options_.progress("functions");
  constexpr int kOps = 32;
  const int64_t elements = int64_t{1} << (options_.quick ? 10 : on_cpu() ? 15 : 22);
  Tensor y = full({elements}, 0.5, here(f32));
  auto step = compile(
      [y]() mutable {
        Tensor z = y;
        for (int i = 0; i < kOps; ++i) z = sigmoid(z);
        copy_(y, z);
      },
      {.mode = on_cpu() ? Mode::graph : Mode::fused});
  for (int i = 0; i < 2; ++i) step();
  const Timing timing = read(synchronized_batch(options_.device, [&] { step(); }));
  const double rate = kOps * static_cast<double>(elements) / timing.median;
  result_.ceilings.functions = std::llround(rate);
  add("functions", rate * 1e-9, "G/s", timing.spread);
}

// Reads the rate of random numbers by sums of uniform draws, which fused kernels keep in registers.
void Calibrator::read_draws() {
  options_.progress("random numbers");
  constexpr int kOps = 16;
  const int64_t elements = int64_t{1} << (options_.quick ? 10 : on_cpu() ? 15 : 22);
  Tensor y = zeros({elements}, here(f32));
  auto step = compile(
      [y, this]() mutable {
        Tensor z = y;
        for (int i = 0; i < kOps; ++i) z = z + rand(y.shape(), here(f32));
        copy_(y, z * 0.01);
      },
      {.mode = on_cpu() ? Mode::graph : Mode::fused});
  for (int i = 0; i < 2; ++i) step();
  const Timing timing = read(synchronized_batch(options_.device, [&] { step(); }));
  const double rate = kOps * static_cast<double>(elements) / timing.median;
  result_.ceilings.draws = std::llround(rate);
  add("random numbers", rate * 1e-9, "G/s", timing.spread);
}

std::vector<int64_t> Calibrator::product_sizes(ProductType type) const {
  if (options_.quick) return {16};
  if (on_cpu()) return {16, 32, 64, 128, 256, 512};
  const bool plain = type == ProductType::f32 || type == ProductType::f64;
  return {64, 256, 1024, plain ? 2048 : 4096};
}

// Reads the rate of square products in chains, one chain for each order of the factors. Each
// product has its own factor, as layers do, so that most factors are not in near caches.
void Calibrator::read_products(ProductType type, DType dtype) {
  const char* const name = graph::kProductTypes[static_cast<std::size_t>(type)];
  const MatmulPrecisionGuard precision(type == ProductType::tf32 ? Precision::tf32
                                                                 : Precision::full);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const double node = static_cast<double>(result_.ceilings.node_ps) * 1e-12;
  graph::ProductCurves& curves = result_.ceilings.products[static_cast<std::size_t>(type)];
  const std::vector<int64_t> sizes = product_sizes(type);
  for (const int64_t n : sizes) {
    options_.progress(fmt::format("products of {0}x{0}x{0} {1}", n, name));
    constexpr int64_t kWeights = 8 << 20;  // bytes, all of them
    const int64_t bytes = n * n * static_cast<int64_t>(size_of(dtype));
    const int products = static_cast<int>(std::clamp<int64_t>(kWeights / bytes, 6, 96));
    // Of variance 1 / n, so that products keep their size.
    const double scale = std::sqrt(12.0 / static_cast<double>(n));
    const Tensor x = rand({n, n}, here(dtype));
    std::vector<Tensor> w;
    for (int i = 0; i < products; ++i) w.push_back((rand({n, n}, here(dtype)) - 0.5) * scale);
    for (std::size_t order = 0; order < curves.size(); ++order) {
      // At the power limit a GPU's clock falls within a fraction of a second.
      const double warm_seconds = on_cpu() || n < sizes.back() || order > 0 ? 0 : 0.3;
      const Timing timing = replay(
          [x, w, order = static_cast<FactorOrder>(order)] {
            Tensor y = x;
            for (const Tensor& each : w) {
              const auto [a, b] = in_order(order, y, each);
              y = matmul(a, b);
            }
            return sum(y);  // a small result: a replay on CUDA copies it
          },
          warm_seconds);
      const double seconds = std::max((timing.median - node) / products - node, 1e-12);
      Curve& curve = curves[order];
      const int64_t flops = 2 * n * n * n,
                    least = curve.points.empty() ? 0 : curve.points.back().ps;
      curve.points.push_back({flops, std::max(least, picoseconds(seconds))});
      add(fmt::format("product {0}x{0}x{0} {1}, {2}", n, name, graph::kFactorOrders[order]),
          static_cast<double>(flops) / seconds * 1e-9, "GFLOP/s", timing.spread);
    }
  }
}

Calibration Calibrator::run() {
  const double start = host_seconds();
  manual_seed(options_.seed);
  graph::Ceilings& c = result_.ceilings;
  c.machine = graph::machine_of(options_.device);
  c.software = graph::software_of(options_.device);
  c.date = utc_now();
  if (!on_cpu()) result_.gpu = gpu_state(options_.device);
  result_.first_rate = read_plain("multiply-adds f32", f32);
  c.f32_flops = std::llround(result_.first_rate);
  c.f64_flops = std::llround(read_plain("multiply-adds f64", f64));
  read_calls();
  read_recorded_calls();
  read_nodes();
  read_moves();
  read_functions();
  read_draws();
  read_products(ProductType::f32, f32);
  read_products(ProductType::f16, f16);
  read_products(ProductType::bf16, bf16);
  if (!on_cpu()) read_products(ProductType::tf32, f32);
  read_products(ProductType::f64, f64);
  if (on_cpu())
    c.products[static_cast<std::size_t>(ProductType::tf32)] =
        c.products[static_cast<std::size_t>(ProductType::f32)];
  result_.last_rate = read_plain("multiply-adds f32, again", f32);
  if (on_cpu()) {
    c.clock_mhz = processor_mhz();
  } else {
    // Read right after multiply-adds, as in the probe of ceilings_drift.
    result_.gpu = worse_of(*result_.gpu, gpu_state(options_.device));
    c.clock_mhz = result_.gpu->clock_mhz;
  }
  result_.seconds = host_seconds() - start;
  c.doubts = disturbances(result_);
  return std::move(result_);
}

}  // namespace

Calibration calibrate(const BenchOptions& options) { return Calibrator(options).run(); }

std::vector<std::string> disturbances(const Calibration& calibration) {
  constexpr double kDrop = 0.10;
  std::vector<std::string> lines;
  if (!calibration.complete) lines.emplace_back("sizes were small and samples few");
  for (const Result& reading : calibration.readings) {
    if (!reading.disturbed()) continue;
    lines.push_back(
        fmt::format("{}: samples spread by {:.0f} %", reading.name, 100 * reading.spread));
  }
  const double first = calibration.first_rate, last = calibration.last_rate;
  if (last < (1 - kDrop) * first || first < (1 - kDrop) * last) {
    lines.push_back(fmt::format("the clock moved: {:.4g} GFLOP/s at first, {:.4g} at the end",
                                first * 1e-9, last * 1e-9));
  }
  if (!calibration.gpu) return lines;
  for (std::string& line : disturbances(*calibration.gpu)) lines.push_back(std::move(line));
  return lines;
}

CeilingsProbe probe_ceilings(Device device) {
  const MultiplyAdds work =
      device.is_cpu() ? plain_multiply_adds(f32, num_threads()) : device_multiply_adds(device, f32);
  // As in a calibration: a GPU that was at its power limit takes a while to recover its clock.
  const Sampling sampling{.samples = 9,
                          .sample_seconds = 1e-3,
                          .budget_seconds = 0.01,
                          .warm_seconds = device.is_cpu() ? 2e-3 : 0.3};
  CeilingsProbe now{.flops = work.flops / time(work.batch, sampling).least};
  if (device.is_cuda()) now.clock_mhz = gpu_state(device).clock_mhz;
  return now;
}

std::vector<std::string> drift_of(const graph::Ceilings& ceilings, const CeilingsProbe& now) {
  constexpr double kRates = 0.15, kClocks = 0.10;
  if (!ceilings.calibrated()) return {};
  const auto differs = [](double then, double now, double most) {
    return then > 0 && now > 0 && std::abs(now / then - 1) > most;
  };
  std::vector<std::string> lines;
  const double flops = static_cast<double>(ceilings.f32_flops);
  if (differs(flops, now.flops, kRates)) {
    lines.push_back(fmt::format(
        "ceilings measured at {} GFLOP/s of multiply-adds on {}, now {}: brrr calibrate",
        number_text(flops * 1e-9), ceilings.date, number_text(now.flops * 1e-9)));
  }
  if (differs(static_cast<double>(ceilings.clock_mhz), static_cast<double>(now.clock_mhz),
              kClocks)) {
    lines.push_back(
        fmt::format("ceilings measured at a clock of {} MHz on {}, now {}: brrr calibrate",
                    ceilings.clock_mhz, ceilings.date, now.clock_mhz));
  }
  return lines;
}

std::vector<std::string> ceilings_drift(Device device) {
  const auto ceilings = graph::ceilings_of(device);
  if (!ceilings->calibrated()) return {};
  std::vector<std::string> lines = drift_of(*ceilings, probe_ceilings(device));
  if (!ceilings->doubts.empty()) {
    lines.push_back(fmt::format("ceilings measured on {} were disturbed: {}", ceilings->date,
                                fmt::join(ceilings->doubts, "; ")));
  }
  return lines;
}

bool is_to_be_kept(const Calibration& calibration) {
  if (!calibration.complete) return false;
  const auto known = graph::ceilings_of(calibration.device);
  return calibration.ceilings.doubts.empty() || !known->calibrated() || !known->doubts.empty();
}

}  // namespace brrr::measure
