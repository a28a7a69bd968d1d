#include "brrr/graph/fusion_indexed.h"

#include <utility>

#include "brrr/graph/passes.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/tensor/dims.h"

namespace brrr::graph {
namespace {

using std::int64_t;
using Kind = jit::BodyValue::Kind;

bool gathers(const OpInfo& op) { return op.algebra == Algebra::gathering; }
bool scatters(const OpInfo& op) { return op.algebra == Algebra::scattering; }
bool draws(const OpInfo& op) { return op.effect == Effect::draws; }
bool checks(const OpInfo& op) {
  return op.effect == Effect::checks && op.algebra == Algebra::identity;
}

// The dimension that a gather or scatter indexes.
int indexed_dim(const Node& node) { return static_cast<int>(node.call.attrs[0].i()); }

int64_t stride_along(const Value& value, int dim) {
  return value.shape[dim] > 1 ? value.strides[dim] : 0;
}

Dims zero_strides(const Dims& shape) { return Dims::filled(shape.size(), 0); }

// A linear function of the coordinates of a result, without dimensions of size 1.
Access function_of(const Dims& shape, const Dims& strides) {
  Access access;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) access.strides.push_back(strides[d]);
  }
  return access;
}

// The access of a value over the dimensions of a result, with stride `along` in dimension `dim`.
Access access_of(const Value& value, const Dims& shape, int dim, int64_t along) {
  Dims strides;
  for (int d = 0; d < shape.size(); ++d)
    strides.push_back(d == dim ? along : stride_along(value, d));
  Access access = function_of(shape, strides);
  access.buffer = value.buffer;
  access.dtype = value.dtype;
  access.offset = value.offset;
  return access;
}

// The position of an element of `shape`, as strides.
Dims position_strides(const Dims& shape) {
  Dims strides = contiguous_strides(shape);
  for (int d = 0; d < shape.size(); ++d) strides[d] = shape[d] == 1 ? 0 : strides[d];
  return strides;
}

Member gather_member(const Node& node, int number) {
  const Value &x = node.inputs[0], &index = node.inputs[1];
  const Dims& shape = node.outputs[0].shape;
  const int dim = indexed_dim(node);
  Member member{number, {}, {}};
  member.inputs.push_back(access_of(x, shape, dim, 0));
  member.inputs.back().address = true;
  if (index.shape.size() == shape.size()) {
    member.inputs.push_back(access_of(index, shape, dim, stride_along(index, dim)));
    member.coordinates.push_back(function_of(shape, position_strides(index.shape)));
    return member;
  }
  // One index for all elements at a place along the dimension.
  const Value along{index.buffer, index.dtype, shape, zero_strides(shape), index.offset};
  member.inputs.push_back(access_of(along, shape, dim, index.strides[0]));
  Dims place = zero_strides(shape);
  place[dim] = 1;
  member.coordinates.push_back(function_of(shape, place));
  return member;
}

// Adds to one element of each line along the dimension: the one whose coordinate equals the index.
Member scatter_member(const Node& node, int number) {
  const Dims& shape = node.outputs[0].shape;
  const int dim = indexed_dim(node);
  Member member{number, {}, {}};
  member.inputs = {
      access_of(node.inputs[0], shape, dim, stride_along(node.inputs[0], dim)),
      access_of(node.inputs[1], shape, dim, 0),
      access_of(node.inputs[2], shape, dim, 0),
  };
  Dims along = zero_strides(shape);
  along[dim] = 1;
  member.coordinates = {function_of(shape, along),
                        function_of(shape, position_strides(node.inputs[1].shape))};
  return member;
}

Member draw_member(const Node& node, int number) {
  const Dims& shape = node.outputs[0].shape;
  const Value& state = node.inputs[0];
  Member member{number, {}, {}};
  member.inputs.push_back(function_of(shape, zero_strides(shape)));
  member.inputs[0].buffer = state.buffer;
  member.inputs[0].dtype = state.dtype;
  member.inputs[0].offset = state.offset;
  member.inputs[0].address = true;
  member.coordinates.push_back(function_of(shape, position_strides(shape)));
  return member;
}

