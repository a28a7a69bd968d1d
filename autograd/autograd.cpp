// Functions on one tensor's gradient: requires_grad_, grad_of, set_grad, retain_grad, hooks.
#include "brrr/autograd/autograd.h"

#include "brrr/autograd/group.h"
#include "brrr/autograd/journal.h"
#include "brrr/autograd/run.h"
#include "brrr/autograd/tape_node.h"
#include "brrr/autograd/unread.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr {

using autograd::History;
using autograd::history_of;

namespace {

History& leaf_history(const char* what, const Tensor& x) {
  require_defined(what, x);
  if (!is_leaf(x)) {
    fail(
        "[{}] expected a leaf, got {}, which was computed from others; detach it, or use "
        "retain_grad",
        what, x.describe());
  }
  if (!requires_grad(x)) {
    fail("[{}] expected a leaf that requires a gradient, got {}", what, x.describe());
  }
  return *history_of(x);
}

autograd::Hooks& hooks_of(History& history) {
  std::unique_ptr<autograd::Hooks>& hooks = history.node ? history.node->hooks : history.hooks;
  if (!hooks) hooks = std::make_unique<autograd::Hooks>();
  return *hooks;
}

}  // namespace

bool requires_grad(const Tensor& x) {
  require_defined("requires_grad", x);
  return TensorImpl::of(x)->word.keys() & bit(Key::autograd);
}

bool is_leaf(const Tensor& x) {
  require_defined("is_leaf", x);
  const History* history = history_of(x);
  return !history || !history->node;
}

GradMode::GradMode(bool recorded) : before_(thread_context.excluded_keys) {
  thread_context.excluded_keys =
      recorded ? before_ & ~bit(Key::autograd) : before_ | bit(Key::autograd);
}
GradMode::~GradMode() { thread_context.excluded_keys = before_; }

bool grad_enabled() { return !(thread_context.excluded_keys & bit(Key::autograd)); }

Tensor& requires_grad_(Tensor& x, bool on) {
  require_defined("requires_grad_", x);
  if (!is_leaf(x)) {
    if (on) return x;
    fail("[requires_grad_] expected a leaf, got {}, which was computed from others; use detach",
         x.describe());
  }
  if (!on) {
    if (history_of(x) && history_of(x)->group)
      fail("[requires_grad_] expected a leaf in no group, got {}", x.describe());
    // Edges recorded before still lead to this leaf; backward ignores them.
    TensorImpl::of(x)->remove_keys(bit(Key::autograd));
    autograd::mark_read(x);
    return x;
  }
  if (!is_floating(x.dtype())) {
    fail("[requires_grad_] expected a floating dtype, got {}", x.describe());
  }
  // Installed with the first leaf: a linker may drop a static initializer from a static library, or
  // run it after the caller's.
  [[maybe_unused]] static const bool recorded =
      (set_key_function(Key::autograd, autograd::record), true);
  autograd::own_history(x);
  TensorImpl::of(x)->add_keys(bit(Key::autograd));
  return x;
}

Tensor requires_grad_(Tensor&& x, bool on) {
  requires_grad_(x, on);
  return std::move(x);
}

Tensor grad_of(const Tensor& x) {
  require_defined("grad_of", x);
  const History* history = history_of(x);
  if (!history) return {};
  if (!history->node) {
    autograd::note_gradient_read(TensorImpl::of(x));
    autograd::mark_read(*history);
  }
  if (history->group) history->group->lent.store(true, std::memory_order_relaxed);
  return history->retained ? *history->retained : history->grad;
}

void set_grad(const Tensor& leaf, const Tensor& gradient) {
  History& history = leaf_history("set_grad", leaf);
  if (!gradient.defined() || !autograd::alike(gradient, leaf)) {
    fail("[set_grad] expected a gradient like {}, got {}", leaf.describe(),
         autograd::described(gradient));
  }
  if (history.group)
    fail("[set_grad] expected a leaf in no group; give the group its flat gradient");
  autograd::note_gradient_change(TensorImpl::of(leaf));
  autograd::mark_read(history);
  history.grad = gradient;
}

void zero_grad(const Tensor& leaf) {
  History& history = leaf_history("zero_grad", leaf);
  if (history.group) fail("[zero_grad] expected a leaf in no group; clear the group");
  autograd::note_gradient_change(TensorImpl::of(leaf));
  autograd::mark_read(history);
  history.grad = Tensor();
}

void retain_grad(const Tensor& x) {
  require_defined("retain_grad", x);
  if (!requires_grad(x))
    fail("[retain_grad] expected a tensor that requires a gradient, got {}", x.describe());
  History& history = *history_of(x);
  if (!history.node || history.retained) return;
  history.retained = std::make_shared<Tensor>();
  hooks_of(history).kept.emplace_back(history.output, history.retained);
}

void register_hook(const Tensor& x, std::function<Tensor(const Tensor&)> hook) {
  require_defined("register_hook", x);
  if (!requires_grad(x))
    fail("[register_hook] expected a tensor that requires a gradient, got {}", x.describe());
  if (!hook) fail("[register_hook] expected a function, got none");
  History& history = *history_of(x);
  if (!history.node) autograd::mark_read(history);  // by the hook
  hooks_of(history).of_output.emplace_back(history.node ? history.output : 0, std::move(hook));
}

Tensor detach(const Tensor& x) {
  require_defined("detach", x);
  return autograd::without_history(x);
}

}  // namespace brrr
