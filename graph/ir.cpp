#include "brrr/graph/ir.h"

#include <fmt/format.h>

#include <string_view>

#include "brrr/dispatch/op_info.h"
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

std::size_t phase_of(const Tensor& argument) {
  return argument.device().is_cpu() ? 0 : reinterpret_cast<std::uintptr_t>(argument.data()) % 16;
}

namespace {

std::string buffer_name(const Graph& graph, int index) {
  const Buffer& buffer = graph.buffers[static_cast<std::size_t>(index)];
  switch (buffer.kind) {
    case Buffer::Kind::captured: return fmt::format("captured{}", index);
    case Buffer::Kind::input: return fmt::format("input{}", buffer.input);
    case Buffer::Kind::temporary: break;
  }
  return fmt::format("%{}", index);
}

const char* name_of(Role role) {
  switch (role) {
    case Role::forward: return "forward";
    case Role::backward: return "backward";
    case Role::update: break;
  }
  return "update";
}

std::string scalar_text(const Call& call, const Attr& attr) {
  return is_floating(call.dtype) ? fmt::format("{}", attr.d()) : fmt::format("{}", attr.i());
}

// The attributes of a call that is not pointwise, with their names.
std::string attributes_text(const Call& call) {
  std::string text;
  std::string_view names = op_info(call.op).attributes;
  for (int i = 0; i < call.n_attrs; ++i) {
    const std::string_view name = names.substr(0, names.find(' '));
    if (name.ends_with("...")) {
      return text + fmt::format(", {}={}", name.substr(0, name.size() - 3),
                                to_string(Dims(call.shape_from(i))));
    }
    const std::string_view bare = name.substr(0, name.find(':'));
    const std::string value = name.ends_with(":double")   ? fmt::format("{}", call.attrs[i].d())
                              : name.ends_with(":number") ? scalar_text(call, call.attrs[i])
                                                          : fmt::format("{}", call.attrs[i].i());
    text += fmt::format(", {}={}", bare, value);
    names.remove_prefix(std::min(name.size() + 1, names.size()));
  }
  return text;
}

// The operands of a call, numbers among them, and its attributes.
std::string operands_text(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.call.op);
  std::string text;
  const auto add = [&text](const std::string& part) { text += text.empty() ? part : ", " + part; };
  if (info.kind == OpKind::pointwise) {
    std::size_t next = 0;
    for (int i = 0; i < info.arity; ++i) {
      const bool number = node.call.is_scalar(i);
      add(number ? scalar_text(node.call, node.call.attrs[i])
                 : describe(graph, node.inputs[next++]));
    }
    return text;
  }
  for (const Value& input : node.inputs) add(describe(graph, input));
  const std::string attributes = attributes_text(node.call);
  return text.empty() && !attributes.empty() ? attributes.substr(2) : text + attributes;
}

std::string results_text(const Graph& graph, const Node& node) {
  std::string text;
  for (const Value& output : node.outputs) {
    text += (text.empty() ? "" : ", ") + describe(graph, output);
  }
  return text;
}

std::vector<std::string> places_of(const Graph& graph) {
  std::vector<CallSite> sites;
  for (const Node& node : graph.nodes) sites.push_back(node.site);
  return describe(sites);
}

std::string what_becomes_of(const Graph& graph, const LeafGradient& gradient) {
  using Outcome = LeafGradient::Outcome;
  switch (gradient.outcome) {
    case Outcome::stays: return "stays";
    case Outcome::added_to: return "added to in its place";
    case Outcome::outside: return gradient.outside.describe();
    case Outcome::forgotten: return "forgotten";
    case Outcome::made:
    case Outcome::argument: break;
  }
  return describe(graph, gradient.value);
}

