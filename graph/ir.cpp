#include "brrr/graph/ir.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_report.h"
#include "brrr/tensor/counted.h"
#include "brrr/tensor/error.h"

namespace brrr::graph {

std::int64_t Value::numel() const {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}

bool Value::is_contiguous() const {
  std::int64_t expected = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

Value Graph::add_temporary(DType dtype, const Dims& shape) {
  const Value value{static_cast<int>(buffers.size()), dtype, shape, contiguous_strides(shape), 0};
  buffers.push_back({.device = device, .bytes = value.bytes(), .captured = {}});
  return value;
}

Value Graph::add_rows(DType dtype, const Dims& shape) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  Value value{static_cast<int>(buffers.size()), dtype, shape, shape, 0};
  std::int64_t step = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    value.strides[d] = step;
    step *= shape[d];
    if (d == shape.size() - 1) step = (step * size + 15) / 16 * 16 / size;
  }
  buffers.push_back(
      {.device = device, .bytes = static_cast<std::size_t>(step * size), .captured = {}});
  return value;
}

std::size_t misalignment_of(const Tensor& argument) {
  return argument.device().is_cpu() ? 0 : reinterpret_cast<std::uintptr_t>(argument.data()) % 16;
}

namespace {

std::string buffer_name(const Graph& graph, int index) {
  const Buffer& buffer = graph.buffers[index];
  switch (buffer.kind) {
    case Buffer::Kind::captured: return fmt::format("captured{}", index);
    case Buffer::Kind::input: return fmt::format("input{}", buffer.input);
    case Buffer::Kind::constant: return fmt::format("constant{}", index);
    case Buffer::Kind::temporary: break;
  }
  return fmt::format("%{}", index);
}

// The label of a buffer. If several named tensors share it, the label includes its number.
std::string label_of_buffer(const Graph& graph, int index) {
  std::string names;
  int count = 0;
  for (const Name& name : graph.names) {
    if (name.buffer != index) continue;
    names += (count++ ? ", " : "") + name.text;
  }
  if (count == 0) return buffer_name(graph, index);
  return count == 1 ? names : fmt::format("{} ({})", buffer_name(graph, index), names);
}

// The user's name of the tensor that contains a value.
const Name* name_of(const Graph& graph, const Value& value) {
  const Extent extent = extent_of(value.region());
  const auto found = std::ranges::find_if(graph.names, [&](const Name& name) {
    return name.buffer == value.buffer && name.extent.low <= extent.low &&
           extent.high <= name.extent.high;
  });
  return found == graph.names.end() ? nullptr : &*found;
}

std::string name_of(const Node& node) {
  std::string name = op_info(node.call.op).name;
  if (node.fused.empty()) return name + (node.call.in_place ? "_" : "");
  return fmt::format("{}[{}]", name, fmt::join(node.fused, ", "));
}

// The operands of a call, numbers among them, and its attributes.
std::string operands_text(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.call.op);
  std::string text;
  const auto add = [&text](const std::string& part) { text += text.empty() ? part : ", " + part; };
  std::size_t next = 0;
  for (int i = 0; info.kind == OpKind::pointwise && i < info.arity; ++i) {
    add(node.call.is_scalar(i) ? node.call.number_text(i) : describe(graph, node.inputs[next++]));
  }
  while (next < node.inputs.size()) add(describe(graph, node.inputs[next++]));
  for_each_attribute(node.call, [&](const CallAttribute& attribute) {
    add(fmt::format("{}={}", attribute.row.name, attribute.text()));
  });
  return text;
}

std::string results_text(const Graph& graph, const Node& node) {
  std::string text;
  for (const Value& output : node.outputs) {
    text += (text.empty() ? "" : ", ") + describe(graph, output);
  }
  return text;
}

std::vector<std::string> places_of(std::span<const Node> nodes) {
  std::vector<CallSite> sites;
  for (const Node& node : nodes) sites.push_back(node.site);
  return describe(sites);
}

