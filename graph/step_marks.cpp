// What a function says about its step while it is traced: values to keep, to recompute, to fuse.
#include "brrr/graph/compile.h"
#include "brrr/graph/remat.h"
#include "brrr/graph/trace.h"
#include "brrr/tensor/fail.h"

namespace brrr {

Remat Remat::budget(double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    fail("[Remat::budget] expected a fraction above 0 and at most 1, got {}", fraction);
  return Remat(Kind::budget, fraction);
}

void core::mark_for_remat(const Tensor& x, bool recomputed) {
  if (!x.defined())
    fail("[remat::{}] expected tensors, got an undefined one", recomputed ? "recompute" : "save");
  graph::Trace::mark_for_remat(x, recomputed);
}

void core::mark_for_remat(std::string_view name, bool recomputed) {
  graph::Trace::mark_for_remat(name, recomputed);
}

void require_fused(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined())
    fail("[require_fused] expected two tensors, got an undefined one");
  graph::Trace::require_fused(a, b);
}

}  // namespace brrr
