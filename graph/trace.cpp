#include "brrr/graph/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/graph/flow.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/stream_state.h"

namespace brrr::graph {
namespace {

// The trace of this thread; null outside of one.
Trace* current() { return static_cast<Trace*>(thread_context.trace_listener); }

// The storage of a traced tensor has no memory: its context word holds the trace's serial number
// and the buffer's index.
void release_placeholder(Storage&) noexcept {}
bool is_placeholder(const Storage* storage) {
  return storage && storage->release == release_placeholder;
}
void* identity(std::uint32_t serial, int buffer) {
  return reinterpret_cast<void*>(std::uintptr_t{serial} << 32 | static_cast<std::uint32_t>(buffer));
}
std::uint32_t serial_of(const Storage* storage) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(storage->context) >> 32);
}
int buffer_in(const Storage* storage) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(storage->context) & 0xffffffffu);
}

std::uint32_t next_serial() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

// A traced tensor was used on a thread that traces nothing, or in another trace.
[[noreturn]] void refuse_stale(const char* op, const Tensor& x) {
  throw StaleTensor(
      fmt::format("[{}] expected a tensor with values, got {} of a step that was traced, which has "
                  "none: return it from the step, or write to a tensor from outside with copy_",
                  op, x.describe()),
      CallSite::here());
}

void require_ordering_of_trace(const char* what) {
  if (current())
    current()->on_host_access(what, "it orders work or needs it done, and a trace does none");
}

// The bytes from the first element to the end of the last.
std::size_t extent_bytes(const Tensor& x) {
  if (x.numel() == 0) return 0;
  return static_cast<std::size_t>(extent_of(region_of(x)).high -
                                  x.storage_offset() *
                                      static_cast<std::int64_t>(size_of(x.dtype())));
}

}  // namespace

Trace::Trace(std::string name, std::span<const Tensor> arguments)
    : name_(std::move(name)), serial_(next_serial()) {
  [[maybe_unused]] static const bool installed = (set_key_function(Key::trace, record), true);
  if (current()) fail("[compile] expected a thread that traces no other step");
  for (auto& devices : thread_context.streams) {
    streams_.insert(streams_.end(), std::begin(devices), std::end(devices));
  }
  for (const Tensor& argument : arguments) {
    arguments_.push_back(argument);
    const Extent extent = extent_of(region_of(argument));
    const auto size = static_cast<std::int64_t>(size_of(argument.dtype()));
    if (argument.numel() > 0 && extent.low < argument.storage_offset() * size) {
      fail("[{}] expected an argument without negative strides, got {} with {}", name_,
           argument.describe(), to_string(Dims(argument.strides())));
    }
    const Tensor whole =
        make(argument.dtype(), argument.shape(), argument.device(), Buffer::Kind::input);
    Buffer& buffer = graph_.buffers.back();
    buffer.bytes = extent_bytes(argument);
    buffer.input = static_cast<int>(inputs_.size());
    buffer.misalignment = misalignment_of(argument);
    inputs_.push_back(make_view(whole, argument.shape(), argument.strides()));
  }
  journal_.emplace();
  random_.emplace();
  thread_context.trace_listener = this;
  thread_context.refuse_ordering = require_ordering_of_trace;
  key_.emplace(bit(Key::trace));
}

Trace::~Trace() {
  key_.reset();
  thread_context.trace_listener = nullptr;
  thread_context.refuse_ordering = nullptr;
  // The traced writes were not executed.
  for (const auto& [storage, writes] : writes_)
    storage->version.fetch_sub(writes, std::memory_order_relaxed);
  for (Storage* storage : held_) {
    storage->replay_refs.fetch_sub(kReferences, std::memory_order_acq_rel);
    storage->drop();
  }
}

bool Trace::on_this_thread() { return current() != nullptr; }

std::string Trace::refusal(const char* op, const std::string& why) const {
  return fmt::format("[{}] cannot be part of the compiled function \"{}\": {} (at {})", op, name_,
                     why, describe(CallSite::here()));
}

void Trace::refuse(const char* op, const std::string& why) const { fail("{}", refusal(op, why)); }

void Trace::on_host_access(const char* op, const char* why) { refuse(op, why); }

void Trace::on_host_values(const char* op, const Tensor& made) {
  graph_.host_values.emplace_back(fmt::format("{} {}", op, made.describe()), CallSite::here());
}

// If the function sets a setting before it reads it, the entry does not depend on the caller's
// value.
void Trace::on_setting_read(const Setting& setting, const std::string& name) {
  if (std::ranges::find(set_here_, SettingState::of(setting)) != set_here_.end()) return;
  if (std::ranges::find(graph_.settings, SettingState::of(setting), &SettingRead::state) ==
      graph_.settings.end())
    graph_.settings.push_back({SettingState::of(setting), setting.value(), name});
}

