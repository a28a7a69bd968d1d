// Leaves whose gradients nothing has read, replaced or cleared since a backward added to them, such
// as those of a module that its parent does not know.
#pragma once

#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::autograd {

struct History;

struct UnreadLeaf {
  const History* history;  // it and `impl` may be gone when a caller has this
  const TensorImpl* impl;
  DType dtype;
  Dims shape;
  int backwards = 0;              // that added to its gradient
  const void* seen_by = nullptr;  // who called mark_seen last, and after how many backwards
  int seen_backwards = 0;
};

// Whether there are any.
bool has_unread();
std::vector<UnreadLeaf> unread_leaves();
void mark_seen(const UnreadLeaf& leaf, const void* by);
void forget(const UnreadLeaf& leaf);
// Its gradient is in use: it is never among them again.
void mark_read(const Tensor& leaf);
void mark_read(const History& history);

// A backward adds to the leaf's gradient. Costs a test for leaves that were marked.
void note_backward(History& history, const TensorImpl& leaf);

}  // namespace brrr::autograd
