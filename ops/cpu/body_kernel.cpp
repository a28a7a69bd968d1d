// Bodies on the CPU: generated functions of a range, split over the pool.
#include "brrr/ops/body_kernel.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>

#include "brrr/ops/cpu/body_runner.h"
#include "brrr/ops/cpu/body_walk.h"
#include "brrr/ops/cpu/tiles.h"
#include "brrr/ops/jit/cpu_compiler.h"
#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/out_of_range.h"
#include "brrr/tensor/tensor_impl.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::on_cpu {
namespace {

class CpuBodyKernel final : public BodyKernel {
 public:
  explicit CpuBodyKernel(const BodyOperands& of) : spec_(of.spec) {
    std::vector<Tensor> inputs = of.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      straightened_.push_back(is_transposed(i, of.inputs[i], of.outputs[0]));
      if (straightened_[i]) inputs[i] = make_tensor(inputs[i].dtype(), inputs[i].shape(), cpu);
    }
    std::vector<Dims> strides;
    for (const Tensor& each : inputs) strides.push_back(strides_of(each));
    for (const Tensor& each : of.outputs) strides.push_back(strides_of(each));
    layout_ = walk_of(*spec_, strides);
    grain_ = {rows_of(kShared), rows_of(kWoken)};
  }

  // Elements that are worth another thread, in rows and whole tiles of columns.
  static constexpr std::int64_t kShared = 4096, kWoken = 16384;
  std::int64_t rows_of(std::int64_t elements) const {
    constexpr std::int64_t kColumns = 64;
    const std::int64_t rows = std::max<std::int64_t>(1, elements / layout_.reduced.count());
    if (!layout_.walk.by_columns) return rows;
    const std::int64_t tile = layout_.walk.tile > 0 ? layout_.walk.tile : kColumns;
    return (rows + tile - 1) / tile * tile;
  }

  std::string render() {
    jit::Body body = spec_->body;
    body.name = jit::kKernelName;
    return source_ = jit::render_cpu(body, layout_.walk);
  }
  void set_function(void* function) { function_ = reinterpret_cast<jit::CpuFunction>(function); }
  void run_by(MakeBodyRunner make) { runner_ = make(spec_->body, layout_.reduced, layout_.order); }

  KernelFacts facts() const override { return {.source = source_}; }