void Trace::on_setting_changed(const Setting& setting) {
  if (std::ranges::find(graph_.settings, SettingState::of(setting), &SettingRead::state) ==
      graph_.settings.end())
    set_here_.push_back(SettingState::of(setting));
}

void Trace::on_module_enter(const std::string& module) {
  const auto [known, is_new] =
      module_numbers_.try_emplace(module, static_cast<int>(graph_.modules.size()));
  modules_.push_back(known->second);
  if (is_new) graph_.modules.push_back(module);
}

void Trace::on_module_exit() { modules_.pop_back(); }

void Trace::on_tensor_named(const Tensor& x, const std::string& name) {
  const Extent extent = extent_of(region_of(x));
  names_.try_emplace({TensorImpl::of(x)->storage, extent.low, extent.high}, name);
}

bool Trace::is_made_here(const Tensor& x) const {
  const Storage* storage = TensorImpl::of(x)->storage;
  return is_placeholder(storage) && serial_of(storage) == serial_;
}

// Why a mark of a tensor that the step does not make is refused.
std::string Trace::refusal_of_mark(const char* function, const Tensor& x) const {
  return refusal(function, fmt::format("expected tensors that the step makes{}, got {}",
                                       latest_values(), x.describe()));
}

std::string Trace::latest_values() const {
  constexpr std::size_t kMost = 6;
  std::vector<std::string> values;
  std::vector<CallSite> sites;
  for (std::size_t i = graph_.nodes.size(); i-- > 0 && values.size() < kMost;) {
    const Node& node = graph_.nodes[i];
    if (node.outputs.empty()) continue;
    values.push_back(
        fmt::format("{} = {}", describe(graph_, node.outputs[0]), op_info(node.call.op).name));
    sites.push_back(node.site);
  }
  const std::vector<std::string> places = describe(sites);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += fmt::format(" (at {})", places[i]);
  return values.empty() ? "" : fmt::format(" (the latest are {})", fmt::join(values, ", "));
}

void Trace::require_fused(const Tensor& a, const Tensor& b) {
  Trace* const trace = current();
  if (!trace) return;
  for (const Tensor* x : {&a, &b}) {
    if (!trace->is_made_here(*x)) fail("{}", trace->refusal_of_mark("require_fused", *x));
  }
  trace->graph_.required.push_back({trace->value_of(a), trace->value_of(b),
                                    static_cast<int>(trace->graph_.nodes.size()),
                                    CallSite::here()});
}

void Trace::mark_for_remat(const Tensor& x, bool recomputed) {
  Trace* const trace = current();
  // Ignores marks during the recomputation of a checkpoint, which were recorded in its first run.
  if (!trace || thread_context.recomputation != 0) return;
  if (!trace->is_made_here(x)) {
    std::string& refused = trace->graph_.refused_mark;
    if (refused.empty())
      refused = trace->refusal_of_mark(recomputed ? "remat::recompute" : "remat::save", x);
    return;
  }
  trace->graph_.marks.push_back({trace->value_of(x), recomputed, CallSite::here()});
}

void Trace::mark_for_remat(std::string_view name, bool recomputed) {
  Trace* const trace = current();
  if (!trace || thread_context.recomputation != 0) return;
  trace->graph_.named_marks.push_back({std::string(name), recomputed, CallSite::here()});
}

Tensor Trace::make(DType dtype, std::span<const std::int64_t> shape, Device device,
                   Buffer::Kind kind) {
  const Tensor shaped = make_meta_tensor(dtype, shape, device);  // checks the shape
  const std::size_t bytes = shaped.bytes();
  Storage* storage = adopt_storage(device, nullptr, bytes, release_placeholder,
                                   identity(serial_, static_cast<int>(graph_.buffers.size())));
  graph_.buffers.push_back({.kind = kind, .device = device, .bytes = bytes, .captured = {}});
  const Tensor made = make_tensor_on(storage, dtype, shape, shaped.strides(), 0);
  TensorImpl::of(made)->set_word(dtype, device, made.rank(), true, true);
  TensorImpl::of(made)->add_keys(TensorWord::kTraced);
  return made;
}

void Trace::record(Call& call, Tensor* outputs, std::uint32_t) {
  if (!current()) {
    const char* name = op_info(call.op).name;
    for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
      if (call.inputs[i]->is_traced()) refuse_stale(name, *call.inputs[i]);
    }
    refuse_stale(name, outputs[0]);
  }
  current()->note(call, outputs);
}

