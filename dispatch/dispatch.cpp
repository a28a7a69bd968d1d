#include "brrr/dispatch/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/overlap.h"
#include "brrr/tensor/runtime.h"

namespace brrr {

std::atomic<std::uint32_t> global_keys{0};

namespace {

bool inputs_agree_in_shape(const Call& call) {
  if (call.n_inputs == 0) return false;
  const TensorImpl& first = *TensorImpl::of(*call.inputs[0]);
  for (std::uint32_t i = 1; i < call.n_inputs; ++i) {
    if (!same_shape(first, *TensorImpl::of(*call.inputs[i]))) return false;
  }
  return true;
}

[[noreturn]] void wrong_output(const Call& call, const OutputSpec& spec, const Tensor& output) {
  fail("[{}] expected an output of {}{} to write to, got {}", op_info(call.op).name,
       name_of(spec.dtype), to_string(spec.shape), output.describe());
}

// The elements of an output must be distinct. The output may overlap an input only as the same
// view: otherwise the kernel would read elements that it has already overwritten.
void check_output_memory(const Call& call, const Tensor& output) {
  if (!output.is_contiguous() && may_overlap_itself(region_of(output))) {
    fail("[{}] expected an output whose elements are distinct, got {} with strides {}",
         op_info(call.op).name, output.describe(), to_string(output.strides()));
  }
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    const Tensor& input = call.input(static_cast<int>(i));
    if (TensorImpl::of(input) == TensorImpl::of(output) || !input.shares_storage_with(output) ||
        input.same_view_as(output))
      continue;
    if (may_overlap(region_of(input), region_of(output))) {
      fail("[{}] expected inputs that do not overlap the output, got {} and {} in one storage",
           op_info(call.op).name, input.describe(), output.describe());
    }
  }
}

[[gnu::noinline]] void check_disjoint_outputs(const Call& call, const Tensor& one,
                                              const Tensor& other) {
  if (one.shares_storage_with(other) && may_overlap(region_of(one), region_of(other))) {
    fail("[{}] expected outputs that do not overlap, got {} and {} in one storage",
         op_info(call.op).name, one.describe(), other.describe());
  }
}

template <class Make>
void make_outputs(const OpInfo& info, const Call& call, Tensor* outputs, Make make) {
  if (info.kind == OpKind::pointwise && inputs_agree_in_shape(call)) [[likely]] {
    const Tensor& like = call.input(0);
    const DType dtype = info.rule == DTypeRule::predicate ? boolean : call.dtype;
    if (!outputs[0].defined()) [[likely]] {
      outputs[0] = make(dtype, like.shape(), like.device());
      return;
    }
    if (same_shape(*TensorImpl::of(like), *TensorImpl::of(outputs[0])) &&
        outputs[0].dtype() == dtype) {
      check_output_memory(call, outputs[0]);
      return;
    }
  }
  OutputSpec specs[kMaxOutputs];
  info.infer(call, specs);
  if (info.n_outputs == 1 && !outputs[0].defined()) [[likely]] {
    outputs[0] = make(specs[0].dtype, specs[0].shape, specs[0].device);
    return;
  }
  for (int i = 0; i < info.n_outputs; ++i) {
    const OutputSpec& spec = specs[i];
    if (!outputs[i].defined()) {
      outputs[i] = make(spec.dtype, spec.shape, spec.device);
      continue;
    }
    if (outputs[i].dtype() != spec.dtype ||
        (!assigns(call) && !std::ranges::equal(outputs[i].shape(), spec.shape))) {
      wrong_output(call, spec, outputs[i]);
    }
    check_output_memory(call, outputs[i]);
    for (int other = 0; other < i; ++other)
      check_disjoint_outputs(call, outputs[other], outputs[i]);
  }
}

constexpr auto make_real = [](DType dtype, std::span<const std::int64_t> shape, Device device) {
  return make_tensor(dtype, shape, device);
};

void wrote(const OpInfo& info, const Call& call, Tensor* outputs) {
  if (!call.in_place) return;
  for (int i = 0; i < info.n_outputs; ++i) {
    if (Storage* storage = TensorImpl::of(outputs[i])->storage)
      storage->version.fetch_add(1, std::memory_order_relaxed);
  }
}

// A call on a CPU queue, whose thread runs the kernel later: keeps the call and its tensors.
// Records are reused, whichever thread returns them.
class QueuedCall final : public QueuedWork {
 public:
  static QueuedCall& take() {
    std::lock_guard lock(spare().mutex);
    QueuedWork* first = spare().first;
    if (!first) return *new QueuedCall;
    spare().first = first->next;
    return static_cast<QueuedCall&>(*first);
  }

  void set(KernelFn kernel, const char* name, const Call& call, const Tensor* outputs,
           int n_outputs) {
    kernel_ = kernel;
    name_ = name;
    composite_ = thread_context.composite;
    call_ = call;
    for (std::uint32_t i = 0; i < call.n_inputs; ++i) inputs_.push_back(*call.inputs[i]);
    for (const Tensor& input : inputs_) pointers_.push_back(&input);
    call_.inputs = pointers_.data();
    outputs_.assign(outputs, outputs + n_outputs);
  }
  void run() override {
    OpScope scope(name_);
    const CompositeScope composite(composite_);
    kernel_(call_, outputs_.data());
  }
  void finish() noexcept override {
    pointers_.clear();
    inputs_.clear();
    outputs_.clear();
    std::lock_guard lock(spare().mutex);
    next = std::exchange(spare().first, this);
  }