Member check_member(const Node& node, int number) {
  const Dims& shape = node.outputs[0].shape;
  return {number,
          {access_of(node.inputs[0], shape, -1, 0)},
          {},
          {function_of(shape, position_strides(shape))}};
}

}  // namespace

bool is_indexed(const OpInfo& op) {
  return op.kind == OpKind::structured && (gathers(op) || scatters(op) || draws(op) || checks(op));
}

bool gathers_rows(const Node& node) {
  if (!gathers(op_info(node.call.op))) return false;
  const Group group = indexed_group(node, 0);
  const Member& member = group.members[0];
  return group.rank() > 0 && member.inputs[0].strides.back() == 1 &&
         member.inputs[1].strides.back() == 0 && group.sizes.back() > 1;
}

int gather_before_conversions(Graph& graph) {
  const Flow flow(graph);
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = nodes.emplace_back(graph.nodes[i]);
    const int producer = gathers(op_info(node.call.op)) && graph.is_temporary(node.inputs[0].buffer)
                             ? flow.producer(node.inputs[0].buffer)
                             : Flow::kNone;
    if (producer == Flow::kNone) continue;
    Node conversion = graph.nodes[producer];
    if (op_info(conversion.call.op).algebra != Algebra::conversion) continue;
    const Value& from = conversion.inputs[0];
    const int number = static_cast<int>(i);
    if (node.inputs[0] != conversion.outputs[0] || from.shape != node.inputs[0].shape ||
        flow.version(from.buffer, producer) != flow.version(from.buffer, number) ||
        node.outputs[0].numel() >= from.numel())
      continue;
    const Value gathered = graph.add_temporary(from.dtype, node.outputs[0].shape);
    node.call.dtype = from.dtype;
    node.inputs[0] = from;
    conversion.inputs[0] = gathered;
    conversion.outputs[0] = std::exchange(node.outputs[0], gathered);
    conversion.recomputation = node.recomputation;
    static_cast<Origin&>(conversion) = node;
    nodes.push_back(std::move(conversion));
  }
  graph.nodes = std::move(nodes);
  return remove_dead(graph);
}

bool may_report(const Node& node) {
  const OpInfo& op = op_info(node.call.op);
  return is_indexed(op) && !draws(op);
}

bool is_fusable_indexed(const Node& node) {
  const OpInfo& op = op_info(node.call.op);
  const Value& result = node.outputs[0];
  const auto all = [&](auto holds) {
    for (int d = 0; d < result.shape.size(); ++d) {
      if (!holds(d)) return false;
    }
    return true;
  };
  if (node.call.in_place || result.shape.empty()) return false;
  if (!scatters(op)) return true;
  const Value& index = node.inputs[1];
  const int dim = indexed_dim(node);
  return is_floating(result.dtype) && index.shape[dim] == 1 &&
         all([&](int d) { return d == dim || index.shape[d] == result.shape[d]; });
}

Group indexed_group(const Node& node, int number) {
  const OpInfo& op = op_info(node.call.op);
  const Value& result = node.outputs[0];
  Group group;
  for (const int64_t size : result.shape) {
    if (size != 1) group.sizes.push_back(size);
  }
  group.reduced.assign(group.sizes.size(), false);
  Member member = gathers(op)    ? gather_member(node, number)
                  : scatters(op) ? scatter_member(node, number)
                  : draws(op)    ? draw_member(node, number)
                                 : check_member(node, number);
  member.outputs.push_back(access_of(result, result.shape, -1, 0));
  group.members.push_back(std::move(member));
  return group;
}

