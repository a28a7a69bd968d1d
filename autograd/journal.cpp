#include "autograd/journal.h"

#include <algorithm>

#include "autograd/group.h"
#include "autograd/node.h"
#include "dispatch/keys.h"

namespace brrr::autograd {

thread_local constinit int runs_under_way = 0;

namespace {
constinit thread_local Journal* journal = nullptr;
}

Journal::Journal() { journal = this; }

Journal::~Journal() {
  journal = nullptr;
  for (const Change& change : changes_) set_collected(change.leaf, change.before);
}

void note_change(TensorImpl* impl, bool depends) {
  if (!journal) [[likely]]
    return;
  const auto* history = static_cast<const History*>(impl->autograd);
  if (history->group) impl = history->group->leaves[0].impl();
  const auto known = [impl](const Journal::Change& change) { return change.leaf.impl() == impl; };
  if (std::ranges::any_of(journal->changes_, known)) return;
  impl->retain();
  const Tensor leaf(impl);
  journal->changes_.push_back({leaf, collected(leaf), depends});
}

Tensor collected(const Tensor& leaf) {
  const History* history = history_of(leaf);
  if (!history) return {};
  return history->group ? history->group->flat : history->grad;
}

Hold hold_of(const Tensor& leaf) {
  const History* history = history_of(leaf);
  const auto handles = [](const Tensor& x) {
    return x.impl()->refs.load(std::memory_order_acquire);
  };
  if (!history->group) return {0, handles(history->grad) > 2};
  Hold hold{0, handles(history->group->flat) > 2};
  for (const Tensor& member : history->group->leaves) {
    ++hold.views;
    hold.by_others |= handles(history_of(member)->grad) > 1;
  }
  return hold;
}

void set_collected(const Tensor& leaf, const Tensor& gradient) {
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
