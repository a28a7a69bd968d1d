// A program's dealings with gradients of leaves: whether they are those that it was traced with,
// who else holds them, and what leaves get from a run.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/journal.h"
#include "brrr/graph/program.h"
#include "brrr/ops/functions.h"

namespace brrr::graph {
namespace {

using Outcome = LeafGradient::Outcome;

// Programs hold gradients that other programs made. Who knows of those handles and references can
// tell a user's.
struct OfPrograms {
  std::mutex mutex;
  std::unordered_map<const Storage*, std::uint32_t> references;
  std::unordered_map<const TensorImpl*, std::uint32_t> handles;
  // Gradients that programs made, whose references are among those, by what they lie in.
  std::unordered_multimap<const Storage*, const TensorImpl*> made;

  template <class Key>
  static void change(std::unordered_map<Key, std::uint32_t>& map, Key key, bool there,
                     std::uint32_t by = 1) {
    if (there) {
      map[key] += by;
    } else if (const auto found = map.find(key); (found->second -= by) == 0) {
      map.erase(found);
    }
  }
  template <class Key>
  static std::uint32_t in(const std::unordered_map<Key, std::uint32_t>& map, Key key) {
    const auto found = map.find(key);
    return found == map.end() ? 0 : found->second;
  }
};
OfPrograms& of_programs() {
  static OfPrograms* all = new OfPrograms;
  return *all;
}

std::uint32_t count_of(const std::atomic<std::uint32_t>& references) {
  return references.load(std::memory_order_acquire);
}

bool same_place(const Tensor& a, const Tensor& b) {
  return a.impl()->storage == b.impl()->storage && a.data() == b.data() && a.dtype() == b.dtype() &&
         std::ranges::equal(a.shape(), b.shape()) && std::ranges::equal(a.strides(), b.strides());
}

}  // namespace

void Program::tell_of_references(bool there) const {
  OfPrograms& all = of_programs();
  const std::lock_guard lock(all.mutex);
  for (const Block& block : blocks_) {
    if (block.storage)
      OfPrograms::change<const Storage*>(all.references, block.storage, there,
                                         block.own_references);
  }
  const auto handle = [&](const Tensor& x) {
    if (x.defined()) OfPrograms::change<const TensorImpl*>(all.handles, x.impl(), there);
  };
  for (const Tensor& made : gradients_) {
    handle(made);
    if (!made.defined()) continue;
    const TensorImpl* impl = made.impl();
    if (there) {
      all.made.emplace(impl->storage, impl);
      continue;
    }
    const auto [first, last] = all.made.equal_range(impl->storage);
    all.made.erase(
        std::find_if(first, last, [&](const auto& each) { return each.second == impl; }));
  }
  for (const Output& output : graph_.outputs) handle(output.real);
  for (const LeafGradient& gradient : graph_.gradients) handle(gradient.outside);
}

Program::Fit Program::fit_of_gradients() const {
  Fit fit = Fit::yes;
  for (const LeafGradient& gradient : graph_.gradients) {
    if (autograd::group_of(gradient.leaf) != gradient.group || !requires_grad(gradient.leaf))
      return Fit::no;
    if (!gradient.depends) continue;
    const Tensor now = autograd::collected(gradient.leaf);
    if (now.defined() != gradient.before.defined()) return Fit::no;
    if (now.defined() && !same_place(now, gradient.before)) fit = Fit::moved;
  }
  return fit;
}

// By somebody who is neither a program nor the leaf. The leaf may have another gradient by now.
// `gradient` is a handle of this program's list of those that it makes, or one more.
bool Program::is_held(const Tensor& gradient, const Tensor& leaf, bool made_here) const {
  const bool is_current = autograd::collected(leaf).impl() == gradient.impl();
  autograd::Views views;
  if (is_current) views = autograd::views_of_gradient(leaf);
  if (views.held) return true;
  const Storage* storage = gradient.impl()->storage;
  const std::uint32_t handles = count_of(gradient.impl()->refs);
  const std::uint32_t references = count_of(storage->refs);
  const std::uint32_t tape = is_current ? 1 : 0;
  OfPrograms& all = of_programs();
  const std::lock_guard lock(all.mutex);
  const auto handles_of_programs = [&](const TensorImpl* impl) {
    return OfPrograms::in<const TensorImpl*>(all.handles, impl);
  };
  if (handles > (made_here ? 0 : 1) + tape + handles_of_programs(gradient.impl())) return true;
  bool counted = false;
  const auto [first, last] = all.made.equal_range(storage);
  for (auto each = first; each != last; ++each) {
    const TensorImpl* other = each->second;
    if (other == gradient.impl()) {
      counted = true;
    } else if (count_of(other->refs) >
               handles_of_programs(other) + (made_here && is_bound(other))) {
      return true;
    }
  }
  return references >
         OfPrograms::in<const Storage*>(all.references, storage) + views.count + (counted ? 0 : 1);
}

// Whether a leaf has the gradient from this program.
bool Program::is_bound(const TensorImpl* made) const {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].impl() == made)
      return autograd::collected(graph_.gradients[i].leaf).impl() == made;
  }
  return false;
}

bool Program::made_gradients_are_held() const {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].defined() && is_held(gradients_[i], graph_.gradients[i].leaf, true))
      return true;
  }
  return false;
}

bool Program::copy_held_gradients() const {
  bool any = false;
  for (const LeafGradient& gradient : graph_.gradients) {
    if (gradient.outcome != Outcome::added_to) continue;
    const Tensor now = autograd::collected(gradient.leaf);
    if (!is_held(now, gradient.leaf, false)) continue;
    const NoGrad constant;
    autograd::set_collected(gradient.leaf, clone(now));
    any = true;
  }
  return any;
}

// Leaves get what this run made.
void Program::bind_gradients(std::span<const Tensor> arguments) {
  const std::lock_guard lock(autograd::collecting());
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const LeafGradient& gradient = graph_.gradients[i];
    Tensor result;
    switch (gradient.outcome) {
      case Outcome::stays:
      case Outcome::added_to: continue;
      case Outcome::made: result = gradients_[i]; break;
      case Outcome::outside: result = gradient.outside; break;
      case Outcome::argument: {
        const Value& value = gradient.value;
        const int input = graph_.buffers[static_cast<std::size_t>(value.buffer)].input;
        result = make_view(arguments[static_cast<std::size_t>(input)], value.shape, value.strides,
                           value.offset);
        break;
      }
      case Outcome::forgotten: break;
    }
    if (autograd::collected(gradient.leaf).impl() != result.impl())
      autograd::set_collected(gradient.leaf, result);
  }
}

void Program::forget_gradients() const {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Tensor& leaf = graph_.gradients[i].leaf;
    if (gradients_[i].defined() && autograd::collected(leaf).impl() == gradients_[i].impl())
      autograd::set_collected(leaf, Tensor());
  }
}

}  // namespace brrr::graph
