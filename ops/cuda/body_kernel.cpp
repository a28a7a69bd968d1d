// Bodies on CUDA: scheduled by the layouts of their operands, as eager kernels are.
#include "brrr/ops/body_kernel.h"
#include "brrr/ops/cuda/contraction.h"

#include <algorithm>
#include <bit>

#include "brrr/ops/cuda/launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/tuning.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;

std::uint8_t element_size(const Tensor& t) { return static_cast<std::uint8_t>(size_of(t.dtype())); }

// The arguments of a kernel, or of the one that joins its parts.
struct Arguments {
  std::vector<void*> list;
  void add(void* argument) { list.push_back(argument); }
};

class CudaBodyKernel final : public BodyKernel {
 public:
  explicit CudaBodyKernel(std::shared_ptr<const BodySpec> spec) : spec_(std::move(spec)) {}

  void run(const Tensor* const* inputs, const Tensor* outputs) override {
    Operands operands{inputs, outputs, static_cast<int>(spec_->body.inputs.size()),
                      static_cast<int>(spec_->body.outputs.size())};
    if (spec_->body.contraction() >= 0) {
      run_contraction(*spec_, inputs, outputs);
    } else if (spec_->body.reduces()) {
      run_reduction(operands);
    } else if (!run_flat(operands)) {
      run_strided(operands);
    }
  }