std::string as_text(const Graph& graph) {
  const std::vector<std::string> places = places_of(graph);
  std::string text = fmt::format("step on {}: {} calls, {} buffers\n", to_string(graph.device),
                                 graph.nodes.size(), graph.buffers.size());
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& buffer = graph.buffers[i];
    if (buffer.kind == Buffer::Kind::temporary) continue;
    text += fmt::format("{}: {} bytes\n", buffer_name(graph, static_cast<int>(i)), buffer.bytes);
  }
  const Role* role = nullptr;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!role || *role != node.role) text += fmt::format("{}:\n", name_of(node.role));
    role = &node.role;
    text += fmt::format("  {} {} {}{}({})  # {}\n", results_text(graph, node),
                        node.call.in_place ? "<-" : "=", op_info(node.call.op).name,
                        node.call.in_place ? "_" : "", operands_text(graph, node), places[i]);
  }
  for (const Output& output : graph.outputs) {
    text += fmt::format("return {}\n", output.real.defined()     ? output.real.describe()
                                       : output.value.buffer < 0 ? std::string("nothing")
                                                                 : describe(graph, output.value));
  }
  for (const LeafGradient& gradient : graph.gradients) {
    text += fmt::format("gradient of {}: {}\n", gradient.leaf.describe(),
                        what_becomes_of(graph, gradient));
  }
  return text;
}

std::string as_dot(const Graph& graph) {
  std::string text = "digraph step {\n  node [shape=box, fontname=monospace];\n";
  std::vector<std::vector<int>> writers(graph.buffers.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text += fmt::format("  n{} [label=\"{}\\n{}\"];\n", i, op_info(node.call.op).name,
                        results_text(graph, node));
    for (const Value& input : node.inputs) {
      const auto& of = writers[static_cast<std::size_t>(input.buffer)];
      if (of.empty()) {
        text += fmt::format("  \"{}\" -> n{};\n", buffer_name(graph, input.buffer), i);
      } else {
        text += fmt::format("  n{} -> n{};\n", of.back(), i);
      }
    }
    for (const Value& output : node.outputs) {
      writers[static_cast<std::size_t>(output.buffer)].push_back(static_cast<int>(i));
    }
  }
  return text + "}\n";
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string as_json(const Value& value) {
  return fmt::format(R"({{"buffer": {}, "dtype": "{}", "shape": {}, "strides": {}, "offset": {}}})",
                     value.buffer, name_of(value.dtype), to_string(value.shape),
                     to_string(value.strides), value.offset);
}

std::string list_of(std::span<const Value> values) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + as_json(value);
  return "[" + text + "]";
}

std::string as_json(const Graph& graph) {
  const std::vector<std::string> places = places_of(graph);
  std::string nodes, buffers, outputs;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    nodes += fmt::format(
        "{}\n    {{\"op\": {}, \"in_place\": {}, \"role\": \"{}\", \"inputs\": {}, \"outputs\": "
        "{}, "
        "\"text\": {}, \"where\": {}}}",
        i ? "," : "", quoted(op_info(node.call.op).name), node.call.in_place, name_of(node.role),
        list_of(node.inputs), list_of(node.outputs), quoted(operands_text(graph, node)),
        quoted(places[i]));
  }
  constexpr const char* kKinds[] = {"captured", "input", "temporary"};
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& buffer = graph.buffers[i];
    buffers += fmt::format("{}\n    {{\"kind\": \"{}\", \"bytes\": {}}}", i ? "," : "",
                           kKinds[static_cast<int>(buffer.kind)], buffer.bytes);
  }
  for (const Output& output : graph.outputs) {
    outputs += (outputs.empty() ? "" : ", ") +
               (output.value.buffer < 0 ? std::string("null") : as_json(output.value));
  }
  return fmt::format(
      "{{\n  \"device\": \"{}\",\n  \"buffers\": [{}],\n  \"nodes\": [{}],\n  \"outputs\": "
      "[{}]\n}}\n",
      to_string(graph.device), buffers, nodes, outputs);
}

}  // namespace

std::string describe(const Graph& graph, const Value& value) {
  std::string text = fmt::format("{} {}{}", buffer_name(graph, value.buffer), name_of(value.dtype),
                                 to_string(value.shape));
  if (!value.is_contiguous()) text += fmt::format(" by {}", to_string(value.strides));
  if (value.offset != 0) text += fmt::format(" at {}", value.offset);
  return text;
}

std::string to_string(const Graph& graph, Format format) {
  switch (format) {
    case Format::dot: return as_dot(graph);
    case Format::json: return as_json(graph);
    case Format::text: break;
  }
  return as_text(graph);
}

}  // namespace brrr::graph
