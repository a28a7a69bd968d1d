// The graph of a traced step: calls in program order, and the buffers that they read and write. A
// value is a strided view of a buffer. So views need no nodes, an in-place write is an ordinary
// node, and dependences follow from overlapping bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/tracing.h>
#include <brrr/graph/call_site.h>
#include <brrr/graph/why_not_fused.h>
#include <brrr/ops/body_kernel.h>
#include <brrr/ops/random_state.h>
#include <brrr/tensor/overlap.h>
#include <brrr/tensor/tensor.h>

namespace brrr::graph {

struct Buffer {
  enum class Kind : std::uint8_t {
    captured,   // the storage of a tensor from outside
    input,      // an argument's
    constant,   // made once, before the first replay
    temporary,  // written in each replay
  };
  Kind kind = Kind::temporary;
  Device device;
  std::size_t bytes = 0;
  Tensor captured;             // a tensor on that storage
  std::uint32_t replaced = 0;  // captured: the storage's count of replacements at the trace
  bool requires_grad = false;  // captured: a tensor on it requires a gradient
  int input = -1;              // the argument's number
  // The argument's address modulo 16 where it is copied: kernels choose vector widths by it, and so
  // the order of their sums.
  std::size_t misalignment = 0;
};

// The misalignment of an argument's copy.
std::size_t misalignment_of(const Tensor& argument);

struct Value {
  int buffer = -1;
  DType dtype = DType::f32;
  Dims shape, strides;
  std::int64_t offset = 0;  // in elements

  std::int64_t numel() const;
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
  bool is_contiguous() const;
  Region region() const {
    return {shape, strides, offset, static_cast<std::int64_t>(size_of(dtype))};
  }
  friend bool operator==(const Value&, const Value&) = default;
};

enum class Role : std::uint8_t { forward, backward, update };
inline const char* name_of(Role role) {
  return role == Role::forward ? "forward" : role == Role::backward ? "backward" : "update";
}

// Where a node comes from in the user's program, for reports and errors.
struct Origin {
  Role role = Role::forward;
  CallSite site;
  const char* composite = nullptr;  // the public function, where that makes several calls
  int module = -1;                  // in Graph::modules; -1: none
  // In the backward pass: the call or composite whose gradient the node computes. `site` and
  // `module` are that call's.
  const char* gradient_of = nullptr;
};

// One kernel of a replay: a call, or a body of many.
struct Node : Origin {
  Call call;  // without its inputs; of a body it is of the op `fused`
  std::shared_ptr<const BodySpec> body;
  std::vector<std::string> fused;  // the names of the calls in the body
  std::vector<Value> inputs, outputs;
  bool intended_constants = false;  // its numbers are meant to be the same in every replay
  int recomputation = 0;            // which recomputation in the backward pass made it; 0: none
  int number = -1;                  // its place in the trace, and that of its copies
  std::vector<int> calls;           // of a fused graph: their numbers

  explicit Node(const Call& c, const Origin& origin = {}) : Origin(origin), call(c) {
    call.inputs = nullptr;
  }
};

// A result of a replay: a value, a captured tensor, or nothing.
struct Output {
  Value value;
  Tensor outside;