std::string text_of(const Graph& graph, const Output& output) {
  if (output.is_value()) return describe(graph, output.value);
  return output.outside.defined() ? output.outside.describe() : "nothing";
}

std::string text_of(const Graph& graph, const GradientSlot& slot) {
  if (slot.accumulates) return "added to in place";
  return slot.after ? text_of(graph, *slot.after) : "unchanged";
}

std::string text_of(const Graph& graph, const Node& node, const std::string& place) {
  std::string from = node.module >= 0   ? graph.modules[node.module]
                     : node.gradient_of ? node.gradient_of
                                        : "";
  if (!from.empty()) from += ", ";
  return fmt::format("  {} {} {}({})  # {}{}{}\n", results_text(graph, node),
                     node.call.in_place ? "<-" : "=", name_of(node), operands_text(graph, node),
                     node.gradient_of ? "gradient of " : "", from, place);
}

// A leaf by its name, or a group by its first leaf.
std::string leaf_text(const Graph& graph, const GradientSlot& slot) {
  const Tensor& leaf = slot.leaf;
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Tensor& captured = graph.buffers[i].captured;
    if (!captured.defined() || !captured.shares_storage_with(leaf)) continue;
    const Value value{static_cast<int>(i), leaf.dtype(), Dims(leaf.shape()), Dims(leaf.strides()),
                      leaf.storage_offset()};
    if (const Name* const name = name_of(graph, value))
      return (slot.group ? "the group of " : "") + name->text;
  }
  return (slot.group ? "the group of " : "") + leaf.describe();
}

std::string as_text(const Graph& graph) {
  const std::vector<std::string> places = places_of(graph.nodes);
  std::int64_t bytes = 0;
  for (const Node& node : graph.nodes) bytes += bytes_moved(node);
  std::string text = fmt::format("step on {}: {}, {}, {} bytes read and written\n",
                                 to_string(graph.device), counted(std::ssize(graph.nodes), "call"),
                                 counted(std::ssize(graph.buffers), "buffer"), bytes);
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& buffer = graph.buffers[i];
    if (buffer.kind == Buffer::Kind::temporary) continue;
    text +=
        fmt::format("{}: {} bytes\n", label_of_buffer(graph, static_cast<int>(i)), buffer.bytes);
  }
  if (!graph.constants.empty()) text += "once:\n";
  const std::vector<std::string> of_constants = places_of(graph.constants);
  for (std::size_t i = 0; i < graph.constants.size(); ++i)
    text += text_of(graph, graph.constants[i], of_constants[i]);
  std::string part;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string of = fmt::format("{}{}:\n", name_of(node.role),
                                       node.recomputation != 0 ? ", computed again" : "");
    if (std::exchange(part, of) != of) text += of;
    text += text_of(graph, node, places[i]);
  }
  for (const Output& output : graph.outputs)
    text += fmt::format("return {}\n", text_of(graph, output));
  for (const GradientSlot& slot : graph.gradients)
    text += fmt::format("gradient of {}: {}\n", leaf_text(graph, slot), text_of(graph, slot));
  return text;
}

std::string as_dot(const Graph& graph) {
  std::string text = "digraph step {\n  node [shape=box, fontname=monospace];\n";
  const Flow flow(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text +=
        fmt::format("  n{} [label=\"{}\\n{}\"];\n", i, name_of(node), results_text(graph, node));
    for (const Value& input : node.inputs) {
      const int writer = flow.writer_before(input.buffer, static_cast<int>(i));
      const std::string from = writer == Flow::kNone
                                   ? fmt::format("\"{}\"", buffer_name(graph, input.buffer))
                                   : fmt::format("n{}", writer);
      text += fmt::format("  {} -> n{};\n", from, i);
    }
  }
  return text + "}\n";
}

using Json = nlohmann::ordered_json;