void Trace::require_known(const Call& call, const Tensor& x) const {
  const Storage* storage = TensorImpl::of(x)->storage;
  if (is_placeholder(storage)) {
    if (serial_of(storage) != serial_) refuse_stale(op_info(call.op).name, x);
  } else if (!storage) {
    refuse(op_info(call.op).name, fmt::format("{} has no memory (meta)", x.describe()));
  }
}

void Trace::require_order(const Call& call) const {
  auto known = streams_.begin();
  for (auto& devices : thread_context.streams) {
    for (StreamState* stream : devices) {
      if (stream != *known++) {
        refuse(
            op_info(call.op).name,
            "it is called on another stream than the step; independent calls of a replay run side "
            "by side without streams");
      }
    }
  }
}

int Trace::buffer_of(const Tensor& x) {
  Storage* const storage = TensorImpl::of(x)->storage;
  if (is_placeholder(storage)) return buffer_in(storage);
  const auto [found, is_new] =
      captured_.try_emplace(storage, static_cast<int>(graph_.buffers.size()));
  if (is_new) {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (TensorImpl::of(arguments_[i])->storage == storage && storage->bytes > 0) {
        refuse("compile",
               fmt::format("argument {} shares memory with {}, which the step captured; use the "
                           "argument, or leave it out",
                           i, x.describe()));
      }
    }
    graph_.buffers.push_back({.kind = Buffer::Kind::captured,
                              .device = x.device(),
                              .bytes = storage->bytes,
                              .captured = detach(x),
                              .replaced = storage->replaced.load(std::memory_order_relaxed)});
    storage->retain();
    storage->replay_refs.fetch_add(kReferences, std::memory_order_acq_rel);
    held_.push_back(storage);
  }
  graph_.buffers[found->second].requires_grad |= requires_grad(x);
  return found->second;
}

Value Trace::value_of(const Tensor& x) {
  return {buffer_of(x), x.dtype(), Dims(x.shape()), Dims(x.strides()), x.storage_offset()};
}

// A call of a gradient rule gets the site and module of its forward call: the last call made before
// the tape recorded the node that is being differentiated.
Origin Trace::origin_of_call() const {
  const bool backward = thread_context.backward_runs > 0;
  const Role role = backward ? Role::backward : went_backward_ ? Role::update : Role::forward;
  const auto next = std::ranges::lower_bound(sequences_, thread_context.differentiated);
  if (backward && next != sequences_.begin()) {
    const Node& forward = graph_.nodes[next - sequences_.begin() - 1];
    Origin origin = forward;
    origin.role = role;
    origin.composite = thread_context.composite;
    origin.gradient_of = forward.composite ? forward.composite : op_info(forward.call.op).name;
    return origin;
  }
  return {role, CallSite::here(), thread_context.composite,
          modules_.empty() ? -1 : modules_.back()};
}

void Trace::note(Call& call, Tensor* outputs) {
  const OpInfo& info = op_info(call.op);
  const OpScope scope(info.name);
  require_order(call);
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) require_known(call, *call.inputs[i]);
  require_one_device(call);
  if (info.kind == OpKind::view) {
    outputs[0] = info.view(call);
    ++graph_.calls.views;
    return;
  }
  for (int i = 0; i < info.n_outputs; ++i) {
    if (outputs[i].defined()) require_known(call, outputs[i]);
  }
  prepare_outputs(call, outputs,
                  [](DType dtype, std::span<const std::int64_t> shape, Device device) {
                    return current()->make(dtype, shape, device, Buffer::Kind::temporary);
                  });
  if (graph_.nodes.empty()) graph_.device = outputs[0].device();
  if (outputs[0].device() != graph_.device) {
    refuse(info.name, fmt::format("it runs on {}, and the step on {}; a step has one device",
                                  to_string(outputs[0].device()), to_string(graph_.device)));
  }
  went_backward_ |= thread_context.backward_runs > 0;
  Node node(call, origin_of_call());
  sequences_.push_back(thread_context.last_sequence);
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    node.inputs.push_back(value_of(*call.inputs[i]));
  }
  for (int i = 0; i < info.n_outputs; ++i) node.outputs.push_back(value_of(outputs[i]));
  node.intended_constants = thread_context.constants_are_intended;
  node.recomputation = thread_context.recomputation;
  node.number = static_cast<int>(graph_.nodes.size());
  graph_.nodes.push_back(std::move(node));
  if (!call.in_place) return;
  for (int i = 0; i < info.n_outputs; ++i) {
    Storage* storage = TensorImpl::of(outputs[i])->storage;
    storage->version.fetch_add(1, std::memory_order_relaxed);
    if (is_placeholder(storage)) continue;
    ++writes_[storage];
  }
}

