// Gradients. Calls on tensors that require a gradient are recorded on a tape, one node for each;
// `backward` and `grad` walk it from the end. The rules are written over public ops, so gradients
// can be recorded and differentiated again.
//
//   Tensor w = requires_grad_(randn({3}));
//   backward(sum(square(w)));            // grad_of(w) is 2 w
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr {

// --- Tensors ---

// Makes a floating tensor that was not computed from others a leaf: backward accumulates its
// gradient. `on` false makes it a constant again, also in a backward over calls recorded before.
Tensor& requires_grad_(Tensor& x, bool on = true);
Tensor requires_grad_(Tensor&& x, bool on = true);
bool requires_grad(const Tensor& x);
bool is_leaf(const Tensor& x);

// The gradient that a leaf has accumulated, or that retain_grad kept; undefined if there is none.
// It computes nothing, like PyTorch's x.grad. grad(x) is the same; grad(y, x), below, computes.
Tensor grad_of(const Tensor& x);
inline Tensor grad(const Tensor& x) { return grad_of(x); }
void set_grad(const Tensor& leaf, const Tensor& gradient);
void zero_grad(const Tensor& leaf);  // drops it: the next backward begins with none
// Lets a tensor that is not a leaf keep its gradient too: that of the last backward, after all
// hooks.
void retain_grad(const Tensor& x);

// A view of x that is not on the tape.
Tensor detach(const Tensor& x);

bool grad_enabled();
namespace core {
// Scope in which calls on this thread are recorded on the tape (`on`), or not.
class GradMode {
 public:
  explicit GradMode(bool recorded);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  std::uint32_t before_;
};
}  // namespace core
struct NoGrad : core::GradMode {
  NoGrad() : core::GradMode(false) {}
};
// Records inside of a NoGrad.
struct EnableGrad : core::GradMode {
  EnableGrad() : core::GradMode(true) {}
};
// NoGrad for one function: Tensor y = no_grad([&] { return model(x); });
template <class F>
decltype(auto) no_grad(F&& f) {
  const NoGrad constant;
  return std::forward<F>(f)();
}

// Calls `hook` with the complete gradient of x, once in each backward that reaches x. If it returns
// a defined tensor, that replaces the gradient; it must have the same shape and dtype.
void register_hook(const Tensor& x, std::function<Tensor(const Tensor& gradient)> hook);

// --- Backward ---

struct BackwardOptions {
  bool create_graph = false;  // records the gradients, so that they can be differentiated
  std::optional<bool> retain_graph = {};  // keeps the tape for another backward; as create_graph
};

// Adds d(output)/d(leaf) to the gradient of every leaf that `output` was computed from. `gradient`
// is the gradient of the output; it may be left out where that has one element. When anything
// fails, no gradient has changed.
void backward(const Tensor& output, const Tensor& gradient = {}, BackwardOptions options = {});
inline void backward(const Tensor& output, BackwardOptions options) {
  backward(output, Tensor(), options);
}
void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients,
              BackwardOptions options = {});

struct GradOptions {
  bool create_graph = false;
  std::optional<bool> retain_graph = {};
  bool allow_unused =
      false;  // an input that the outputs do not depend on has an undefined gradient
  std::vector<Tensor> gradients = {};  // of the outputs; ones where left out
};

// Gradients of the outputs with respect to the inputs, which may be leaves or intermediate tensors.
// The gradients of leaves are not accumulated.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         GradOptions options = {});
std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs,
                         GradOptions options = {});
inline std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs,
                                GradOptions options = {}) {
  return grad(std::span(&output, 1), inputs, std::move(options));
}
Tensor grad(const Tensor& output, const Tensor& input, GradOptions options = {});

// --- Rematerialization by hand ---

// Computes fn(inputs) and keeps only the inputs: backward runs fn again, with the same random
// numbers. fn must depend only on its inputs and on tensors that do not change until then.
namespace core {
using Checkpointed = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;
}
std::vector<Tensor> checkpoint(const core::Checkpointed& fn, std::vector<Tensor> inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input);

// --- Inspecting the tape ---

// Scope in which a backward on this thread throws at the first call whose gradient is not finite;
// the error names the call. Slow, since the host reads every gradient.
class DetectAnomaly {
 public:
  DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool before_;
};

struct SavedTensor {
  std::string op;     // the op that saved it
  std::string which;  // "operand 0", "output 0", "input 1" of a checkpoint
  Tensor tensor;      // without its history
};
// The tensors that the tape of `output` saves, in the order in which they were recorded.
std::vector<SavedTensor> saved_tensors(const Tensor& output);
// The bytes of all storages among them, each counted once.
std::size_t saved_bytes(std::span<const SavedTensor> saved);
// One line a tensor, and the sum.
std::string to_string(std::span<const SavedTensor> saved);

// --- Gradients in one flat tensor ---

namespace core {

// Leaves of one dtype and device whose gradients are views of one flat tensor: a backward fills it
// with one op, however many leaves there are.
class GradientGroup {
 public:
  explicit GradientGroup(std::vector<Tensor> leaves);
  ~GradientGroup();
  GradientGroup(const GradientGroup&) = delete;
  GradientGroup& operator=(const GradientGroup&) = delete;

  // Whether some group collects the gradient of x.
  static bool holds(const Tensor& x);

  std::span<const Tensor> leaves() const;
  Tensor flat() const;  // undefined when nothing has been collected
  // Replaces the leaves' gradients by parts of a flat tensor, as set_grad does for one leaf: by
  // gradients that were averaged over processes, for example.
  void set_flat(const Tensor& gradients);
  void clear();  // zero_grad of every leaf

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace core

}  // namespace brrr
