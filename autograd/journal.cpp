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
  const Group* group = history->group;
  const auto handles = [](const Tensor& x) {
    return x.impl()->refs.load(std::memory_order_acquire);
  };
  Hold hold{group ? static_cast<std::uint32_t>(group->leaves.size()) : 0, false};
  std::atomic<bool>& lent = group ? group->lent : history->lent;
  if (!lent.load(std::memory_order_relaxed)) return hold;
  hold.by_others = handles(group ? group->flat : history->grad) > 2;
  for (std::size_t i = 0; group && i < group->leaves.size(); ++i) {
    hold.by_others |= handles(history_of(group->leaves[i])->grad) > 1;
  }
  lent.store(hold.by_others, std::memory_order_relaxed);
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
