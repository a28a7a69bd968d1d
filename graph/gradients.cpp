// The gradients of leaves between the runs of a program. A gradient that the step reads is captured
// in place; one that it makes is in memory of the program. Where the caller still holds the old
// gradient, its values stay: the program writes to new memory, or the leaf continues with a copy.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/journal.h"
#include "brrr/graph/program.h"
#include "brrr/ops/functions.h"

namespace brrr::graph {
namespace {

bool same_place(const Tensor& a, const Tensor& b) {
  return TensorImpl::of(a)->storage == TensorImpl::of(b)->storage && a.data() == b.data() &&
         a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.strides(), b.strides());
}

std::uint32_t count_of(const std::atomic<std::uint32_t>& references) {
  return references.load(std::memory_order_acquire);
}

// Whether the caller has a reference to a gradient's memory, besides those of the leaf and of
// compiled steps. The leaf may have another gradient by now.
bool is_referenced_by_caller(const Storage* storage, const Tensor& leaf) {
  const Tensor now = autograd::collected_gradient(leaf);
  std::uint32_t of_tape = 0;
  if (now.defined() && TensorImpl::of(now)->storage == storage) {
    const autograd::Views views = autograd::views_of_gradient(leaf);
    if (views.has_caller_handle || count_of(TensorImpl::of(now)->refs) > 2)
      return true;  // `now`, and the leaf
    of_tape = 1 + views.count;
  }
  return count_of(storage->refs) > count_of(storage->replay_refs) + of_tape;
}

}  // namespace

// Publishes this program's references to gradient storages (its blocks outside of the arena, and
// the handles in its graph), so that other programs do not take them for the caller's.
void Program::publish_references(bool published) const {
  const auto change = [published](Storage* storage) {
    if (published) {
      storage->replay_refs.fetch_add(1, std::memory_order_acq_rel);
    } else {
      storage->replay_refs.fetch_sub(1, std::memory_order_acq_rel);
    }
  };
  for (Storage* storage : memory_->outside()) change(storage);
  for (const Buffer& buffer : graph_.buffers) {
    if (buffer.captured.defined()) change(TensorImpl::of(buffer.captured)->storage);
  }
  for (const GradientSlot& slot : graph_.gradients) {
    if (slot.before.defined()) change(TensorImpl::of(slot.before)->storage);
  }
}

Program::Fit Program::fit_of_gradients() const {
  Fit fit = Fit::yes;
  for (const GradientSlot& slot : graph_.gradients) {
    if (autograd::group_of(slot.leaf) != slot.group || !requires_grad(slot.leaf)) return Fit::no;
    if (!slot.reads) continue;
    const Tensor now = autograd::collected_gradient(slot.leaf);
    if (now.defined() != slot.before.defined()) return Fit::no;
    if (now.defined() && !same_place(now, slot.before)) fit = Fit::moved;
  }
  return fit;
}

bool Program::may_rebind(const GradientSlot& slot, const Tensor& now) const {
  const auto storage = [](const Tensor& x) { return TensorImpl::of(x)->storage; };
  const auto is_on = [&](const Tensor& x, const Tensor& other) {
    return x.defined() && storage(x) == storage(other);
  };
  const auto misalignment = [](const Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.data()) % 16;  // what kernels choose loads by
  };
  const Tensor& old = slot.before;
  const auto shares_old = [&](const GradientSlot& each) { return is_on(each.before, old); };
  const auto gives_old = [&](const GradientSlot& each) {
    return each.after && is_on(each.after->outside, old);
  };
  return now.dtype() == old.dtype() && now.device() == old.device() &&
         std::ranges::equal(now.shape(), old.shape()) &&
         std::ranges::equal(now.strides(), old.strides()) &&
         now.storage_offset() == old.storage_offset() && misalignment(now) == misalignment(old) &&
         std::ranges::count_if(graph_.gradients, shares_old) == 1 &&
         std::ranges::none_of(graph_.gradients, gives_old) &&
         std::ranges::none_of(graph_.buffers,
                              [&](const Buffer& buffer) { return is_on(buffer.captured, now); });
}

void Program::rebind(GradientSlot& slot, const Tensor& now) {
  Storage *const from = TensorImpl::of(slot.before)->storage, *const to =
                                                                  TensorImpl::of(now)->storage;
  for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
    Buffer& buffer = graph_.buffers[i];
    if (!buffer.captured.defined() || TensorImpl::of(buffer.captured)->storage != from) continue;
    buffer.captured = detach(now);
    buffer.bytes = to->bytes;
    buffer.replaced = to->replaced.load(std::memory_order_relaxed);
    memory_->rebind(static_cast<int>(i), to);
  }
  for (Output& output : graph_.outputs) {
    Tensor& x = output.outside;
    if (!x.defined() || TensorImpl::of(x)->storage != from) continue;
    to->retain();
    x = make_tensor_on(to, x.dtype(), x.shape(), x.strides(), x.storage_offset());
  }
  std::ranges::replace(written_, from, to);
  slot.before = detach(now);
}

