#include "brrr/ops/cpu/body_walk.h"

#include <algorithm>
#include <set>

#include "brrr/ops/body_kernel.h"
#include "brrr/ops/jit/cpu_lanes.h"
#include "brrr/ops/jit/render.h"

namespace brrr::on_cpu {
namespace {

// The first input that has an element for each of the space.
int lead(const jit::Body& body) {
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    if (body.inputs[i].scope == jit::Body::Scope::element) return static_cast<int>(i);
  }
  return 0;
}

// Elements of a row are combined in the order that eager has for the reduced tensor.
void order_rows(const BodySpec& spec, BodyWalk& to) {
  StridedSpace kept, reduced;
  kept.operands = reduced.operands = 1;
  for (int d = 0; d < spec.dims.size(); ++d) {
    StridedSpace& space = spec.reduced >> d & 1 ? reduced : kept;
    space.stride[0][space.rank] = spec.order[d];
    space.add_dim(spec.dims[d]);
  }
  // The strides of all operands follow those that order the dimensions.
  for (int k = 0; k < to.reduced.operands; ++k)
    std::ranges::copy(to.reduced.stride[k], reduced.stride[k + 1]);
  reduced.operands = to.reduced.operands + 1;
  sort_dims(reduced);
  for (int k = 0; k < to.reduced.operands; ++k)
    std::ranges::copy(reduced.stride[k + 1], to.reduced.stride[k]);
  std::ranges::copy(reduced.size, to.reduced.size);
  coalesce(to.reduced);
  reduced.operands = 1;
  sort_dims(kept);
  coalesce(kept);
  coalesce(reduced);
  to.order = jit::cpu_order(kept, reduced, 0);
}

// Whether several passes over a row compute a function such as exp, or draw, for the same elements.
bool computes_again(const jit::Body& body) {
  std::set<int> computed;
  for (const jit::pieces::RowPass& pass : jit::pieces::passes_of(body)) {
    for (const int value : pass.elements) {
      const jit::BodyValue& v = body.value(value);
      const bool is_long = v.kind == jit::BodyValue::Kind::draw || v.expression.functions() > 0;
      if (is_long && !computed.insert(value).second) return true;
    }
  }
  return false;
}

}  // namespace

BodyWalk walk_of(const BodySpec& spec, std::span<const Dims> strides) {
  BodyWalk of;
  of.space = space_of(spec, strides, ~spec.reduced);
  of.reduced = space_of(spec, strides, spec.reduced);
  sort_dims(of.space);
  coalesce(of.space);
  if (spec.order.empty()) {
    coalesce(of.reduced);
    if (spec.body.reduces()) of.order = jit::cpu_order(of.space, of.reduced, lead(spec.body));
  } else {
    order_rows(spec, of);
  }
  of.walk = jit::cpu_walk(spec.body, of.space, of.reduced, of.order);
  return of;
}

bool repeats_functions(const BodySpec& spec, std::span<const Dims> strides) {
  return spec.body.reduces() && computes_again(spec.body) && !walk_of(spec, strides).walk.keeps;
}

}  // namespace brrr::on_cpu