namespace {

// Appends a check of operand `value`; `more`: the further operands of the check.
int add_check(FusedKernel& kernel, const Node& node, Kind kind, DType type, int value,
              std::initializer_list<int> more) {
  jit::Body& body = kernel.spec->body;
  jit::BodyValue check;
  check.kind = kind;
  check.type = type;
  check.dtype = kind == Kind::index_check ? DType::i64 : body.value(value).dtype;
  check.number = static_cast<int>(body.checks.size());
  check.operands = {value};
  check.operands.insert(check.operands.end(), more);
  body.checks.push_back(node.composite ? node.composite : op_info(node.call.op).name);
  return body.add(std::move(check));
}

int checked_index(FusedKernel& kernel, const Node& node, int index, int64_t size, int position) {
  return add_check(kernel, node, Kind::index_check, DType::i64, index,
                   {number_of(kernel, size), position});
}

// Appends the value of an addressed input. `operands`: as its kind requires.
int addressed_value(FusedKernel& kernel, Kind kind, DType dtype, int input,
                    std::vector<int> operands) {
  jit::BodyValue value;
  value.kind = kind;
  value.dtype = value.type = dtype;
  value.number = input;
  value.operands = std::move(operands);
  return kernel.spec->body.add(std::move(value));
}

int gathered_value(FusedKernel& kernel, const Node& node, int input, int index, int position) {
  const Value& x = node.inputs[0];
  const int dim = indexed_dim(node);
  int moved = checked_index(kernel, node, index, x.shape[dim], position);
  if (x.strides[dim] != 1)
    moved = kernel.spec->body.add_expression("a * b", DType::i64, DType::i64,
                                             {moved, number_of(kernel, x.strides[dim])});
  return addressed_value(kernel, Kind::gathered, x.dtype, input, {moved});
}

int scattered_value(FusedKernel& kernel, const Node& node, std::span<const int> operands, int place,
                    int position) {
  jit::Body& body = kernel.spec->body;
  const Value& result = node.outputs[0];
  const int index =
                checked_index(kernel, node, operands[1], result.shape[indexed_dim(node)], position),
            here = body.add_expression("a == b", DType::i64, DType::boolean, {place, index}),
            sum = body.add_expression("a + b", result.dtype, result.dtype,
                                      {operands[0], operands[2]}),
            chosen = body.add_expression("where(a, b, c)", result.dtype, result.dtype,
                                         {here, sum, operands[0]});
  body.values.back().select = true;
  return chosen;
}

int checked_value(FusedKernel& kernel, const Node& node, int value, int position) {
  const DType type = is_floating(node.inputs[0].dtype) ? DType::f64 : DType::i64;
  const auto bound = [&](int k) {
    kernel.spec->scalars.push_back(
        jit::scalar_bits(node.call.attrs[k], is_floating(node.call.dtype), type));
    return kernel.spec->body.add_scalar(type);
  };
  const int low = bound(0), high = bound(1);
  return add_check(kernel, node, Kind::range_check, type, value, {low, high, position});
}

}  // namespace

int indexed_value(const Group& group, FusedKernel& kernel, BodyReads& reads, const Node& node,
                  const Member& member, std::span<const int> operands) {
  const OpInfo& op = op_info(node.call.op);
  if (draws(op)) {
    const Access& place = member.coordinates[0];
    std::vector<int> of_draw = {number_of(kernel, node.call.attrs[0].i()),
                                index_of(group, kernel, reads, place.strides),
                                number_of(kernel, place.offset)};
    if (node.outputs[0].dtype == boolean)
      of_draw.push_back(number_of(kernel, node.call.attrs[1].i()));  // the threshold
    const int drawn =
        addressed_value(kernel, Kind::draw, node.outputs[0].dtype, operands[0], std::move(of_draw));
    kernel.spec->body.values.back().draw = op.algebra;
    return drawn;
  }
  std::vector<int> coordinates;
  for (const Access& coordinate : member.coordinates)
    coordinates.push_back(coordinate_of(group, kernel, reads, coordinate));
  if (gathers(op)) return gathered_value(kernel, node, operands[0], operands[1], coordinates[0]);
  if (scatters(op)) return scattered_value(kernel, node, operands, coordinates[0], coordinates[1]);
  return checked_value(kernel, node, operands[0], coordinates[0]);
}

}  // namespace brrr::graph