  bool is_value() const { return value.buffer >= 0; }
};

// The gradient of a leaf, or of a leaf group (named by its first leaf): the tensor that a replay
// reads at its start, and the value that the leaf gets at its end.
struct GradientSlot {
  Tensor leaf;
  std::uint64_t group = 0;
  bool reads = false;           // the step depends on the existing gradient, or on its absence
  Tensor before;                // the existing gradient, as a handle of the graph's own
  bool accumulates = false;     // the step adds to `before` in place, where eager makes a new sum
  std::optional<Output> after;  // none: the leaf keeps its gradient
};

// A number of the host that is the same in every replay.
struct HostConstant {
  std::string what;             // "operand 1 of mul", "rate of adam_step", "tensor f32[3]"
  std::optional<double> value;  // of a number; a tensor made of host values has several
  CallSite site;
  bool updates_parameter = false;  // scales what is added to a leaf, and is not intended
  bool intended = false;           // its call has intended constants
};

// A setting that the function branched on, and the value that it had.
struct SettingRead {
  std::shared_ptr<SettingState> state;
  int value = 0;
  std::string name;  // "mlp.dropout.training()"
};

// The user's name of the tensor in some bytes of a buffer.
struct Name {
  int buffer = -1;
  Extent extent;
  std::string text;  // "mlp.layers.1.weight"
};

// A value that a kernel of a fused graph writes and another one reads. Calls are given by number.
struct Unfused {
  WhyNotFused why;
  int producer, consumer;
  Value value;
  Op producer_op, consumer_op;
  bool is_producer_opaque;  // for WhyNotFused::opaque_call; false: the consumer is opaque
  CallSite producer_site, consumer_site;
};

// A pair of require_fused: two values, with the contents that they had before call number `time` of
// the trace, which one kernel must compute.
struct RequiredFusion {
  Value a, b;
  int time;
  CallSite site;
};

// The user's mark on a value: the backward pass reads it from memory (`save`) or recomputes it.
struct RematMark {
  Value value;
  bool recomputed;
  CallSite site;
};

// The same of all values of a module or an op.
struct NamedRematMark {
  std::string name;
  bool recomputed;
  CallSite site;
};

// Calls with a node (the first nodes of the graph), views, and calls that the tape records.
struct CallCounts {
  std::int64_t nodes = 0, views = 0, recorded = 0;
};

struct Graph {
  Device device;
  std::vector<Buffer> buffers;
  std::vector<Node> constants;  // run once: they depend on nothing
  std::vector<Node> nodes;
  CallCounts calls;  // of the traced function, before any pass
  std::vector<Output> outputs;
  std::vector<GradientSlot> gradients;
  std::vector<RandomAdvance> draws;
  std::vector<SettingRead> settings;
  std::vector<std::pair<std::string, CallSite>> host_values;  // tensors made from host values
  std::vector<std::string> modules;                           // "mlp.layers.1"
  std::vector<Name> names;
  std::vector<RequiredFusion> required;
  std::vector<RematMark> marks;
  std::string refused_mark;  // the error of a mark on a tensor from outside, under a policy
  std::vector<NamedRematMark> named_marks;
  std::vector<Unfused> unfused;      // of a fused graph
  std::int64_t fusion_work = 0;      // calls in the groups that fusion tried to merge
  bool fast = false;                 // Rounding::fast
  std::map<int, WhyNotFused> apart;  // calls, by number, that run in kernels of their own
  bool has_policy = false;           // rematerialization decides what it keeps
  bool least_memory = false;         // fusion does not extend lifetimes to save time
  bool copies_factors = true;        // fusion copies factors of products to other layouts

  // A contiguous value in a new temporary.
  Value add_temporary(DType dtype, const Dims& shape);
  // The same with rows that begin at multiples of 16 bytes.
  Value add_rows(DType dtype, const Dims& shape);

  bool is_temporary(int buffer) const { return buffers[buffer].kind == Buffer::Kind::temporary; }
  // Whether replays write the leaf's gradient to memory that the program owns.
  bool owns_gradient(const GradientSlot& slot) const {
    return slot.after && slot.after->is_value() && is_temporary(slot.after->value.buffer);
  }
};

// A node of a body. Operands are values over the body's space.
Node fused_node(std::shared_ptr<const BodySpec> body, std::vector<Value> inputs,
                std::vector<Value> outputs, std::vector<std::string> names);

// "f32[64, 128] %3", with strides and offset if the value is not a whole contiguous buffer.
std::string describe(const Graph& graph, const Value& value);
// The same of a tensor from outside: "mlp.layers.1.weight f32[64, 128]".
std::string describe(const Graph& graph, const Tensor& x);
// One line a node: "%7 = matmul(%1 f32[64, 128], w2)   forward  train.cpp:12".
enum class GraphFormat { text, dot, json };
// `remat`: of JSON, what rematerialization did to the graph (graph/rematerialize.h).
std::string to_string(const Graph& graph, GraphFormat format = GraphFormat::text,
                      const std::string& remat = "null");

// Every number of the host that became part of the graph.
std::vector<HostConstant> host_constants(const Graph& graph);
// Those that update parameters, without numbers that are arguments of the step: another value of
// these makes another entry. They may have been negated, or rounded to f32.
std::vector<HostConstant> frozen_rates(std::vector<HostConstant> constants,
                                       std::span<const double> arguments);
// With `message`, places are described for a message (graph/call_site.h).
std::string to_string(std::span<const HostConstant> constants, bool message = false);

// The executable specification of the graph: throws, naming the node and the rule. It runs between
// passes in debug builds.
void verify(const Graph& graph, const char* after);

}  // namespace brrr::graph
