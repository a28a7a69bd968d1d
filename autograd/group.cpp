#include "brrr/autograd/group.h"

#include <unordered_set>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/journal.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace autograd {

namespace {
std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}
}  // namespace

LeafGroup::LeafGroup(std::vector<Tensor> members) : id(next_id()), leaves(std::move(members)) {
  if (leaves.empty()) fail("[GradientGroup] expected at least one leaf, got none");
  for (const Tensor& leaf : leaves) {
    if (!requires_grad(leaf) || !is_leaf(leaf) || history_of(leaf)->group ||
        leaf.dtype() != leaves[0].dtype() || leaf.device() != leaves[0].device()) {
      fail(
          "[GradientGroup] expected leaves of one dtype on one device that are in no other group, "
          "got {} and {}",
          leaves[0].describe(), leaf.describe());
    }
  }
  std::unordered_set<const TensorImpl*> seen;
  for (const Tensor& leaf : leaves) {
    if (!seen.insert(TensorImpl::of(leaf)).second)
      fail("[GradientGroup] expected each leaf once, got {} twice", leaf.describe());
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    History& history = *history_of(leaves[i]);
    history.group = this;
    history.place = static_cast<int>(i);
    history.grad = Tensor();
    mark_read(history);
  }
}

LeafGroup::~LeafGroup() {
  for (const Tensor& leaf : leaves) {
    if (History* history = history_of(leaf)) history->group = nullptr;
  }
}

LeafGroup::Filled LeafGroup::filled_with(std::span<const Tensor> pieces) const {
  std::vector<Tensor> parts;
  parts.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    parts.push_back(pieces[i].defined()
                        ? reshape(pieces[i], {leaves[i].numel()})
                        : zeros({leaves[i].numel()}, {leaves[i].dtype(), leaves[i].device()}));
  }
  Tensor joined = cat(parts);
  return cut(flat.defined() ? add(flat, joined) : joined);
}

LeafGroup::Filled LeafGroup::cut(Tensor gradients) const {
  Filled filled;
  filled.views.reserve(leaves.size());
  std::int64_t at = 0;
  for (const Tensor& leaf : leaves) {
    filled.views.push_back(view(narrow(gradients, 0, at, leaf.numel()), Dims(leaf.shape())));
    at += leaf.numel();
  }
  filled.flat = std::move(gradients);
  return filled;
}

void LeafGroup::set(Filled gradients) noexcept {
  flat = std::move(gradients.flat);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    History* history = history_of(leaves[i]);
    if (history) history->grad = flat.defined() ? std::move(gradients.views[i]) : Tensor();
  }
}

}  // namespace autograd

struct GradientGroup::State {
  autograd::LeafGroup group;
};

GradientGroup::GradientGroup(std::vector<Tensor> leaves)
    : state_(new State{autograd::LeafGroup(std::move(leaves))}) {}
GradientGroup::~GradientGroup() = default;

bool GradientGroup::holds(const Tensor& x) {
  const autograd::History* history = x.defined() ? autograd::history_of(x) : nullptr;
  return history && history->group;
}

std::span<const Tensor> GradientGroup::leaves() const { return state_->group.leaves; }
Tensor GradientGroup::flat() const {
  autograd::note_gradient_read(TensorImpl::of(state_->group.leaves[0]));
  state_->group.lent.store(true, std::memory_order_relaxed);
  return state_->group.flat;
}
void GradientGroup::clear() {
  autograd::note_gradient_change(TensorImpl::of(state_->group.leaves[0]));
  state_->group.set({});
}

void GradientGroup::set_flat(const Tensor& gradients) {
  autograd::LeafGroup& group = state_->group;
  std::int64_t total = 0;
  for (const Tensor& leaf : group.leaves) total += leaf.numel();
  const Tensor& like = group.leaves[0];
  if (!gradients.defined() || gradients.rank() != 1 || gradients.numel() != total ||
      gradients.dtype() != like.dtype() || gradients.device() != like.device()) {
    fail("[GradientGroup] expected gradients of {}[{}], got {}", name_of(like.dtype()), total,
         gradients.describe());
  }
  autograd::note_gradient_change(TensorImpl::of(like));
  group.set(group.cut(gradients));
}

}  // namespace brrr
