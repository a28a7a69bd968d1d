// Default ceilings of a GPU, from the properties that the driver reports.
#include <fmt/format.h>

#include "brrr/graph/ceilings.h"
#include "brrr/tensor/cuda_runtime.h"

namespace brrr::graph {

std::string cuda_machine(Device device) {
  const cu::DeviceState& state = cu::device_state(device.index);
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors", state.name, state.major,
                     state.minor, state.multiprocessors);
}

std::string cuda_software() {
  return fmt::format(
      "driver for CUDA {}, NVRTC {}, cuBLASLt {}", cu::driver_version(), cu::nvrtc_version(),
      cu::open_library(cu::Library::cublaslt).empty() ? BRRR_CUDA_TRY(cublasLtGetVersion) : 0);
}

Ceilings default_cuda_ceilings(Device device) {
  using std::int64_t;
  const cu::DeviceState& state = cu::device_state(device.index);
  const auto attribute = [&](CUdevice_attribute which, int64_t otherwise) {
    const int value = state.attribute(which);
    return value > 0 ? value : otherwise;
  };
  const int64_t khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1'500'000);
  const int64_t memory_khz = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2'500'000);
  const int64_t bus_bits = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120);
  // FLOPs per cycle and multiprocessor; for tensor cores in bf16. Kernels reach part of these.
  const bool is_hopper = state.major >= 9;
  const int64_t plain = state.major == 8 && state.minor == 0 ? 128 : 256;
  const int64_t tensor = is_hopper ? 4096 : state.minor == 0 ? 2048 : 1024;
  const int64_t cycles = khz * 1000 * state.multiprocessors;

  Ceilings c;
  c.eager = {.call_ps = 2'300'000,
             .product_ps = 2'500'000,
             .library_ps = 6'000'000,
             .view_ps = 50'000,
             .record_ps = 400'000,
             .queued_ps = 1'300'000};
  c.replay_ps = 6'000'000;
  c.node_ps = 900'000;
  c.moved = Curve::of_rate(2 * memory_khz * 1000 * bus_bits / 8 * 7 / 8);
  c.f32_flops = cycles * plain * 7 / 8;
  c.f64_flops = c.f32_flops / 2;
  c.functions = cycles * 16 / 2;  // 16 special function units; half for the surrounding arithmetic
  const auto product = [&](ProductType type, int64_t flops_per_second) {
    // The latency of the smallest product: a chain of a few loads.
    constexpr int64_t kLeast = 1'500'000;
    c.products[static_cast<std::size_t>(type)] =
        in_any_order({{{0, kLeast}, {flops_per_second, 1'000'000'000'000}}});
  };
  product(ProductType::f32, c.f32_flops);
  product(ProductType::f64, c.f64_flops);
  product(ProductType::tf32, cycles * tensor / 3);
  product(ProductType::f16, cycles * tensor * 2 / 3);
  product(ProductType::bf16, cycles * tensor * 2 / 3);
  return c;
}

}  // namespace brrr::graph
