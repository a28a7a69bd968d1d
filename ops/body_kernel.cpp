#include "brrr/ops/body_kernel.h"

#include <algorithm>

#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

const BodySpec::Placed* placed(const BodySpec& spec, int input) {
  const auto found = std::ranges::find(spec.placed, input, &BodySpec::Placed::input);
  return found == spec.placed.end() ? nullptr : &*found;
}

}  // namespace

bool is_placed(const BodySpec& spec, int input) { return placed(spec, input) != nullptr; }

StridedSpace space_of(const BodySpec& spec, std::span<const Dims> strides, std::uint32_t mask) {
  StridedSpace space = space_of(spec.dims);
  const std::size_t inputs = spec.body.inputs.size();
  const auto add_outputs = [&] {
    for (const Dims& each : strides.subspan(inputs)) add_operand(space, spec.dims, each);
  };
  if (!spec.body.reduces()) add_outputs();
  for (std::size_t i = 0; i < inputs; ++i) {
    const BodySpec::Placed* const at = placed(spec, static_cast<int>(i));
    add_operand(space, spec.dims, at ? at->strides : strides[i]);
  }
  for (const Dims& each : spec.coordinates) add_operand(space, spec.dims, each);
  if (spec.body.reduces()) add_outputs();
  return choose_dims(space, mask);
}

Dims strides_of(const Tensor& tensor) {
  Dims strides(tensor.strides());
  for (int d = 0; d < tensor.rank(); ++d) {
    if (tensor.size(d) == 1) strides[d] = 0;
  }
  return strides;
}

StridedSpace BodyLayout::space(std::uint32_t mask) const {
  std::vector<Dims> strides;
  for (const Tensor* each : inputs) strides.push_back(strides_of(*each));
  for (const Tensor& each : outputs) strides.push_back(strides_of(each));
  return space_of(spec, strides, mask);
}

bool has_schedule([[maybe_unused]] Device device, [[maybe_unused]] const BodySpec& spec,
                  [[maybe_unused]] std::span<const Dims> strides) {
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::has_schedule(device, spec, strides);
#endif
  return true;
}

bool repeats_functions(Device device, const BodySpec& spec, std::span<const Dims> strides) {
  return device.is_cpu() && on_cpu::repeats_functions(spec, strides);
}

bool is_generated([[maybe_unused]] Device device, const BodySpec& spec,
                  [[maybe_unused]] std::span<const Dims> strides, [[maybe_unused]] bool aligned) {
  if (spec.body.contraction() < 0) return true;
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::is_generated(device, spec, strides, aligned);
#endif
  return false;
}

bool is_better_alone([[maybe_unused]] Device device, [[maybe_unused]] const BodySpec& spec,
                     [[maybe_unused]] std::span<const Dims> strides,
                     [[maybe_unused]] bool aligned) {
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::is_better_alone(device, spec, strides, aligned);
#endif
  return false;
}

bool has_tiles([[maybe_unused]] Device device) {
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::has_tiles(device);
#endif
  return false;
}

double share_of_device([[maybe_unused]] Device device, [[maybe_unused]] const BodySpec& spec,
                       [[maybe_unused]] std::span<const Dims> strides) {
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::share_of_device(device, spec, strides);
#endif
  return 1;
}

bool are_better_together([[maybe_unused]] Device device, [[maybe_unused]] const BodyStrides& one,
                         [[maybe_unused]] const BodyStrides& other) {
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::are_better_together(device, one, other);
#endif
  return false;
}

const void* BodyLayout::input(int number) const {
  const Tensor& tensor = *inputs[number];
  const BodySpec::Placed* at = placed(spec, number);
  // As an integer: the address may be outside of the tensor.
  const auto shift = at ? at->shift * static_cast<std::int64_t>(size_of(tensor.dtype())) : 0;
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(tensor.data()) +
                                       static_cast<std::uintptr_t>(shift));
}

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(Device device,
                                                           std::span<const BodyOperands> bodies) {
  if (bodies.empty()) return {};
  // Spaces and lists of arguments have room for what a body may have, so this comes first.
  for (const BodyOperands& each : bodies) {
    for (const BodySpec* spec = each.spec.get(); spec; spec = spec->next.get())
      jit::verify(spec->body);
  }
#if BRRR_HAS_CUDA
  if (device.is_cuda()) return on_cuda::make_body_kernels(bodies);
#endif
  if (!device.is_cpu()) fail("[fuse] has no kernels for {}", to_string(device));
  return on_cpu::make_body_kernels(bodies);
}

}  // namespace brrr
