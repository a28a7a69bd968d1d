// Bodies on the CPU: generated functions of a range, split over the pool.
#include "brrr/ops/body_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/cpu_compiler.h"
#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

class CpuBodyKernel final : public BodyKernel {
 public:
  explicit CpuBodyKernel(const BodyOperands& of) : spec_(of.spec) {
    const jit::Body& body = spec_->body;
    std::vector<const Tensor*> inputs;
    for (const Tensor& each : of.inputs) inputs.push_back(&each);
    const BodyLayout layout{*spec_, inputs, of.outputs};
    space_ = layout.space(~spec_->reduced);
    reduced_ = layout.space(spec_->reduced);
    sort_dims(space_);
    coalesce(space_);
    if (spec_->order.empty()) {
      coalesce(reduced_);
      if (body.reduces()) order_ = jit::cpu_order(space_, reduced_, lead());
    } else {
      order_rows();
    }
    walk_ = jit::cpu_walk(body, space_, reduced_, order_);
    // A thread takes as many elements as are worth waking it, and whole tiles of columns.
    constexpr std::int64_t kGrain = 16384, kColumns = 64;
    grain_ = std::max<std::int64_t>(1, kGrain / reduced_.count());
    if (walk_.by_columns) {
      const std::int64_t tile = walk_.tile > 0 ? walk_.tile : kColumns;
      grain_ = (grain_ + tile - 1) / tile * tile;
    }
  }

  std::string render(const std::string& name) {
    jit::Body body = spec_->body;
    name_ = body.name = name;
    return source_ = jit::render_cpu(body, walk_);
  }
  void load(std::string_view source) {
    function_ = reinterpret_cast<jit::CpuFunction>(jit::load_cpu_function(name_.c_str(), source));
  }

  KernelFacts facts() const override { return {.source = source_}; }

  void run(const Tensor* const* inputs, const Tensor* outputs) override {
    const jit::Body& body = spec_->body;
    void* out[StridedSpace::kMaxOperands];
    const void* in[StridedSpace::kMaxOperands];
    for (std::size_t i = 0; i < body.outputs.size(); ++i) out[i] = outputs[i].data();
    const BodyLayout layout{*spec_, {inputs, body.inputs.size()}, {outputs, body.outputs.size()}};
    for (std::size_t i = 0; i < body.inputs.size(); ++i) in[i] = layout.input(static_cast<int>(i));
    jit::CpuArguments arguments;
    arguments.outputs = out;
    arguments.inputs = in;
    arguments.scalars = spec_->scalars.data();
    arguments.space = &space_;
    arguments.reduced = &reduced_;
    arguments.run = order_.run;
    arguments.piece = order_.piece;
    arguments.block = order_.block;
    parallel_for(space_.count(), grain_,
                 [&](std::int64_t begin, std::int64_t end) { function_(arguments, begin, end); });
  }

 private:
  // Elements of a row are combined in the order that eager has for the reduced tensor.
  void order_rows() {
    StridedSpace kept, reduced;
    kept.operands = reduced.operands = 1;
    for (int d = 0; d < spec_->dims.size(); ++d) {
      StridedSpace& space = spec_->reduced >> d & 1 ? reduced : kept;
      space.stride[0][space.rank] = spec_->order[d];
      space.add_dim(spec_->dims[d]);
    }
    // The strides of all operands follow those that order the dimensions.
    for (int k = 0; k < reduced_.operands; ++k)
      std::ranges::copy(reduced_.stride[k], reduced.stride[k + 1]);
    reduced.operands = reduced_.operands + 1;
    sort_dims(reduced);
    for (int k = 0; k < reduced_.operands; ++k)
      std::ranges::copy(reduced.stride[k + 1], reduced_.stride[k]);
    std::ranges::copy(reduced.size, reduced_.size);
    coalesce(reduced_);
    reduced.operands = 1;
    sort_dims(kept);
    coalesce(kept);
    coalesce(reduced);
    order_ = jit::cpu_order(kept, reduced, 0);
  }

  // The first input that has an element for each of the space.
  int lead() const {
    const auto& inputs = spec_->body.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].scope == jit::Body::Scope::element) return static_cast<int>(i);
    }
    return 0;
  }

  std::shared_ptr<const BodySpec> spec_;
  std::string name_, source_;
  StridedSpace space_, reduced_;
  jit::CpuOrder order_;
  jit::CpuWalk walk_;
  std::int64_t grain_ = 1;
  jit::CpuFunction function_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies) {
  std::vector<std::unique_ptr<BodyKernel>> kernels;
  std::vector<CpuBodyKernel*> made;
  std::string source;
  for (const BodyOperands& each : bodies) {
    auto kernel = std::make_unique<CpuBodyKernel>(each);
    source += kernel->render(fmt::format("{}_{}", each.spec->body.name, made.size()));
    made.push_back(kernel.get());
    kernels.push_back(std::move(kernel));
  }
  for (CpuBodyKernel* kernel : made) kernel->load(source);
  return kernels;
}

}  // namespace brrr::on_cpu
