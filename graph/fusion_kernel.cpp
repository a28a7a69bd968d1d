// Turns the accesses of a group into inputs and outputs of a body.
#include "brrr/graph/fusion_kernel.h"

#include <algorithm>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/ops/attention.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/ops/jit/contraction.h"
#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::graph {
namespace {

using std::int64_t;

jit::Body::Scope scope_of(const Group& group, const Dims& strides) {
  bool row = false, column = false;
  for (int d = 0; d < group.rank(); ++d) {
    if (strides[d] != 0) (group.reduced[d] ? column : row) = true;
  }
  using Scope = jit::Body::Scope;
  if (!group.reduces()) return row ? Scope::element : Scope::one;
  return row && column ? Scope::element : row ? Scope::row : column ? Scope::column : Scope::one;
}

// The access over the whole space of a group. A written value has size 1 in dimensions in which it
// is stored once.
Value value_of(const Group& group, const Access& access, bool written) {
  Value value{access.buffer, access.dtype, {}, {}, access.offset};
  for (int d = 0; d < group.rank(); ++d) {
    value.shape.push_back(written && access.strides[d] == 0 ? 1 : group.sizes[d]);
    value.strides.push_back(access.strides[d]);
  }
  if (value.shape.empty()) {
    value.shape.push_back(1);
    value.strides.push_back(1);
  }
  return value;
}

// How eager's CPU kernel combines the elements of a row.
struct RowOrder {
  std::vector<int64_t> dims;  // reduced dimensions longer than 1, outermost first
  jit::CpuOrder within;

  bool operator==(const RowOrder&) const = default;
};

RowOrder row_order(const BodySpec& spec, const Dims& strides) {
  StridedSpace kept, reduced;
  kept.operands = reduced.operands = 1;
  for (int d = 0; d < spec.dims.size(); ++d) {
    if (spec.dims[d] == 1) continue;
    const bool combined = spec.reduced >> d & 1;
    StridedSpace& space = combined ? reduced : kept;
    space.stride[0][space.rank] = strides[d];
    space.add_dim(combined ? d : spec.dims[d]);  // its number, while dimensions are sorted
  }
  sort_dims(kept);
  sort_dims(reduced);
  RowOrder order;
  for (int d = 0; d < reduced.rank; ++d) {
    order.dims.push_back(reduced.size[d]);
    reduced.size[d] = spec.dims[static_cast<int>(reduced.size[d])];
  }
  coalesce(kept);
  coalesce(reduced);
  order.within = jit::cpu_order(kept, reduced, 0);
  return order;
}

}  // namespace

BodySpec space_of(const Group& group) {
  BodySpec spec;
  for (int d = 0; d < group.rank(); ++d) {
    spec.dims.push_back(group.sizes[d]);
    spec.reduced |= static_cast<std::uint32_t>(group.reduced[d]) << d;
  }
  if (spec.dims.empty()) spec.dims.push_back(1);
  return spec;
}

std::vector<std::uint32_t> dims_of_values(const FusedKernel& kernel) {
  using Kind = jit::BodyValue::Kind;
  std::vector<std::uint32_t> dims;
  for (const jit::BodyValue& value : kernel.spec->body.values) {
    std::uint32_t of = 0;
    for (const int operand : value.operands) of |= dims[operand];
    if (value.kind == Kind::input) {
      const Dims& strides = kernel.inputs[value.number].strides;
      for (int d = 0; d < strides.size(); ++d) of |= strides[d] != 0 ? 1u << d : 0u;
    }
    if (value.kind == Kind::reduction || value.kind == Kind::contraction)
      of &= ~kernel.spec->reduced;
    if (value.kind == Kind::column_reduction) of &= kernel.spec->reduced;
    dims.push_back(of);
  }
  return dims;
}

int number_of(FusedKernel& kernel, int64_t number) {
  kernel.spec->scalars.push_back(static_cast<std::uint64_t>(number));
  return kernel.spec->body.add_scalar(DType::i64);
}

int index_of(const Group& group, FusedKernel& kernel, BodyReads& reads, const Dims& strides) {
  const auto known = std::ranges::find(reads.coordinates, strides, &std::pair<Dims, int>::first);
  if (known != reads.coordinates.end()) return known->second;
  const int index = kernel.spec->body.add_index(scope_of(group, strides));
  kernel.spec->coordinates.emplace_back(strides);
  reads.coordinates.emplace_back(strides, index);
  return index;
}