  void run(const Tensor* const* inputs, const Tensor* outputs) override {
    const jit::Body& body = spec_->body;
    void* out[StridedSpace::kMaxOperands];
    const void* in[StridedSpace::kMaxOperands];
    for (std::size_t i = 0; i < body.outputs.size(); ++i) out[i] = outputs[i].data();
    const BodyLayout layout{*spec_, {inputs, body.inputs.size()}, {outputs, body.outputs.size()}};
    std::vector<Tensor> copies;  // allocates where an operand is transposed, nowhere else
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      in[i] = layout.input(static_cast<int>(i));
      if (!straightened_[i]) continue;
      copies.push_back(make_tensor(inputs[i]->dtype(), inputs[i]->shape(), cpu));
      copy_tensor(copies.back(), *inputs[i]);
      in[i] = copies.back().data();
    }
    jit::CpuArguments arguments;
    arguments.outputs = out;
    arguments.inputs = in;
    arguments.scalars = spec_->scalars.data();
    arguments.space = &layout_.space;
    arguments.reduced = &layout_.reduced;
    arguments.run = layout_.order.run;
    arguments.piece = layout_.order.piece;
    arguments.block = layout_.order.block;
    Faults faults;
    if (function_ && layout_.walk.splits) {
      run_split(arguments, faults);
    } else {
      parallel_for(layout_.space.count(), grain_, [&](std::int64_t begin, std::int64_t end) {
        runner_ ? runner_->run(arguments, begin, end) : call(arguments, begin, end, faults);
      });
    }
    if (faults.first.position >= 0) report(faults.first);
  }

 private:
  struct Faults {
    std::mutex mutex;
    jit::CpuFault first;
  };

  // Blocks of the one row, or of each tile of columns, then all of them together.
  void run_split(jit::CpuArguments& arguments, Faults& faults) const {
    const auto& values = spec_->body.values;
    const std::int64_t tiles = layout_.walk.by_columns
                                   ? (layout_.space.count() - 1) / layout_.walk.tile + 1
                                   : 1,
                       blocks = tiles * ((layout_.reduced.count() - 1) / layout_.order.block + 1);
    const auto reductions = std::count_if(values.begin(), values.end(), [](const auto& value) {
      return value.kind == jit::BodyValue::Kind::reduction;
    });
    const std::int64_t each = layout_.walk.by_columns ? layout_.walk.tile : 1;  // accumulators
    const Tensor parts = make_tensor(DType::i64, Dims{blocks * reductions * each}, cpu);
    arguments.parts = static_cast<std::uint64_t*>(parts.data());
    parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      call(arguments, begin, end, faults);
    });
    call(arguments, 0, 0, faults);
  }

  // The function for a range, whose fault is kept if none has a lower position.
  void call(jit::CpuArguments arguments, std::int64_t begin, std::int64_t end,
            Faults& faults) const {
    jit::CpuFault fault;
    arguments.fault = &fault;
    function_(arguments, begin, end);
    if (fault.position < 0) return;
    const std::lock_guard lock(faults.mutex);
    if (faults.first.position < 0 || fault.position < faults.first.position) faults.first = fault;
  }

  [[noreturn]] void report(const jit::CpuFault& fault) const {
    const char* name = spec_->body.checks[fault.check];
    switch (static_cast<jit::CpuFault::Kind>(fault.kind)) {
      case jit::CpuFault::index: index_out_of_range(name, fault.high, fault.value, fault.position);
      case jit::CpuFault::integer:
        value_out_of_range(name, fault.low, fault.high, fault.value, fault.position);
      default:
        value_out_of_range(name, std::bit_cast<double>(fault.low),
                           std::bit_cast<double>(fault.high), std::bit_cast<double>(fault.value),
                           fault.position);
    }
  }
  // Whether a large input is transposed relative to the output. Its elements would come from as
  // many cache lines: a copy in blocks, as eager makes it, costs less.
  bool is_transposed(std::size_t number, const Tensor& input, const Tensor& output) const {
    constexpr std::int64_t kLine = 16, kLarge = 1 << 14;  // elements
    const jit::Body& body = spec_->body;
    if (body.reduces() || !body.inputs[number].bounds.empty() ||
        jit::pieces::is_address(body, number) || input.numel() < kLarge)
      return false;
    const auto inner = [](const Tensor& tensor) {  // the dimension along which it is contiguous
      int dim = -1;
      for (int d = 0; d < tensor.rank(); ++d) {
        if (tensor.shape()[d] > 1 && tensor.strides()[d] == 1) dim = d;
      }
      return dim;
    };
    const int along = inner(output);
    if (along < 0 || inner(input) < 0 || input.strides()[along] < kLine || !output.is_contiguous())
      return false;
    for (int d = 0; d < input.rank(); ++d) {
      if (input.shape()[d] > 1 && input.strides()[d] == 0) return false;  // would be expanded
    }
    return true;
  }

  std::shared_ptr<const BodySpec> spec_;
  std::string source_;
  std::vector<bool> straightened_;  // inputs that are copied first
  BodyWalk layout_;
  Grain grain_ = 1;
  jit::CpuFunction function_ = nullptr;
  std::unique_ptr<BodyRunner> runner_;  // in place of a function
};

std::atomic<MakeBodyRunner> make_runner = nullptr;

}  // namespace

std::vector<std::unique_ptr<BodyKernel>> make_body_kernels(std::span<const BodyOperands> bodies) {
  std::vector<std::unique_ptr<BodyKernel>> kernels;
  std::vector<CpuBodyKernel*> made;
  std::vector<std::string> sources;
  for (const BodyOperands& each : bodies) {
    auto kernel = std::make_unique<CpuBodyKernel>(each);
    sources.push_back(kernel->render());
    made.push_back(kernel.get());
    kernels.push_back(std::move(kernel));
  }
  if (const MakeBodyRunner make = make_runner.load()) {
    for (CpuBodyKernel* kernel : made) kernel->run_by(make);
    return kernels;
  }
  const std::vector<void*> functions = jit::load_cpu_kernels(sources);
  for (std::size_t i = 0; i < made.size(); ++i) made[i]->set_function(functions[i]);
  return kernels;
}

void set_body_runners(MakeBodyRunner make) { make_runner = make; }
bool has_body_runners() { return make_runner.load() != nullptr; }

}  // namespace brrr::on_cpu
