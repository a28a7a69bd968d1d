// The best rates and times of a device, for predictions and the cost model of fusion: measured by
// `brrr calibrate` and kept in a file per machine, or defaults from the device's properties.
//
// Times are integer picoseconds, so that decisions made by them are the same everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/cost.h>
#include <brrr/graph/step_time.h>
#include <brrr/ops/body_kernel.h>

namespace brrr::graph {

// The time of an amount of work (bytes, flops), interpolated linearly between measured points.
// Below the first point it is constant, beyond the last it is proportional to the work; zero work
// takes no time.
struct Curve {
  struct Point {
    std::int64_t work = 0, ps = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };
  std::vector<Point> points;  // by rising work

  static Curve of_rate(std::int64_t work_per_second);
  std::int64_t time_of(std::int64_t work) const;
  // Work per second at the last point.
  std::int64_t rate() const;

  friend bool operator==(const Curve&, const Curve&) = default;
};

// The type in which a product's factors are multiplied. It determines the hardware units.
enum class ProductType : std::uint8_t { f32, f64, tf32, f16, bf16 };
inline constexpr std::array<const char*, 5> kProductTypes = {"f32", "f64", "tf32", "f16", "bf16"};
inline constexpr std::array<const char*, 3> kFactorOrders = {"along", "mixed", "across"};
// The times of products by flops, for each order of their factors.
using ProductCurves = std::array<Curve, kFactorOrders.size()>;
inline ProductCurves in_any_order(const Curve& curve) { return {curve, curve, curve}; }

// Times of the host for eager calls on tensors of few elements.
struct EagerTimes {
  std::int64_t call_ps = 0;     // with its kernel; on CUDA with the launch
  std::int64_t product_ps = 0;  // the same of a matrix product; on the CPU call_ps
  std::int64_t library_ps = 0;  // the same of a matrix product by cuBLASLt; on the CPU call_ps
  std::int64_t view_ps = 0;
  std::int64_t record_ps = 0;  // what autograd adds: a node of the tape and of the backward pass
  std::int64_t queued_ps = 0;  // device time of a kernel in a full stream; on the CPU call_ps

  friend bool operator==(const EagerTimes&, const EagerTimes&) = default;
};

struct Ceilings {
  // The machine, software and date of the measurements; an empty date: there are none.
  std::string machine, software, date;
  std::int64_t clock_mhz = 0;       // after a load of multiply-adds; 0: unknown
  std::string why_defaults;         // no file, or a file that cannot be used
  std::vector<std::string> doubts;  // what disturbed the measurements, a line each

  EagerTimes eager;
  std::int64_t replay_ps = 0;  // the fixed time of a replay, without its nodes
  std::int64_t node_ps = 0;    // a node of a replay
  Curve moved;                 // by bytes read plus written; the last point has cold caches
  std::int64_t f32_flops = 0, f64_flops = 0;  // a second, by multiply-adds of plain units
  std::int64_t functions = 0;                 // exp, tanh and the like, a second
  // Random numbers, and elements of 16 bits that generated kernels read or write, a second. 0:
  // they take no time of their own.
  std::int64_t draws = 0, conversions = 0;
  std::array<ProductCurves, kProductTypes.size()> products;

  bool calibrated() const { return !date.empty(); }
  const Curve& product(ProductType type, FactorOrder order = FactorOrder::along) const {
    return products[static_cast<std::size_t>(type)][static_cast<std::size_t>(order)];
  }
  // These ceilings with the bandwidth of a working set of this size: kernels of a step evict each
  // other's operands from the caches.
  Ceilings for_step_over(std::int64_t bytes) const;
  // The same, where a kernel moves its bytes no faster than one of its size was measured to.
  Ceilings for_kernels_over(std::int64_t bytes) const;
  // These ceilings with the rates of large kernels for kernels of all sizes.
  Ceilings at_full_rates() const;

  friend bool operator==(const Ceilings&, const Ceilings&) = default;
};

// --- The cost model ---

// The amounts of work that a kernel's time depends on.
struct Work : core::Cost {
  std::int64_t product_flops = 0;  // part of `flops`
  std::int64_t functions = 0;      // exp, tanh and the like
  std::int64_t draws = 0;          // random numbers
  std::int64_t conversions = 0;    // elements of 16 bits that are read or written
  ProductType type = ProductType::f32;
  FactorOrder factors = FactorOrder::along;  // of the first product
  bool wide = false;                         // computes in f64

  Work& operator+=(const Work& other);
};
Work work_of(const core::Call& call, std::span<const Tensor> outputs,
             const BodySpec* body = nullptr);
// The math functions in a call of a pointwise op or reduction; the random numbers of a draw.
std::int64_t functions_of(const core::Call& call, std::int64_t elements);
std::int64_t draws_of(const core::Call& call, std::int64_t elements);
// How this thread computes products of factors of this dtype on the device.
ProductType product_type(DType dtype, Device device);
// The order of the factors of a product a b, by the sizes and strides of both.
FactorOrder order_of_factors(std::span<const std::int64_t> a_shape,
                             std::span<const std::int64_t> a_strides,
                             std::span<const std::int64_t> b_shape,
                             std::span<const std::int64_t> b_strides);

// The time of all work except products: arithmetic, functions, random numbers and conversions.
std::int64_t time_of_instructions(const Work& work, const Ceilings& ceilings);
// The larger of moving bytes and computing, after `overhead_ps`.
core::KernelTime time_of(const Work& work, const Ceilings& ceilings, std::int64_t overhead_ps);

// Adds a kernel. `full`: the ceilings at_full_rates.
void add_to(core::Roofline& roofline, const Work& work, const Ceilings& ceilings,
            const Ceilings& full);

// --- Where ceilings come from ---

// The ceilings in the machine's file, or defaults with the reason. A process reads the file once.
std::shared_ptr<const Ceilings> ceilings_of(Device device);
// Ceilings estimated from the properties of the device.
Ceilings default_ceilings(Device device);
// Replaces the machine's file; throws if it cannot be written.
void write_ceilings(const Ceilings& ceilings, Device device);
// The path of this machine's file; empty when the disk cache is off.
std::string ceilings_path(Device device);
std::string require_ceilings_path(Device device);  // throws where there is none
// The content of the file.
std::string to_json(const Ceilings& ceilings);

// The machine that measurements are valid for, "AMD EPYC, 2 threads", and its libraries.
std::string machine_of(Device device);
std::string software_of(Device device);
std::string processor_model();

// The parts that need CUDA's headers (graph/cuda_ceilings.cpp).
Ceilings default_cuda_ceilings(Device device);
std::string cuda_machine(Device device);
std::string cuda_software();

}  // namespace brrr::graph