namespace {

BodyReads::BodyBound bound_in_body(const Group& group, FusedKernel& kernel, BodyReads& reads,
                                   const AffineBound& bound) {
  const auto known = std::ranges::find(reads.bounds, bound, &BodyReads::BodyBound::bound);
  if (known != reads.bounds.end()) return *known;
  BodyReads::BodyBound found{bound, index_of(group, kernel, reads, bound.strides), 0, 0};
  found.low = number_of(kernel, -bound.offset);
  found.high = number_of(kernel, bound.size - bound.offset);
  reads.bounds.push_back(found);
  return found;
}

// Registers the body's last input, which has bounds or an address. `value`: the elements that may
// be read.
void add_placed(const Group& group, FusedKernel& kernel, BodyReads& reads, const Access& access,
                const Value& value) {
  jit::Body& body = kernel.spec->body;
  const std::size_t number = body.inputs.size() - 1;
  for (const AffineBound& bound : access.bounds) {
    const BodyReads::BodyBound found = bound_in_body(group, kernel, reads, bound);
    body.inputs[number].scope = jit::Body::Scope::element;
    body.inputs[number].bounds.push_back({body.value(found.index).number,
                                          body.value(found.low).number,
                                          body.value(found.high).number});
  }
  kernel.spec->placed.push_back(
      {static_cast<int>(number), Dims(access.strides), access.offset - value.offset});
  kernel.inputs.push_back(value);
}

}  // namespace

int coordinate_of(const Group& group, FusedKernel& kernel, BodyReads& reads,
                  const Access& coordinate) {
  const int index = index_of(group, kernel, reads, coordinate.strides);
  if (coordinate.offset == 0) return index;
  return kernel.spec->body.add_expression("a + b", DType::i64, DType::i64,
                                          {index, number_of(kernel, coordinate.offset)});
}

int input_of(const Group& group, FusedKernel& kernel, BodyReads& reads, const Access& access,
             const Value& value) {
  // The base address alone does not determine which elements are read, so addressed inputs must
  // also have equal values.
  const auto known = std::ranges::find_if(reads.inputs, [&](const auto& input) {
    return input.first == access && (!access.address || kernel.inputs[input.second] == value);
  });
  if (known != reads.inputs.end()) return known->second;
  jit::Body& body = kernel.spec->body;
  const jit::Body::Scope scope = scope_of(group, access.strides);
  int input;
  if (access.address) {
    input = static_cast<int>(body.inputs.size());
    body.inputs.push_back({access.dtype, scope, 0, {}});
  } else {
    input = body.add_input(access.dtype, scope);
  }
  reads.inputs.emplace_back(access, input);
  if (access.bounds.empty() && !access.address) {
    kernel.inputs.push_back(value_of(group, access, false));
  } else {
    add_placed(group, kernel, reads, access, value);
  }
  return input;
}

int block_value(const Group& group, FusedKernel& kernel, BodyReads& reads, const Node& node,
                const Member& member, std::span<const int> operands) {
  jit::Body& body = kernel.spec->body;
  // A single input that is zero outside of its bounds is already the result.
  if (operands.size() == 1 && body.value(operands[0]).kind == jit::BodyValue::Kind::input &&
      body.value(operands[0]).dtype == node.outputs[0].dtype &&
      !body.inputs[body.value(operands[0]).number].bounds.empty())
    return operands[0];
  std::vector<int> inside;
  for (const Access& input : member.inputs) {
    const BodyReads::BodyBound found = bound_in_body(group, kernel, reads, input.bounds[0]);
    inside.push_back(jit::add_within(body, found.index, found.low, found.high));
  }
  return jit::add_blocks(body, node.call, node.outputs[0].dtype, operands, inside,
                         kernel.spec->scalars);
}