 private:
  struct Spare {
    std::mutex mutex;
    QueuedWork* first = nullptr;
  };
  static Spare& spare() {
    static Spare* all = new Spare;  // queues run until the process ends
    return *all;
  }

  QueuedCall() {
    inputs_.reserve(4);  // enough for nearly every op, so that a reused record rarely allocates
    pointers_.reserve(4);
    outputs_.reserve(kMaxOutputs);
  }

  KernelFn kernel_ = nullptr;
  const char *name_ = nullptr, *composite_ = nullptr;
  Call call_{Op{}, nullptr, 0};
  std::vector<Tensor> inputs_, outputs_;
  std::vector<const Tensor*> pointers_;
};

void enqueue(KernelFn kernel, const char* name, const Call& call, const Tensor* outputs,
             int n_outputs) {
  QueuedCall& queued = QueuedCall::take();
  try {
    queued.set(kernel, name, call, outputs, n_outputs);
  } catch (...) {
    queued.finish();
    throw;
  }
  current_cpu_queue()->enqueue(queued);
}

void run_cpu(Call& call, Tensor* outputs, std::uint32_t) {
  const OpInfo& info = op_info(call.op);
  OpScope scope(info.name);
  if (info.kind == OpKind::view) {
    outputs[0] = info.view(call);
    return;
  }
  make_outputs(info, call, outputs, make_real);
  if (current_cpu_queue()) [[unlikely]] {
    enqueue(info.cpu, info.name, call, outputs, info.n_outputs);
  } else {
    info.cpu(call, outputs);
  }
  wrote(info, call, outputs);
}

// Defers reuse of the tensor's block until the kernel has ended, if the block belongs to another
// stream than the kernel's.
void keep_for_this_stream(const Tensor& tensor) {
  Storage* storage = TensorImpl::of(tensor)->storage;
  if (!storage || !storage->stream) return;
  StreamState* current = thread_context.stream(storage->device);
  const bool elsewhere = current ? storage->stream != current : storage->stream->id != 0;
  if (elsewhere) [[unlikely]] {
    cuda_runtime().record_use(*storage,
                              current ? *current : *cuda_runtime().default_stream(storage->device));
  }
}

void run_cuda(Call& call, Tensor* outputs, std::uint32_t keys) {
  if (keys & bit(Key::cpu)) [[unlikely]]
    detail::no_single_backend(call, keys);
  const OpInfo& info = op_info(call.op);
  OpScope scope(info.name);
  require_one_device(call);
  if (info.kind == OpKind::view) {
    outputs[0] = info.view(call);
    return;
  }
  if (!info.cuda) fail("[{}] has no CUDA kernel: {}", info.name, cuda_runtime().why_none());
  make_outputs(info, call, outputs, make_real);
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) keep_for_this_stream(*call.inputs[i]);
  for (int i = 0; i < info.n_outputs; ++i) keep_for_this_stream(outputs[i]);
  info.cuda(call, outputs);
  wrote(info, call, outputs);
}

void run_meta(Call& call, Tensor* outputs, std::uint32_t) {
  const OpInfo& info = op_info(call.op);
  OpScope scope(info.name);
  require_one_device(call);
  if (info.kind == OpKind::view) {
    outputs[0] = info.view(call);
    return;
  }
  // Real memory cannot take the values of a tensor that has none; a trace passes placeholders.
  for (int i = 0; i < info.n_outputs; ++i) {
    if (outputs[i].defined() && !outputs[i].is_meta()) {
      fail("[{}] expected operands with values to write to {}, got a meta tensor", info.name,
           outputs[i].describe());
    }
  }
  make_outputs(info, call, outputs, make_meta_tensor);
}

void nothing_installed(Call& call, Tensor*, std::uint32_t keys) {
  detail::no_single_backend(call, keys);
}

}  // namespace

void require_one_device(const Call& call) {
  for (std::uint32_t i = 1; i < call.n_inputs; ++i) {
    if (call.inputs[i]->device() != call.inputs[0]->device()) [[unlikely]]
      detail::no_single_backend(call, kBackends);
  }
}

void prepare_outputs(const Call& call, Tensor* outputs, MakeTensor make) {
  make_outputs(op_info(call.op), call, outputs, make);
}

namespace detail {

void observe(Call& call, Tensor* outputs, std::uint32_t keys);  // in observe.cpp

constinit KeyFn key_functions[kKeys] = {run_cpu, run_cuda,          run_meta,
                                        observe, nothing_installed, nothing_installed};

void no_single_backend(const Call& call, std::uint32_t keys) {
  if ((keys & kBackends) == 0) fail("[{}] every device was excluded", op_info(call.op).name);
  std::string devices;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    devices += fmt::format("{}{}", i ? " and " : "", to_string(call.inputs[i]->device()));
  }
  fail("[{}] expected all tensors on one device, got {}", op_info(call.op).name, devices);
}

}  // namespace detail

void set_key_function(Key key, KeyFn function) {
  detail::key_functions[static_cast<int>(key)] = function;
}

}  // namespace brrr