// Whether the gradient that the step read is also a result, or another leaf's gradient.
bool Trace::escapes(const autograd::Journal::LeafGradient& gradient,
                    std::span<const Tensor> results) const {
  const auto shares = [&](const Tensor& x) {
    return x.defined() && TensorImpl::of(x)->storage == TensorImpl::of(gradient.before)->storage;
  };
  return std::ranges::any_of(results, shares) ||
         std::ranges::any_of(
             journal_->leaf_gradients(), [&](const autograd::Journal::LeafGradient& other) {
               return &other != &gradient && shares(autograd::collected_gradient(other.leaf));
             });
}

Output Trace::output_of(const Tensor& x) {
  if (!x.defined()) return {};
  if (is_placeholder(TensorImpl::of(x)->storage)) return {value_of(x), {}};
  return {{}, x};
}

// Records the gradients that leaves have at the end, which are results of the step, too.
void Trace::note_gradients(std::span<const Tensor> results) {
  for (const autograd::Journal::LeafGradient& gradient : journal_->leaf_gradients()) {
    // A leaf of the step's own: no handle but the journal's is left.
    const TensorImpl* const leaf = TensorImpl::of(gradient.leaf);
    if (is_placeholder(leaf->storage) || leaf->refs.load(std::memory_order_acquire) == 1) continue;
    const Tensor after = autograd::collected_gradient(gradient.leaf);
    GradientSlot slot{.leaf = gradient.leaf,
                      .group = autograd::group_of(gradient.leaf),
                      .reads = gradient.depends,
                      .before = gradient.before.defined() ? detach(gradient.before) : Tensor(),
                      .after = {}};
    if (!gradient.depends || TensorImpl::of(after) != TensorImpl::of(gradient.before)) {
      slot.after = output_of(after);
      // The next call reads the gradient at the same address.
      if (graph_.owns_gradient(slot) && gradient.depends && gradient.before.defined() &&
          !escapes(gradient, results)) {
        Tensor before = gradient.before;
        copy_(before, after);
        slot.accumulates = true;
        slot.after.reset();
      }
    }
    graph_.gradients.push_back(std::move(slot));
  }
}

// Names the gradients that the step computes: "mlp.layers.1.weight.grad"; for a leaf of a group,
// the leaf's part of the flat gradient.
void Trace::name_gradients() {
  const auto name = [this](const Value& gradient, const Tensor& leaf) {
    const Extent extent = extent_of(region_of(leaf));
    const auto of_leaf = names_.find({TensorImpl::of(leaf)->storage, extent.low, extent.high});
    if (of_leaf != names_.end() && graph_.is_temporary(gradient.buffer))
      graph_.names.push_back(
          {gradient.buffer, extent_of(gradient.region()), of_leaf->second + ".grad"});
  };
  const Flow flow(graph_);
  for (const GradientSlot& slot : graph_.gradients) {
    if (!graph_.owns_gradient(slot)) continue;
    const Value& gradient = slot.after->value;
    if (!slot.group) {
      name(gradient, slot.leaf);
      continue;
    }
    const int call = flow.producer(gradient.buffer);
    const std::vector<Tensor> leaves = autograd::leaves_of_group(slot.leaf);
    if (call == Flow::kNone || graph_.nodes[call].inputs.size() != leaves.size()) continue;
    for (std::size_t i = 0; i < leaves.size(); ++i) name(graph_.nodes[call].inputs[i], leaves[i]);
  }
}

Graph Trace::finish(std::vector<Tensor> results) {
  const auto recorded = (thread_context.last_sequence - last_sequence_) >> autograd::kThreadBits;
  const CallCounts calls{std::ssize(graph_.nodes),
                         graph_.calls.views - std::ssize(captured_),  // each of them was detached
                         static_cast<std::int64_t>(recorded)};
  {
    const NoGrad constant;
    for (Tensor& result : results) {
      if (!result.defined()) continue;
      const Storage* const storage = TensorImpl::of(result)->storage;
      if (is_placeholder(storage) && serial_of(storage) != serial_)
        refuse_stale(name_.c_str(), result);
      if (!is_leaf(result)) result = detach(result);  // its tape would keep the step's own leaves
    }
    note_gradients(results);
    graph_.draws = random_->finish();
  }
  for (const Tensor& result : results) graph_.outputs.push_back(output_of(result));
  for (const auto& [tensor, name] : names_) {
    const auto& [storage, low, high] = tensor;
    if (const auto captured = captured_.find(storage); captured != captured_.end())
      graph_.names.push_back({captured->second, {low, high}, name});
  }
  name_gradients();
  graph_.calls = calls;
  return std::move(graph_);
}

}  // namespace brrr::graph
