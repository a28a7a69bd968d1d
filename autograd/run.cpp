#include "brrr/autograd/run.h"
#include "brrr/autograd/unread.h"

#include <algorithm>
#include <mutex>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/group.h"
#include "brrr/autograd/journal.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"

namespace brrr::autograd {

bool alike(const Tensor& gradient, const Tensor& like) {
  return gradient.dtype() == like.dtype() && gradient.device() == like.device() &&
         std::ranges::equal(gradient.shape(), like.shape()) &&
         gradient.without_values() <= like.without_values();
}

std::string described(const Tensor& x) {
  return x.describe() + (x.defined() && x.without_values() ? " without values" : "");
}

namespace {

const Tensor undefined;

void add_to(Slot& slot, Tensor gradient) {
  slot = slot.defined() ? add(slot, gradient) : std::move(gradient);
}

bool earlier(const TapeNode* a, const TapeNode* b) { return a->sequence < b->sequence; }

void call_hooks(const Hooks& hooks, int output, Tensor& gradient) {
  // Hooks that a hook adds run in the next backward.
  for (std::size_t i = 0, n = hooks.of_output.size(); i < n; ++i) {
    const auto& [of, hook] = hooks.of_output[i];
    if (of != output) continue;
    Tensor instead = hook(gradient);
    if (!instead.defined()) continue;
    if (!alike(instead, gradient)) {
      fail("[backward] a hook was expected to return a gradient like {}, got {}",
           gradient.describe(), instead.describe());
    }
    gradient = std::move(instead);
  }
}

}  // namespace

Run::Run(bool create_graph, bool retain_graph) : create_(create_graph), retain_(retain_graph) {
  ++thread_context.backward_runs;
}

Run::~Run() {
  --thread_context.backward_runs;
  if (running_) release(running_);
  for (TapeNode* node : heap_) release(node);
  for (Leaf& leaf : leaves_) {
    History& history = *static_cast<History*>(leaf.impl->autograd);
    if (history.run.load(std::memory_order_relaxed) == this) {
      history.slot = Tensor();
      history.run.store(nullptr, std::memory_order_release);
    }
    leaf.impl->drop();
  }
}

void Run::release(TapeNode* node) {
  if (node->run.load(std::memory_order_relaxed) == this) {
    for (int i = 0; i < node->n_outputs; ++i) node->slot_of(i) = Tensor();
    node->run.store(nullptr, std::memory_order_release);
  } else {
    elsewhere_.erase(node);
  }
  node->drop();
}

Slot& Run::slot_of(TapeNode* node, int output, Edge* given_away) {
  if (node->run.load(std::memory_order_relaxed) == this) return node->slot_of(output);
  if (!elsewhere_.empty()) [[unlikely]] {
    if (const auto found = elsewhere_.find(node); found != elsewhere_.end())
      return found->second.slots[output];
  }
  // With a reference count of one no other thread can reach the node.
  const bool alone = given_away && node->refs.load(std::memory_order_acquire) == 1;
  heap_.push_back(node);
  std::push_heap(heap_.begin(), heap_.end(), earlier);
  if (given_away) {
    *given_away = Edge();
  } else {
    node->retain();
  }
  if (alone) {
    node->run.store(this, std::memory_order_relaxed);
    return node->slot_of(output);
  }
  Run* nobody = nullptr;
  if (node->run.compare_exchange_strong(nobody, this, std::memory_order_acquire)) [[likely]]
    return node->slot_of(output);
  Elsewhere& entry = elsewhere_[node];
  entry.slots.resize(node->n_outputs);
  return entry.slots[output];
}

Slot& Run::slot_of(TensorImpl* leaf) {
  History& history = *static_cast<History*>(leaf->autograd);
  if (history.run.load(std::memory_order_relaxed) == this) return history.slot;
  if (!leaves_elsewhere_.empty()) [[unlikely]] {
    if (const auto found = leaves_elsewhere_.find(leaf); found != leaves_elsewhere_.end())
      return *found->second;
  }
  leaf->retain();
  leaves_.push_back({leaf, &history.slot});
  Run* nobody = nullptr;
  if (history.run.compare_exchange_strong(nobody, this, std::memory_order_acquire)) [[likely]]
    return history.slot;
  auto& entry = leaves_elsewhere_[leaf];
  entry = std::make_unique<Slot>();
  leaves_.back().slot = entry.get();
  return *entry;
}

void Run::deliver(Edge& edge, Tensor gradient) {
  if (TensorImpl* leaf = edge.leaf()) {
    add_to(slot_of(leaf), std::move(gradient));
  } else if (TapeNode* node = edge.node()) {
    // Unless the tape is retained, the edge gives its reference to the run.
    add_to(slot_of(node, edge.output(), retain_ ? nullptr : &edge), std::move(gradient));
  }
}

const bool* Run::marked(TapeNode* node) const {
  const auto found = needed_.find(node);
  return found != needed_.end() && found->second.sequence == node->sequence ? &found->second.needed
                                                                            : nullptr;
}

// Whether a target is behind a node; visits each node once, without recursion.
bool Run::mark(TapeNode* from) {
  struct Visit {
    TapeNode* node;
    int next = 0;
    bool needed = false;
  };
  if (const bool* known = marked(from)) return *known;
  std::vector<Visit> path;
  const auto enter = [&](TapeNode* node) {
    needed_[node] = {node->sequence, false};
    const bool target = targets_.contains(node);
    if (target) reached_.insert(node);
    // The edges of a checkpoint are unknown until it runs again. A node that has run has released
    // its edges; it counts as needed, so that running it twice is refused.
    const bool unknown = node->recomputed || (node->ran && node->sequence > earliest_);
    path.push_back({node, 0, unknown || target});
  };
  enter(from);
  while (true) {
    Visit& visit = path.back();
    if (visit.next < visit.node->operand_count()) {
      const Edge& edge = visit.node->edge(visit.next++);
      if (TensorImpl* leaf = edge.leaf()) {
        if (!targets_.contains(leaf)) continue;
        reached_.insert(leaf);
        visit.needed = true;
      } else if (TapeNode* node = edge.node()) {
        if (const bool* known = marked(node)) {
          visit.needed |= *known;
        } else {
          enter(node);
        }
      }
      continue;
    }
    const Visit done = visit;
    needed_[done.node].needed = done.needed;
    path.pop_back();
    if (path.empty()) return done.needed;
    path.back().needed |= done.needed;
  }
}

void Run::restrict_to(std::span<Wanted> wanted, std::span<const Tensor> outputs) {
  restricted_ = true;
  wanted_ = wanted;
  for (const Wanted& each : wanted) {
    targets_.insert(each.node ? static_cast<const void*>(each.node) : each.leaf);
    earliest_ = std::min(earliest_, each.node ? each.node->sequence : 0);
  }
  for (const Tensor& output : outputs) {
    if (TapeNode* node = history_of(output)->node) mark(node);
  }
}

bool Run::reaches(const Wanted& wanted) const {
  return reached_.contains(wanted.node ? static_cast<const void*>(wanted.node) : wanted.leaf);
}

void Run::seed(const Tensor& output, Tensor gradient) {
  History& history = *history_of(output);
  if (history.node) {
    if (restricted_ && !mark(history.node)) return;
    add_to(slot_of(history.node, history.output), std::move(gradient));
  } else {
    add_to(slot_of(TensorImpl::of(output)), std::move(gradient));
  }
}

void Run::go() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), earlier);
    running_ = heap_.back();
    heap_.pop_back();
    run(running_);
    release(std::exchange(running_, nullptr));
  }
}

