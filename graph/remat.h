// Which values of the forward pass a compiled step keeps for its backward pass, and which it
// computes again there (docs/graph.md, Rematerialization).
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include <brrr/tensor/tensor.h>

namespace brrr {

// A policy of rematerialization. Gradients keep their bits under every policy in graph mode, and on
// the CPU in fused steps as well.
class Remat {
 public:
  enum class Kind : std::uint8_t { none, min_cut, full, budget };

  // Every value that the backward pass reads is kept.
  static constexpr Remat none() { return Remat(Kind::none, 1); }
  // The fastest step by prediction. Among steps within 1 % of it, or no slower than with every
  // value kept, the one with the least memory; never more than with every value kept, unless
  // remat::recompute asks for it. Unfused steps are fastest without recomputation, so this policy
  // pays in fused steps.
  static constexpr Remat min_cut() { return Remat(Kind::min_cut, 1); }
  // The least memory: keeps little more than the inputs of segments of the forward pass.
  static constexpr Remat full() { return Remat(Kind::full, 1); }
  // The fastest step by prediction whose planned memory (CompiledEntry::arena_bytes) is at most
  // `fraction`, in (0, 1], of that with every value kept. If there is none, compiling the step
  // throws an Error that states the least possible fraction.
  static Remat budget(double fraction);

  constexpr Kind kind() const { return kind_; }
  constexpr double fraction() const { return fraction_; }

 private:
  constexpr Remat(Kind kind, double fraction) : kind_(kind), fraction_(fraction) {}

  Kind kind_;
  double fraction_;
};

namespace core {
void mark_for_remat(const Tensor& x, bool recomputed);
void mark_for_remat(std::string_view name, bool recomputed);
template <class T>
concept Marked = std::same_as<T, Tensor> || std::convertible_to<const T&, std::string_view>;
}  // namespace core

// Marks for the policy, called in a compiled function. remat::save: the backward pass reads the
// marked values from memory. remat::recompute: it computes them again. Compiling a step throws an
// Error if a tensor marked with remat::recompute cannot be computed again.
//
// A name is that of a module ("blocks.3.norm1", or "blocks.3" with all modules in it) or of an op
// ("tanh"), as explain() prints it. It marks all values computed there that the backward pass
// needs; remat::recompute skips those that cannot be computed again. Marks on tensors have
// priority. A name that matches no value in the forward pass is an Error that lists all names.
//
// Without a policy, and outside of a compiled function, marks do nothing.
namespace remat {
template <core::Marked... T>
void save(const T&... values) {
  (core::mark_for_remat(values, false), ...);
}
template <core::Marked... T>
void recompute(const T&... values) {
  (core::mark_for_remat(values, true), ...);
}
}  // namespace remat

}  // namespace brrr
