// The table that assigns functions to classes of the ledger. A test looks every row up in the
// library's symbols.
#include "brrr/measure/ledger.h"

namespace brrr::measure {
namespace {

using enum HostClass;

constexpr KnownName kNames[] = {
    {"brrr", dispatch},  // op functions and what they call, but for the rows below

    {"brrr::infer", shapes},
    {"brrr::views", shapes},
    {"brrr::make_outputs", shapes},
    {"brrr::check_output_memory", shapes},
    {"brrr::check_disjoint_outputs", shapes},
    {"brrr::broadcast_shapes", shapes},
    {"brrr::broadcast_strides", shapes},
    {"brrr::core::checked_numel", shapes},
    {"brrr::try_numel", shapes},
    {"brrr::core::contiguous_strides", shapes},
    {"brrr::is_contiguous", shapes},
    {"brrr::may_overlap", shapes},
    {"brrr::view_strides", shapes},
    {"brrr::choose_dims", shapes},
    {"brrr::wrap_dim", shapes},
    {"brrr::compute_dtype", shapes},
    {"brrr::accumulator_of", shapes},

    {"brrr::cpu_memory", allocation},
    {"brrr::new_storage", allocation},
    {"brrr::adopt_storage", allocation},
    {"brrr::release_cpu", allocation},
    {"brrr::allocate_slow", allocation},
    {"brrr::core::Storage", allocation},
    {"brrr::Pool", allocation},
    {"brrr::Tensor::destroy", allocation},
    {"brrr::Tensor::~Tensor", allocation},
    {"brrr::make_tensor", allocation},
    {"brrr::make_tensor_on", allocation},
    {"brrr::make_view", allocation},
    {"brrr::make_contiguous_view", allocation},

    {"brrr::autograd", autograd},
    {"brrr::rules", autograd},
    {"brrr::backward", autograd},
    {"brrr::grad", autograd},
    {"brrr::zero_grad", autograd},
    {"brrr::set_grad", autograd},
    {"brrr::detach", autograd},
    {"brrr::checkpoint", autograd},
    {"brrr::core::GradientGroup", autograd},

    {"brrr::on_cpu", kernels},
    {"brrr::copy_bytes", kernels},
    {"brrr::gather_bytes", kernels},

    {"brrr::graph", launch},
    {"brrr::Compiled", launch},
    {"brrr::core::CompiledStep", launch},
    {"brrr::jit", launch},

    {"brrr::synchronize", waiting},
    {"brrr::Stream::synchronize", waiting},
    {"brrr::Event::synchronize", waiting},
    {"brrr::CpuRuntime::synchronize", waiting},
    {"brrr::Queue::synchronize", waiting},
    {"brrr::core::run_chunks", waiting},  // between the chunks that this thread computes

    {"brrr::optim", optimizer},
    {"brrr::nn", optimizer},
    {"brrr::data", optimizer},

    // The loop around the sampled step, and the steps of the program brrr.
    {"brrr::measure", user},
    {"brrr::cli", user},

#if BRRR_HAS_CUDA
    {"brrr::on_cuda", launch},
    {"brrr::cu", launch},
    {"brrr::cu::Allocator", allocation},
    {"brrr::cu::CudaRuntime::allocate", allocation},
    {"brrr::cu::CudaRuntime::synchronize", waiting},
    {"brrr::cu::CudaRuntime::to_host", waiting},
    {"brrr::cu::CudaStream::synchronize", waiting},
    {"brrr::cu::CudaEvent::synchronize", waiting},
    {"brrr::cu::Staging", waiting},
#endif
};

}  // namespace

std::span<const KnownName> known_names() { return kNames; }

const char* name_of(HostClass each) {
  constexpr const char* kNames[] = {"kernels", "dispatch", "shapes",    "allocation", "autograd",
                                    "launch",  "waiting",  "optimizer", "user",       "other"};
  static_assert(std::size(kNames) == kHostClasses);
  return kNames[static_cast<std::size_t>(each)];
}

const char* description_of(HostClass each) {
  constexpr const char* kTexts[] = {
      "kernels on this thread",
      "op functions: dispatch keys, argument checks, observers",
      "shape and dtype rules, checks of outputs",
      "tensors, storage, allocators",
      "recording, engine, gradient accumulation",
      "argument packing and launches of kernels; replay",
      "for the device, for events, for threads of a kernel",
      "optimizers and modules",
      "the step's own code",
      "stacks without a known frame",
  };
  static_assert(std::size(kTexts) == kHostClasses);
  return kTexts[static_cast<std::size_t>(each)];
}

}  // namespace brrr::measure