  // Of a kernel in parts the larger numbers.
  KernelFacts facts() const override {
    KernelFacts facts{.source = loaded_.source};
    if (!loaded_.functions.empty()) cu::make_current(cu::device_state(loaded_.device.index));
    for (const CUfunction function : loaded_.functions) {
      if (!function) continue;  // its text was only collected
      int registers = 0, local_bytes = 0;
      BRRR_CUDA(cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
      BRRR_CUDA(cuFuncGetAttribute, &local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
      facts.registers = std::max(facts.registers, registers);
      facts.local_bytes = std::max(facts.local_bytes, local_bytes);
    }
    return facts;
  }

 private:
  struct Operands {
    const Tensor* const* inputs;
    const Tensor* outputs;
    int n_inputs, n_outputs;

    int count() const { return n_inputs + n_outputs; }
    const Tensor& output_first(int k) const {
      return k < n_outputs ? outputs[k] : *inputs[k - n_outputs];
    }
    const Tensor& input_first(int k) const {
      return k < n_inputs ? *inputs[k] : outputs[k - n_inputs];
    }
  };

  std::vector<CUfunction> load(Device device, const jit::Schedule& schedule) const {
    const jit::Body& body = spec_->body;
    const std::string join = body.name + "_join";
    std::vector<const char*> entries = {body.name.c_str()};
    if (schedule.join_lanes > 0) entries.push_back(join.c_str());
    loaded_.device = device;
    loaded_.source = jit::render_cuda(body, schedule);
    loaded_.functions = jit::load_kernels(device, entries, loaded_.source);
    return loaded_.functions;
  }

  void add_scalars(Arguments& arguments) const {
    for (const std::uint64_t& bits : spec_->scalars)
      arguments.add(const_cast<std::uint64_t*>(&bits));
  }
  static std::vector<void*> addresses(const Operands& of) {
    std::vector<void*> data;
    for (int k = 0; k < of.count(); ++k) data.push_back(of.output_first(k).data());
    return data;
  }

  // Where every operand is contiguous, or one element for all.
  bool run_flat(const Operands& of) const {
    const int64_t count = of.outputs[0].numel();
    std::uint8_t sizes[StridedSpace::kMaxOperands];
    std::uint32_t single = 0;
    int aligned = 16;
    for (int k = 0; k < of.count(); ++k) {
      const Tensor& t = of.output_first(k);
      sizes[k] = element_size(t);
      const auto strides = t.strides();
      const bool one = std::ranges::all_of(strides, [](int64_t s) { return s == 0; });
      if (one && k >= of.n_outputs && count > 1) {
        single |= 1u << k;
        continue;
      }
      if (!t.is_contiguous()) return false;
      const auto address = reinterpret_cast<std::uintptr_t>(t.data()) / sizes[k];
      aligned = std::min(aligned, 1 << std::min(4, std::countr_zero(address | 16)));
    }
    const jit::Schedule schedule =
        jit::flat_schedule(sizes, of.n_outputs, of.count(), single, aligned, count);
    std::vector<void*> data = addresses(of);
    Arguments arguments;
    for (void*& address : data) arguments.add(&address);
    add_scalars(arguments);
    int64_t elements = count;
    arguments.add(&elements);
    const Device device = of.outputs[0].device();
    const int64_t blocks =
        ceil_div(count, int64_t{schedule.threads} * schedule.unroll * schedule.width);
    launch_programmatic(load(device, schedule)[0], {static_cast<unsigned>(blocks)},
                        static_cast<unsigned>(schedule.threads), cu::current_stream(device),
                        arguments.list.data());
    return true;
  }

  void run_strided(const Operands& of) const {
    jit::PointwiseLayout layout;
    layout.outputs = of.n_outputs;
    const Tensor* operands[StridedSpace::kMaxOperands];
    for (int k = 0; k < of.count(); ++k) {
      operands[k] = &of.output_first(k);
      layout.data[k] = operands[k]->data();
      layout.sizes[k] = element_size(*operands[k]);
    }
    layout.space = space_of(*spec_, ~0u, {operands, static_cast<std::size_t>(of.count())});
    const jit::Schedule schedule = jit::pointwise_schedule(layout);
    jit::Geometry geometry;
    jit::fill(geometry, layout.space, schedule.width);
    std::vector<void*> data = addresses(of);
    Arguments arguments;
    for (void*& address : data) arguments.add(&address);
    add_scalars(arguments);
    arguments.add(&geometry);
    const Device device = of.outputs[0].device();
    launch_programmatic(
        load(device, schedule)[0], {static_cast<unsigned>(jit::blocks_of(schedule, layout.space))},
        static_cast<unsigned>(schedule.threads), cu::current_stream(device), arguments.list.data());
  }

  void run_reduction(const Operands& of) const {
    const Device device = of.outputs[0].device();
    const jit::Body& body = spec_->body;
    jit::ReductionLayout layout;
    layout.inputs = of.n_inputs;
    layout.passes = static_cast<int>(jit::pieces::passes_of(body).size());
    const Tensor* operands[StridedSpace::kMaxOperands];
    for (int k = 0; k < of.count(); ++k) {
      operands[k] = &of.input_first(k);
      layout.data[k] = operands[k]->data();
      layout.sizes[k] = element_size(*operands[k]);
    }
    const std::span all(operands, static_cast<std::size_t>(of.count()));
    layout.kept = space_of(*spec_, ~spec_->reduced, all);
    layout.reduced = space_of(*spec_, spec_->reduced, all);
    const jit::ReductionSchedule schedule =
        jit::reduction_schedule(layout, jit::multiprocessors_of(device));
    const bool by_columns = schedule.walk == jit::Walk::columns;
    jit::Geometry kept, reduced;
    jit::fill(kept, layout.kept, by_columns ? schedule.width : 1);
    jit::fill(reduced, layout.reduced, by_columns ? 1 : schedule.width);
    int64_t results = layout.kept.count(), elements = layout.reduced.count(), part = schedule.part;
    auto parts = static_cast<std::int32_t>(schedule.parts);
    Tensor scratch;
    void* partials = nullptr;
    if (parts > 1) {
      const auto bytes = static_cast<int64_t>(jit::partial_size(body)) * results * parts;
      scratch = make_tensor(boolean, Dims{bytes}, device);
      partials = scratch.data();
    }
    std::vector<void*> data = addresses(of);
    Arguments main, join;
    for (int k = 0; k < of.count(); ++k) {
      main.add(&data[static_cast<std::size_t>(k)]);
      if (k < of.n_outputs || jit::pieces::has_row_values(body))
        join.add(&data[static_cast<std::size_t>(k)]);
    }
    add_scalars(main);
    add_scalars(join);
    for (void* each : std::initializer_list<void*>{&partials, &kept, &reduced, &part, &elements})
      main.add(each);
    for (void* each : std::initializer_list<void*>{&partials, &kept, &parts, &elements})
      join.add(each);
    const std::vector<CUfunction> kernels = load(device, schedule);
    cu::CudaStream& stream = cu::current_stream(device);
    launch_programmatic(kernels[0],
                        {static_cast<unsigned>(schedule.blocks), static_cast<unsigned>(parts)},
                        static_cast<unsigned>(schedule.threads), stream, main.list.data());
    if (schedule.join_lanes == 0) return;
    const int64_t each = 256 / schedule.join_lanes;
    launch_programmatic(kernels[1], {static_cast<unsigned>(ceil_div(results, each))}, 256, stream,
                        join.list.data());
  }

  // What was loaded last, for facts().
  struct Loaded {
    Device device;
    std::string source;
    std::vector<CUfunction> functions;
  };

  std::shared_ptr<const BodySpec> spec_;
  mutable Loaded loaded_;
};

}  // namespace

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies) {
  std::vector<std::unique_ptr<BodyKernel>> kernels;
  for (const BodyOperands& each : bodies)
    kernels.push_back(std::make_unique<CudaBodyKernel>(each.spec));
  return kernels;
}

}  // namespace brrr::on_cuda
