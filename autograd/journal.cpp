#include "brrr/autograd/journal.h"

#include <algorithm>

#include "brrr/autograd/group.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/dispatch/keys.h"

namespace brrr::autograd {

Journal::Journal() { thread_context.journal = this; }

Journal::~Journal() {
  thread_context.journal = nullptr;
  for (const LeafGradient& gradient : leaf_gradients_) {
    if (TensorImpl::of(collected_gradient(gradient.leaf)) != TensorImpl::of(gradient.before))
      set_collected_gradient(gradient.leaf, gradient.before);
  }
}

void note(TensorImpl* impl, bool depends) {
  const auto* history = static_cast<const History*>(impl->autograd);
  if (history->group) impl = TensorImpl::of(history->group->leaves[0]);
  const auto known = [impl](const Journal::LeafGradient& gradient) {
    return TensorImpl::of(gradient.leaf) == impl;
  };
  if (std::ranges::any_of(thread_context.journal->leaf_gradients_, known)) return;
  impl->retain();
  const Tensor leaf = TensorImpl::handle(impl);
  thread_context.journal->leaf_gradients_.push_back({leaf, collected_gradient(leaf), depends});
}

void note_gradient_change(TensorImpl* leaf, bool depends) {
  if (thread_context.journal) [[unlikely]]
    note(leaf, depends);
}

void note_gradient_read(TensorImpl* leaf) {
  if (thread_context.journal) [[unlikely]]
    note(leaf, true);
}

std::recursive_mutex& accumulation_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

Tensor collected_gradient(const Tensor& leaf) {
  const History* history = history_of(leaf);
  if (!history) return {};
  return history->group ? history->group->flat : history->grad;
}

std::uint64_t group_of(const Tensor& leaf) {
  const History* history = history_of(leaf);
  return history && history->group ? history->group->id : 0;
}

std::vector<Tensor> leaves_of_group(const Tensor& leaf) { return history_of(leaf)->group->leaves; }

Views views_of_gradient(const Tensor& leaf) {
  const History* history = history_of(leaf);
  const LeafGroup* group = history ? history->group : nullptr;
  if (!group) return {};
  Views views{static_cast<std::uint32_t>(group->leaves.size()), false};
  if (!group->lent.load(std::memory_order_relaxed)) return views;
  for (const Tensor& each : group->leaves) {
    const Tensor& view = history_of(each)->grad;
    views.has_caller_handle |=
        view.defined() && TensorImpl::of(view)->refs.load(std::memory_order_acquire) > 1;
  }
  group->lent.store(views.has_caller_handle, std::memory_order_relaxed);
  return views;
}

void set_collected_gradient(const Tensor& leaf, const Tensor& gradient) {
  History* history = history_of(leaf);
  if (!history) return;
  if (!history->group) {
    history->grad = gradient;
  } else if (gradient.defined()) {
    const ExcludeKeys for_real(bit(Key::trace) | bit(Key::autograd));
    history->group->set(history->group->cut(gradient));
  } else {
    history->group->set({});
  }
}

}  // namespace brrr::autograd