void Run::run(TapeNode* node) {
  const HostScope scope(HostActivity::backward, [node] { return node->name(); });
  Tensor few[kMaxOutputs];
  std::vector<Tensor> many(node->n_outputs > kMaxOutputs ? node->n_outputs : 0);  // a checkpoint's
  Tensor* of_outputs = many.empty() ? few : many.data();
  for (int i = 0; i < node->n_outputs; ++i) {
    Slot& slot = elsewhere_.contains(node) ? elsewhere_[node].slots[i] : node->slot_of(i);
    of_outputs[i] = std::move(slot);
  }
  if (node->hooks) {
    for (int i = 0; i < node->n_outputs; ++i) {
      if (of_outputs[i].defined()) call_hooks(*node->hooks, i, of_outputs[i]);
    }
    for (const auto& [of, where] : node->hooks->kept) {
      if (of_outputs[of].defined()) kept_.emplace_back(where, of_outputs[of]);
    }
  }
  if (restricted_) {
    bool stops_here = true;
    for (Wanted& wanted : wanted_) {
      if (wanted.node == node) wanted.gradient = of_outputs[wanted.output];
    }
    for (int i = 0; stops_here && i < node->operand_count(); ++i)
      stops_here = !needs(node->edge(i));
    if (stops_here && !node->recomputed && !(node->ran && node->sequence > earliest_)) return;
  }
  if (node->ran) {
    fail(
        "[backward] {} has been run by an earlier backward, which freed its saved tensors; pass "
        "retain_graph to that one",
        node->name());
  }
  // Releases the node even if it fails, since some of its edges may have been given away.
  const struct Spent {
    TapeNode* node;
    ~Spent() {
      if (!node) return;
      node->forget();
      node->ran = true;
    }
  } spent{retain_ ? nullptr : node};
  if (node->recomputed) {
    run_again(node, of_outputs);
  } else {
    run_rule(node, of_outputs);
  }
}

