// What a trace learns of the tape: which gradients a step changes, and whether a gradient is being
// computed now.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace brrr::autograd {

// Writes down the gradients of leaves that this thread changes while it lives; then each gradient
// is what it was.
class Journal {
 public:
  Journal();
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // A leaf, or the first leaf of a group, with its gradient, or the group's flat one.
  struct Change {
    Tensor leaf;
    Tensor before;
    bool depends;  // what came of it depends on what was there: it was added to, and not replaced
  };
  const std::vector<Change>& changes() const { return changes_; }

 private:
  friend void note_change(TensorImpl* leaf, bool depends);
  std::vector<Change> changes_;
};

// Call before the gradient of a leaf becomes another tensor, which `depends` on the one before, or
// on there being none.
void note_change(TensorImpl* leaf, bool depends = false);

// The gradient of a leaf, or that of its group: what a journal writes down and gives back.
Tensor collected(const Tensor& leaf);
void set_collected(const Tensor& leaf, const Tensor& gradient);  // undefined: forgets it

// Who holds the gradient of a leaf, or of its group, beside one handle to it: the tape's own views
// of the same storage, and whether anybody has a handle of the tape's.
struct Hold {
  std::uint32_t views = 0;
  bool by_others = false;
};
Hold hold_of(const Tensor& leaf);

// Whether a backward is under way on this thread.
extern thread_local constinit int runs_under_way;

}  // namespace brrr::autograd
