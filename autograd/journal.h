// What a trace learns of the tape: which gradients a step looks at and changes, and whether a
// gradient is being computed now.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

// Writes down the gradients of leaves that this thread looks at or changes while it lives; then
// each is what it was.
class Journal {
 public:
  Journal();
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // A leaf, or the first leaf of a group, with its gradient, or the group's flat one.
  struct Entry {
    Tensor leaf;
    Tensor before;
    bool depends;  // somebody looked at what was there, or added to it, before it was replaced
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  friend void note(TensorImpl* leaf, bool depends);
  std::vector<Entry> entries_;
};

// Call before the gradient of a leaf becomes another tensor, which `depends` on the one before, or
// on there being none.
void note_change(TensorImpl* leaf, bool depends = false);
// Call before somebody is told of a leaf's gradient, or that there is none.
void note_look(TensorImpl* leaf);

// The gradient of a leaf, or that of its group: what a journal writes down and gives back.
Tensor collected(const Tensor& leaf);
void set_collected(const Tensor& leaf, const Tensor& gradient);  // undefined: forgets it
// Of the group that collects the leaf's gradient; 0: there is none.
std::uint64_t group_of(const Tensor& leaf);
// Held while gradients of leaves that other threads may share are added to.
std::recursive_mutex& collecting();

// The tape's own views of a leaf's gradient, or of its group's, beside the handle to it, and
// whether anybody has a handle to one of them.
struct Views {
  std::uint32_t count = 0;
  bool held = false;
};
Views views_of_gradient(const Tensor& leaf);

// How many backward runs this thread is in.
extern thread_local constinit int runs_under_way;

// The number of the recomputation that this thread is in, no other's on it; 0: none.
extern thread_local constinit int current_recomputation;
class Recomputation {
 public:
  Recomputation();
  ~Recomputation() { current_recomputation = before_; }
  Recomputation(const Recomputation&) = delete;
  Recomputation& operator=(const Recomputation&) = delete;

 private:
  int before_;
};

}  // namespace brrr::autograd