void Run::check_saved(TapeNode* node, const Saved& saved, const char* what, int which) const {
  if (saved.tensor.defined() && saved.tensor.version() != saved.version) [[unlikely]] {
    fail(
        "[backward] {} needs {} {}, {}, which was written to in place since: it is at version {} "
        "and was saved at {}",
        node->name(), what, which, saved.tensor.describe(), saved.tensor.version(), saved.version);
  }
}

void Run::check_finite(TapeNode* node, const Tensor& gradient, int operand) const {
  const NoGrad constant;
  if (item<bool>(all(isfinite(gradient)))) return;
  fail("[backward] {} made a gradient that is not finite for operand {}, {}", node->name(), operand,
       gradient.describe());
}

// The arguments and results of a gradient rule, by operand.
struct RuleOperands {
  static constexpr int kInline = Gradient::kLeastOperands;

  explicit RuleOperands(int n) {
    if (n <= kInline) [[likely]]
      return;
    many = std::make_unique<Many>(static_cast<std::size_t>(n));
    values = many->values.data();
    likes = many->likes.data();
    wanted = many->wanted.get();
    gradients = many->gradients.data();
  }
  RuleOperands(const RuleOperands&) = delete;
  RuleOperands& operator=(const RuleOperands&) = delete;

  struct Many {
    explicit Many(std::size_t n)
        : values(n), likes(n), wanted(std::make_unique<bool[]>(n)), gradients(n) {}
    std::vector<const Tensor*> values;
    std::vector<const Like*> likes;
    std::unique_ptr<bool[]> wanted;
    std::vector<Tensor> gradients;
  };

  const Tensor* few_values[kInline] = {&undefined, &undefined, &undefined, &undefined};
  const Like* few_likes[kInline] = {};
  bool few_wanted[kInline] = {};
  Tensor few_gradients[kInline];
  std::unique_ptr<Many> many;

  const Tensor** values = few_values;
  const Like** likes = few_likes;
  bool* wanted = few_wanted;
  Tensor* gradients = few_gradients;
};

bool Run::needs(const Edge& edge) {
  return edge.leaf() ? targets_.contains(edge.leaf()) : edge.node() && mark(edge.node());
}

void Run::run_rule(TapeNode* node, const Tensor* of_outputs) {
  const GradientRule& rule = op_info(node->call.op).gradient;
  if (!rule.run) fail("[backward] {} has no gradient; register it with one", node->name());
  const int n = node->operand_count();
  RuleOperands operands(n);
  for (int i = 0; i < n; ++i) {
    Saved& saved = node->operand(i);
    check_saved(node, saved, "operand", i);
    operands.values[i] = &saved.tensor;
    operands.likes[i] = node->like(i);
    const Edge& edge = node->edge(i);
    operands.wanted[i] = edge && (!restricted_ || needs(edge));
  }
  const Tensor* results[kMaxOutputs];
  Tensor recorded[kMaxOutputs];
  for (int i = 0; i < node->n_outputs; ++i) {
    Saved& saved = node->output(i);
    check_saved(node, saved, "output", i);
    results[i] = &saved.tensor;
    if (create_ && saved.tensor.defined()) {
      recorded[i] = without_history(saved.tensor);
      node->retain();
      attach(recorded[i], node, i);
      results[i] = &recorded[i];
    }
  }
  Gradient gradient{node->call,     of_outputs,         operands.values, results,
                    operands.likes, operands.gradients, operands.wanted, n};
  const ContextScope<&ThreadContext::differentiated> differentiating(node->sequence);
  rule.run(gradient);
  for (int i = 0; i < n; ++i) {
    Tensor& result = operands.gradients[i];
    if (!operands.wanted[i] || !result.defined()) continue;
    if (thread_context.detect_anomaly) [[unlikely]]
      check_finite(node, result, i);
    deliver(node->edge(i), std::move(result));
  }
}