Json as_json(const Value& value) {
  const auto list = [](const Dims& dims) {
    return std::vector<std::int64_t>(dims.begin(), dims.end());
  };
  return {{"buffer", value.buffer},
          {"dtype", name_of(value.dtype)},
          {"shape", list(value.shape)},
          {"strides", list(value.strides)},
          {"offset", value.offset}};
}

Json as_json(std::span<const Value> values) {
  Json list = Json::array();
  for (const Value& value : values) list.push_back(as_json(value));
  return list;
}

// A list with one element a line.
std::string lines_of(const Json& list) {
  std::string text;
  for (const Json& each : list) {
    text += text.empty() ? "\n    " : ",\n    ";
    text += each.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return "[" + text + "]";
}

std::string as_json(const Graph& graph, const std::string& remat) {
  const std::vector<std::string> places = places_of(graph.nodes);
  Json buffers = Json::array(), nodes = buffers, outputs = buffers, unfused = buffers;
  constexpr const char* kKinds[] = {"captured", "input", "constant", "temporary"};
  for (const Buffer& buffer : graph.buffers)
    buffers.push_back({{"kind", kKinds[static_cast<int>(buffer.kind)]}, {"bytes", buffer.bytes}});
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    nodes.push_back({{"op", op_info(node.call.op).name},
                     {"in_place", node.call.in_place},
                     {"role", name_of(node.role)},
                     {"inputs", as_json(node.inputs)},
                     {"outputs", as_json(node.outputs)},
                     {"text", operands_text(graph, node)},
                     {"where", places[i]}});
  }
  for (const Output& output : graph.outputs)
    outputs.push_back(output.is_value() ? as_json(output.value) : Json());
  for (const UnfusedEdge& edge : describe_unfused(graph)) {
    unfused.push_back({{"why", name_of(edge.why)},
                       {"value", edge.value},
                       {"producer", edge.producer},
                       {"consumer", edge.consumer},
                       {"producer_line", edge.producer_line},
                       {"consumer_line", edge.consumer_line}});
  }
  return fmt::format(
      "{{\n  \"device\": \"{}\",\n  \"buffers\": {},\n  \"nodes\": {},\n  \"outputs\": {},\n  "
      "\"unfused\": {},\n  \"remat\": {}\n}}\n",
      to_string(graph.device), lines_of(buffers), lines_of(nodes), lines_of(outputs),
      lines_of(unfused), remat);
}

}  // namespace

std::string describe(const Graph& graph, const Value& value) {
  const Name* const name = name_of(graph, value);
  std::string label = name ? name->text : buffer_name(graph, value.buffer);
  if (!name) {
    const auto first = std::ranges::find(graph.names, value.buffer, &Name::buffer);
    if (first != graph.names.end()) label += fmt::format(" ({}, …)", first->text);
  }
  std::string text = fmt::format("{} {}{}", label, name_of(value.dtype), to_string(value.shape));
  if (!value.is_contiguous()) text += fmt::format(" by {}", to_string(value.strides));
  std::int64_t offset = value.offset;
  if (name) offset -= name->extent.low / static_cast<std::int64_t>(size_of(value.dtype));
  if (offset != 0) text += fmt::format(" at {}", offset);
  return text;
}

std::string describe(const Graph& graph, const Tensor& x) {
  const auto is_on = [&x](const Buffer& buffer) {
    return buffer.captured.defined() && buffer.captured.shares_storage_with(x);
  };
  const auto found = std::ranges::find_if(graph.buffers, is_on);
  if (found == graph.buffers.end()) return x.describe();
  return describe(graph, Value{static_cast<int>(found - graph.buffers.begin()), x.dtype(),
                               Dims(x.shape()), Dims(x.strides()), x.storage_offset()});
}

std::string to_string(const Graph& graph, GraphFormat format, const std::string& remat) {
  switch (format) {
    case GraphFormat::dot: return as_dot(graph);
    case GraphFormat::json: return as_json(graph, remat);
    case GraphFormat::text: break;
  }
  return as_text(graph);
}

}  // namespace brrr::graph