bool Program::rebind_gradients() {
  std::vector<std::pair<GradientSlot*, Tensor>> moved;
  for (GradientSlot& slot : graph_.gradients) {
    if (!slot.reads || !slot.before.defined()) continue;
    const Tensor now = autograd::collected_gradient(slot.leaf);
    if (same_place(now, slot.before)) continue;
    if (!may_rebind(slot, now)) return false;
    moved.emplace_back(&slot, now);
  }
  publish_references(false);
  for (const auto& [slot, now] : moved) rebind(*slot, now);
  publish_references(true);
  executor_->invalidate();
  return true;
}

std::string Program::difference_of_gradients() const {
  for (const GradientSlot& slot : graph_.gradients) {
    const Tensor now = autograd::collected_gradient(slot.leaf);
    if (!slot.reads) continue;
    if (now.defined() != slot.before.defined())
      return fmt::format("{} has {} gradient, and had {}", describe(graph_, slot.leaf),
                         now.defined() ? "a" : "no", now.defined() ? "none" : "one");
    if (!now.defined() || same_place(now, slot.before)) continue;
    const auto text = [](const Tensor& x) {
      return fmt::format("{} with strides {}", x.describe(), to_string(Dims(x.strides())));
    };
    if (text(now) == text(slot.before))
      return fmt::format(
          "the gradient of {} is another tensor, and shares memory with others that "
          "the step uses, or did before",
          describe(graph_, slot.leaf));
    return fmt::format("the gradient of {} is another tensor, {}, and was {}",
                       describe(graph_, slot.leaf), text(now), text(slot.before));
  }
  return "";
}

bool Program::renew_gradients() {
  bool any = false;
  for (const GradientSlot& slot : graph_.gradients) {
    if (!graph_.owns_gradient(slot)) continue;
    const int block = plan_.placement_of(slot.after->value).block;
    Storage* storage = memory_->storage(block);
    if (!is_referenced_by_caller(storage, slot.leaf)) continue;
    storage->retain();
    memory_->renew(block);
    storage->replay_refs.fetch_sub(1, std::memory_order_acq_rel);
    storage->drop();
    memory_->storage(block)->replay_refs.fetch_add(1, std::memory_order_acq_rel);
    any = true;
  }
  if (any) executor_->invalidate();
  return any;
}

bool Program::copy_accumulated_gradients() const {
  bool any = false;
  for (const GradientSlot& slot : graph_.gradients) {
    if (!slot.accumulates ||
        !is_referenced_by_caller(TensorImpl::of(slot.before)->storage, slot.leaf))
      continue;
    const NoGrad constant;
    autograd::set_collected_gradient(slot.leaf, clone(autograd::collected_gradient(slot.leaf)));
    any = true;
  }
  return any;
}

// Sets the gradients of leaves to the results of this run.
void Program::bind_gradients(std::span<const Tensor> arguments) const {
  if (graph_.gradients.empty()) return;
  const std::lock_guard lock(autograd::accumulation_mutex());
  for (const GradientSlot& slot : graph_.gradients) {
    if (!slot.after) continue;
    const Output& after = *slot.after;
    Tensor gradient = after.outside;
    if (graph_.owns_gradient(slot)) {
      gradient = memory_->tensor_on(after.value);
    } else if (after.is_value()) {
      const Buffer& buffer = graph_.buffers[after.value.buffer];
      gradient = part_of(arguments[buffer.input], after.value);
    }
    const Tensor now = autograd::collected_gradient(slot.leaf);
    const bool has_it = TensorImpl::of(now) == TensorImpl::of(gradient) ||
                        (now.defined() && gradient.defined() && same_place(now, gradient));
    if (!has_it) autograd::set_collected_gradient(slot.leaf, gradient);
  }
}

// Drops gradients after a run that threw: their memory is undefined, since temporaries alias it.
void Program::forget_gradients() const {
  for (const GradientSlot& slot : graph_.gradients) {
    if (!graph_.owns_gradient(slot)) continue;
    const Tensor now = autograd::collected_gradient(slot.leaf);
    if (now.defined() && TensorImpl::of(now)->storage ==
                             memory_->storage(plan_.placement_of(slot.after->value).block))
      autograd::set_collected_gradient(slot.leaf, Tensor());
  }
}

}  // namespace brrr::graph