std::optional<WhyNotFused> add_outputs(const Group& group,
                                       std::vector<std::pair<const Access*, int>>& stored,
                                       FusedKernel& kernel) {
  jit::Body& body = kernel.spec->body;
  // If several writes store the same elements, only the last is kept.
  for (std::size_t i = 0; i < stored.size();) {
    const bool again =
        std::any_of(stored.begin() + static_cast<std::ptrdiff_t>(i) + 1, stored.end(),
                    [&](const auto& later) { return *later.first == *stored[i].first; });
    if (again) {
      stored.erase(stored.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  const std::vector<jit::Level> levels = jit::levels_of(body);
  const bool contracts = body.contraction() >= 0;
  const auto varies = contracts ? dims_of_values(kernel) : std::vector<std::uint32_t>();
  for (const auto& [access, value] : stored) {
    const bool of_columns = levels[value].of_columns;
    const bool of_rows = group.reduces() && levels[value].per_row();
    for (int d = 0; d < group.rank(); ++d) {
      // A reduction of one factor of a product has one result per row, or per column, of the
      // product.
      const bool once = contracts && !(varies[value] >> d & 1);
      const bool combined = group.reduced[d] ? of_rows : of_columns;
      const bool along = !combined && !once;
      if (along != (access->strides[d] != 0)) return WhyNotFused::partial_store;
    }
    body.add_output(value, access->dtype);
    kernel.outputs.push_back(value_of(group, *access, true));
  }
  return over_limits(body.strided(), body.values.size(), body.scalars.size() + body.checks.size(),
                     body.outputs.empty());
}

std::optional<WhyNotFused> over_limits(std::size_t operands, std::size_t values,
                                       std::size_t scalars, bool without_outputs) {
  using jit::Body;
  if (operands > Body::kMostOperands) return WhyNotFused::too_many_operands;
  if (without_outputs || scalars > Body::kMostNumbers || values > Body::kMostValues)
    return WhyNotFused::too_many_values;
  return {};
}

namespace {

// Whether the factors of a product begin at multiples of 16 bytes.
bool has_aligned_factors(const Graph& graph, const FusedKernel& kernel) {
  const jit::Body& body = kernel.spec->body;
  if (jit::has_computed_factor(body)) return false;
  return std::ranges::all_of(body.value(body.contraction()).operands, [&](int operand) {
    const Value& factor = kernel.inputs[body.value(operand).number];
    const Buffer& buffer = graph.buffers[factor.buffer];
    std::size_t begin = buffer.misalignment;
    if (buffer.kind == Buffer::Kind::captured)
      begin = reinterpret_cast<std::uintptr_t>(TensorImpl::of(buffer.captured)->storage->data);
    return (begin + static_cast<std::size_t>(factor.offset) * size_of(factor.dtype)) % 16 == 0;
  });
}

}  // namespace

bool contracts(const Graph& graph, const FusedKernel& kernel) {
  const jit::Body& body = kernel.spec->body;
  return kernel.spec->placed.empty() && body.indices.empty() && jit::has_separate_factors(body) &&
         is_generated(graph.device, *kernel.spec, strides_of(kernel),
                      has_aligned_factors(graph, kernel));
}

bool is_better_alone(const Graph& graph, const FusedKernel& kernel) {
  return is_better_alone(graph.device, *kernel.spec, strides_of(kernel),
                         has_aligned_factors(graph, kernel));
}

int64_t unread_bytes(const FusedKernel& kernel) {
  const jit::Body& body = kernel.spec->body;
  const std::vector<jit::Level> levels = jit::levels_of(body);
  int64_t unread = 0;
  for (std::size_t i = 0; i < body.values.size(); ++i) {
    if (body.values[i].kind != jit::BodyValue::Kind::gathered) continue;
    int64_t read = static_cast<int64_t>(size_of(body.values[i].dtype));
    for (int d = 0; d < kernel.spec->dims.size(); ++d) {
      const bool once = body.reduces() && levels[i].per_row() && (kernel.spec->reduced >> d & 1);
      read *= once ? 1 : kernel.spec->dims[d];
    }
    const Value& input = kernel.inputs[body.values[i].number];
    unread += std::max<int64_t>(0, bytes_moved({&input, 1}, {}) - read);
  }
  return unread;
}

std::vector<Dims> strides_of(const FusedKernel& kernel) {
  std::vector<Dims> strides;
  for (const Value& value : kernel.inputs) strides.push_back(value.strides);
  for (const Value& value : kernel.outputs) strides.push_back(value.strides);
  return strides;
}

int64_t flops_of(const Node& node) {
  const OpInfo& op = op_info(node.call.op);
  if (is_attention(node.call.op)) {
    const Dims& keys = node.inputs[1].shape;
    return attention_flops(node.call.op, node.inputs[0].numel(), keys[keys.size() - 2]);
  }
  const Value& elements = op.kind == OpKind::reduction ? node.inputs[0] : node.outputs[0];
  if (op.algebra == Algebra::contraction) {
    const Dims& of_a = node.inputs[0].shape;
    return (2 * of_a[of_a.size() - 1] + static_cast<int64_t>(node.inputs.size()) - 2) *
           elements.numel();
  }
  return op.element_flops * elements.numel() + op.result_flops * node.outputs[0].numel();
}

// The 16-bit elements that a kernel converts. Not called for products, which convert few: factors
// of small ones, and operands of epilogues.
int64_t conversions_of(std::span<const Value> inputs, std::span<const Value> outputs) {
  int64_t elements = 0;
  for (const std::span<const Value> values : {inputs, outputs}) {
    for (const Value& value : values) {
      if (size_of(value.dtype) == 2 && is_floating(value.dtype))
        elements += distinct_bytes(value.dtype, value.shape, value.strides) / 2;
    }
  }
  return elements;
}

Work work_of(const Node& node, Device device) {
  Work work;
  work.bytes = bytes_moved(node);
  work.wide = !node.outputs.empty() && node.outputs[0].dtype == f64;
  for (const BodySpec* body = node.body.get(); body; body = body->next.get()) {
    if (work.product_flops == 0) work.factors = body->factors;
    work.flops += body->flops;
    work.product_flops += body->product_flops;
    work.functions += body->functions;
    work.draws += body->draws;
  }
  if (work.product_flops == 0) work.conversions = conversions_of(node.inputs, node.outputs);
  if (work.product_flops > 0) work.type = product_type(node.inputs[0].dtype, device);
  if (node.body || node.outputs.empty()) return work;
  work.flops = flops_of(node);
  work.functions = functions_of(node.call, node.outputs[0].numel());
  work.draws = draws_of(node.call, node.outputs[0].numel());
  if (op_info(node.call.op).algebra != Algebra::contraction && !is_attention(node.call.op))
    return work;
  work.conversions = 0;
  work.product_flops = work.flops;
  work.type = product_type(node.inputs[0].dtype, device);
  if (!is_attention(node.call.op)) {
    const Value &a = node.inputs[0], &b = node.inputs[1];
    work.factors = order_of_factors(a.shape, a.strides, b.shape, b.strides);
  }
  return work;
}

Work work_of(const FusedKernel& kernel, Device device) {
  Work work;
  work.bytes = bytes_moved(kernel.inputs, kernel.outputs) - kernel.spec->unread;
  work.flops = kernel.spec->flops;
  work.wide = kernel.outputs[0].dtype == f64;
  work.product_flops = kernel.spec->product_flops;
  work.factors = kernel.spec->factors;
  work.functions = kernel.spec->functions;
  work.draws = kernel.spec->draws;
  if (work.product_flops == 0) work.conversions = conversions_of(kernel.inputs, kernel.outputs);
  const jit::Body& body = kernel.spec->body;
  if (const int product = body.contraction(); product >= 0)
    work.type = product_type(body.value(body.value(product).operands[0]).dtype, device);
  return work;
}

void add_work(BodySpec& spec, const Work& work) {
  spec.flops += work.flops;
  if (spec.product_flops == 0) spec.factors = work.factors;
  spec.product_flops += work.product_flops;
  spec.functions += work.functions;
  spec.draws += work.draws;
}

bool combines_alike(const BodySpec& spec, const Dims& one, const Dims& other) {
  return std::ranges::equal(one, other) || row_order(spec, one) == row_order(spec, other);
}

bool mixes_directions(const FusedKernel& kernel) {
  if (kernel.spec->body.contraction() >= 0) return false;
  bool along[2] = {false, false};
  const auto look = [&](const Value& value) {
    if (value.shape.size() != kernel.spec->dims.size()) return;
    int64_t least[2] = {INT64_MAX, INT64_MAX};  // of kept and of reduced dimensions
    for (int d = 0; d < value.shape.size(); ++d) {
      int64_t& step = least[kernel.spec->reduced >> d & 1];
      if (value.strides[d] != 0 && value.shape[d] > 1) step = std::min(step, value.strides[d]);
    }
    if (least[0] != INT64_MAX && least[1] != INT64_MAX) along[least[1] < least[0]] = true;
  };
  std::ranges::for_each(kernel.inputs, look);
  std::ranges::for_each(kernel.outputs, look);
  return along[0] && along[1];
}

}  // namespace brrr::graph
