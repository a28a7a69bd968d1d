// Lowering: a node of a graph becomes a launch, a kernel with operands in planned memory.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <brrr/dispatch/op_info.h>
#include <brrr/graph/memory.h>
#include <brrr/tensor/error.h>

namespace brrr::graph {

// One kernel, ready to run.
struct Launch {
  KernelFn kernel = nullptr;
  BodyKernel* body = nullptr;  // of a fused node, in place of `kernel`
  const char* name = "";
  const char* composite = nullptr;
  Call call;
  Tensor* outputs = nullptr;
  const Node* node = nullptr;
  int index = 0;  // of the node

  Launch(const Node& of, Device device);
  std::span<const Tensor> results() const { return {outputs, node->outputs.size()}; }
  void run() const {
    const OpScope scope(name);
    const CompositeScope within(composite);
    if (body) {
      body->run(call.inputs, outputs);
    } else {
      kernel(call, outputs);
    }
  }
};

struct Lowered {
  std::vector<Launch> launches;
  // Storage for the operands that launches point to.
  std::vector<Tensor> operands;
  std::vector<const Tensor*> pointers;
  std::vector<std::unique_ptr<BodyKernel>> bodies;
};

// The launches of a graph, in order. The graph outlives them.
Lowered lower(const Graph& graph, const Plan& plan, Memory& memory);

// Runs the graph's constants; returns those that its nodes read, by buffer.
std::vector<std::pair<int, Tensor>> run_constants(const Graph& graph);

// The ops of a launch's kernel: "gelu + mul".
std::string ops_of(const Launch& launch);

// Runs launches one after another. An error names the line that made the call.
void run_in_order(std::span<const Launch> launches);

}  // namespace brrr::graph
