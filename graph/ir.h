// What a traced step is: calls in the order in which they were made, and the memory that they read
// and write. A value is a strided view of a buffer, so views are no nodes, writes in place are what
// they are, and what depends on what is a question about bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/tracing.h>
#include <brrr/graph/call_site.h>
#include <brrr/ops/random_state.h>
#include <brrr/tensor/overlap.h>
#include <brrr/tensor/tensor.h>

namespace brrr::graph {

struct Buffer {
  enum class Kind : std::uint8_t {
    captured,   // of a real tensor that the step met
    input,      // of an argument
    temporary,  // made in the step
  };
  Kind kind = Kind::temporary;
  Device device;
  std::size_t bytes = 0;
  Tensor captured;             // some tensor of that storage
  std::uint32_t replaced = 0;  // captured: the storage's count when it was traced
  bool trains = false;         // captured: one that requires a gradient lies in it
  int input = -1;              // which argument
  // How many bytes past a multiple of 16 an argument starts that is copied: kernels choose how to
  // load, and so the order in which they add up, by that.
  std::size_t phase = 0;
};

// The phase of what would be copied.
std::size_t phase_of(const Tensor& argument);

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

struct Node {
  Call call;  // without its inputs
  std::vector<Value> inputs, outputs;
  Role role = Role::forward;
  CallSite site;
  const char* composite = nullptr;  // what the user called, where that is made of several calls
  bool intended_constants = false;  // its numbers are meant to be the same in every replay

  explicit Node(const Call& c) : call(c) { call.inputs = nullptr; }
};

// A gradient that the step looks at or changes: that of a leaf, or of the group that the leaf is
// the first of.
struct LeafGradient {
  enum class Outcome : std::uint8_t {
    stays,     // as it was
    added_to,  // in its place
    made,      // the value, in memory that the program keeps
    argument,  // the value, which lies in an argument
    outside,   // a tensor from outside
    forgotten,
  };
  Tensor leaf;
  std::uint64_t group = 0;
  Outcome outcome = Outcome::stays;
  Value value;
  Tensor outside;
  bool depends = false;  // on the gradient that was there, or on there being none
  Tensor before;         // that gradient, by a handle of its own

  bool is_made() const { return outcome == Outcome::made; }
};

struct Output {
  Value value;
  Tensor real;  // in its place: a tensor from outside, handed back as it is
};

// A value of the host that the trace took for a constant.
struct Frozen {
  int node = -1;     // that has it as an operand or an attribute; -1: a tensor made of host values
  std::string what;  // "operand 1", "rate", "tensor f32[3]"
  double value = 0;
  bool updates_parameter = false;  // scales what is added to a leaf, unless that is intended
  bool intended = false;           // its node has intended constants
};

// A setting that the function branched on, and the value that it had.
struct SettingRead {
  Setting::State state;
  int value = 0;
  std::string name;  // "mlp.dropout.training()"
};

struct Graph {
  Device device;
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<Output> outputs;
  std::vector<LeafGradient> gradients;
  std::vector<RandomAdvance> draws;
  std::vector<SettingRead> settings;
  std::vector<std::pair<std::string, CallSite>> host_values;  // tensors made of them, and where

  bool is_temporary(int buffer) const {
    return buffers[static_cast<std::size_t>(buffer)].kind == Buffer::Kind::temporary;
  }
};

// "f32[64, 128] %3", with strides and offset where they say something.
std::string describe(const Graph& graph, const Value& value);
// One line a node: "%7 = matmul(%1 f32[64, 128], w2)   forward  train.cpp:12".
enum class Format { text, dot, json };
std::string to_string(const Graph& graph, Format format = Format::text);

// Every host number that became part of the graph.
std::vector<Frozen> frozen_values(const Graph& graph);
std::string to_string(const Graph& graph, std::span<const Frozen> frozen);

// Throws, naming the node and the rule, unless the graph is what the passes and the planner may
// rely on; run between passes in debug builds.
void verify(const Graph& graph, const char* after);

// Passes: each gives the number of nodes that it removed.
int simplify(Graph& graph);
int merge_equal(Graph& graph);
int remove_dead(Graph& graph);

}  // namespace brrr::graph