// Runs the checkpointed function again. Its nodes have the latest sequences, so they run next.
void Run::run_again(TapeNode* node, const Tensor* of_outputs) {
  std::vector<Tensor> outputs;
  {
    const EnableGrad recording;
    outputs = node->recomputed->again();
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!of_outputs[i].defined() || !requires_grad(outputs[i])) continue;
    History& history = *history_of(outputs[i]);
    if (history.node && restricted_ && !mark(history.node)) continue;
    seed(outputs[i], of_outputs[i]);
  }
}

// The gradient of a leaf, after its hooks.
Tensor Run::complete(const Leaf& leaf) {
  Tensor gradient = std::move(*leaf.slot);
  if (!(leaf.impl->word.keys() & bit(Key::autograd))) return {};  // has become a constant
  const auto& hooks = static_cast<History*>(leaf.impl->autograd)->hooks;
  if (gradient.defined() && hooks) call_hooks(*hooks, 0, gradient);
  return gradient;
}

void Run::collect() {
  for (const Leaf& leaf : leaves_) {
    const Tensor gradient = complete(leaf);
    for (Wanted& wanted : wanted_) {
      if (wanted.leaf == leaf.impl) wanted.gradient = gradient;
    }
  }
}

void Run::commit() {
  struct Change {
    History* history;
    Tensor gradient;
  };
  std::vector<Change> changes;
  for (const Leaf& leaf : leaves_) {
    Tensor gradient = complete(leaf);
    if (!gradient.defined()) continue;
    auto* const history = static_cast<History*>(leaf.impl->autograd);
    if (!history->group) note_backward(*history, *leaf.impl);
    changes.push_back({history, std::move(gradient)});
  }
  // Hooks have run: none is called under the lock.
  const std::lock_guard lock(accumulation_mutex());
  std::vector<std::pair<LeafGroup*, std::vector<Tensor>>> groups;
  for (auto& [to, gradient] : changes) {
    History& history = *to;
    if (history.group) {
      auto found = std::find_if(groups.begin(), groups.end(),
                                [&](const auto& each) { return each.first == history.group; });
      if (found == groups.end()) {
        groups.push_back({history.group, std::vector<Tensor>(history.group->leaves.size())});
        found = groups.end() - 1;
      }
      found->second[history.place] = std::move(gradient);
    } else if (history.grad.defined()) {
      gradient = add(history.grad, gradient);
    } else {
      // The leaf's gradient may be written in place: it must share memory with no other tensor.
      const bool ours = TensorImpl::of(gradient)->refs.load() == 1 && gradient.is_contiguous() &&
                        TensorImpl::of(gradient)->storage &&
                        TensorImpl::of(gradient)->storage->refs.load() == 1;
      if (!ours) gradient = clone(gradient);
    }
  }
  for (const Leaf& leaf : leaves_) note_gradient_change(leaf.impl, true);
  std::vector<std::pair<LeafGroup*, LeafGroup::Filled>> filled;
  for (auto& [group, pieces] : groups) filled.emplace_back(group, group->filled_with(pieces));
  // Nothing below fails.
  for (auto& [history, gradient] : changes) {
    if (!history->group) history->grad = std::move(gradient);
  }
  for (auto& [where, gradient] : kept_) *where = std::move(gradient);
  for (auto& [group, gradients] : filled) group->set(std::move(gradients));
}

}  // namespace brrr::autograd
