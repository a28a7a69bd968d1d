// The journal of a trace: which gradients of leaves a step reads and replaces.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

// Records the gradients of leaves that this thread reads or replaces while the journal exists; its
// destructor restores them.
class Journal {
 public:
  Journal();
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // A leaf with its gradient; for a group, its first leaf with the flat gradient.
  struct LeafGradient {
    Tensor leaf;
    Tensor before;
    bool depends;  // the gradient was read, or added to, before it was replaced
  };
  const std::vector<LeafGradient>& leaf_gradients() const { return leaf_gradients_; }

 private:
  friend void note(TensorImpl* leaf, bool depends);
  std::vector<LeafGradient> leaf_gradients_;
};

// Records that a leaf's gradient is about to be replaced. `depends`: the new value is computed from
// the old one, or from its absence.
void note_gradient_change(TensorImpl* leaf, bool depends = false);
// Records that a leaf's gradient, or its absence, is about to be read.
void note_gradient_read(TensorImpl* leaf);

// The gradient of a leaf, or the flat gradient of its group: the tensor that a journal records.
Tensor collected_gradient(const Tensor& leaf);
void set_collected_gradient(const Tensor& leaf, const Tensor& gradient);  // undefined: forgets it
// The id of the group that collects the leaf's gradient; 0: there is none.
std::uint64_t group_of(const Tensor& leaf);
// All leaves of its group, in the order of their gradients in memory.
std::vector<Tensor> leaves_of_group(const Tensor& leaf);
// Locked while gradients are added to leaves, which other threads may share.
std::recursive_mutex& accumulation_mutex();

// References to a leaf's (or group's) gradient from autograd's own views, not counting the leaf's
// handle; and whether the caller may hold one of these views.
struct Views {
  std::uint32_t count = 0;
  bool has_caller_handle = false;
};
Views views_of_gradient(const Tensor& leaf);

}  // namespace brrr::autograd
