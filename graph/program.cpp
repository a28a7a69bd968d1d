#include "brrr/graph/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/graph/price.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/host_work.h"

namespace brrr::graph {
namespace {

template <class T>
void add_once(std::vector<T>& list, T value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

}  // namespace

Tensor part_of(const Tensor& argument, const Value& value) {
  return make_view(argument, value.shape, value.strides, value.offset);
}

Program::Program(Graph graph, std::shared_ptr<Arena> arena, const ProgramOptions& options)
    : graph_(std::move(graph)) {
  const OpScope scope("compile");
  const bool on_cuda = graph_.device.is_cuda();
  plan_ = make_plan(graph_, plan_options(graph_.device, options));
  memory_ = std::make_unique<Memory>(graph_, plan_, std::move(arena));
  lowered_ = lower(graph_, plan_, *memory_);
  prediction_ = predict(lowered_.launches, plan_, graph_.device, bytes_touched(graph_, plan_));
  result_blocks_ = result_blocks(graph_, plan_, *memory_);
  const Executable executable{graph_, plan_, *memory_, lowered_.launches, options.programmatic};
  executor_ = on_cuda ? make_cuda_graph_executor(executable) : make_list_executor(executable);
  find_writes();
  accumulates_ = std::ranges::any_of(graph_.gradients, &GradientSlot::accumulates);
  publish_references(true);
}

void Program::measure_kernels() {
  KernelTimer timer(graph_.device, bytes_touched(graph_, plan_));
  std::vector<std::optional<std::int64_t>> times;
  for (const Launch& launch : launches()) times.push_back(timer.time_of({&graph_, launch.node}));
  use_times(times, launches(), plan_, graph_.device, prediction_);
}

std::size_t Program::result_bytes() const {
  std::size_t bytes = 0;
  for (const int block : result_blocks_) bytes += graph_.buffers[block].bytes;
  return bytes;
}

Program::~Program() { publish_references(false); }

void Program::find_writes() {
  for (const Node& node : graph_.nodes) {
    for (const Value& output : node.outputs) {
      const Buffer& buffer = graph_.buffers[output.buffer];
      if (buffer.kind == Buffer::Kind::captured)
        add_once(written_, TensorImpl::of(buffer.captured)->storage);
      if (buffer.kind == Buffer::Kind::input) add_once(written_arguments_, buffer.input);
    }
  }
  copied_back_ = written_arguments_;
  if (!graph_.device.is_cuda()) return;
  for (const Node& node : graph_.nodes) {
    if (!has_unknown_effect(node)) continue;
    for (const Value& input : node.inputs) {
      const Buffer& buffer = graph_.buffers[input.buffer];
      if (buffer.kind == Buffer::Kind::input) add_once(copied_back_, buffer.input);
    }
  }
}

std::vector<int> result_blocks(const Graph& graph, const Plan& plan, const Memory& memory) {
  std::vector<int> blocks;
  for (const Output& output : graph.outputs) {
    if (!output.is_value() || !graph.is_temporary(output.value.buffer)) continue;
    const int block = plan.placement_of(output.value).block;
    if (!memory.storage(block)) add_once(blocks, block);
  }
  return blocks;
}

void Program::count_versions(std::span<const Tensor> arguments) const {
  const auto wrote = [](Storage* storage) {
    storage->version.fetch_add(1, std::memory_order_relaxed);
  };
  for (Storage* storage : written_) wrote(storage);
  for (const int i : written_arguments_) wrote(TensorImpl::of(arguments[i])->storage);
}

std::string Program::alias_problem(std::span<const Tensor> arguments) const {
  const std::span<Storage* const> outside = memory_->outside();
  // A replay on CUDA copies a written argument back whole, with the bytes between its elements.
  const auto share = [this](const Tensor& x, const Tensor& y, bool both_written) {
    const Extent of_x = extent_of(region_of(x)), of_y = extent_of(region_of(y));
    return graph_.device.is_cuda() && both_written ? of_x.low < of_y.high && of_y.low < of_x.high
                                                   : may_overlap(region_of(x), region_of(y));
  };
  for (const int i : copied_back_) {
    if (std::ranges::find(outside, TensorImpl::of(arguments[i])->storage) != outside.end())
      return fmt::format(
          "argument {}, which the step writes to, shares memory with a tensor that it captured", i);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& x = arguments[i];
    if (std::ranges::find(written_, TensorImpl::of(x)->storage) != written_.end())
      return fmt::format("argument {} shares memory with a captured tensor that the step writes to",
                         i);
    const bool written = std::ranges::find(copied_back_, static_cast<int>(i)) != copied_back_.end();
    for (const int other : copied_back_) {
      const Tensor& y = arguments[other];
      if (other != static_cast<int>(i) && x.shares_storage_with(y) && share(x, y, written))
        return fmt::format("arguments {} and {} share memory, and the step writes to {}", i, other,
                           other);
    }
  }
  return "";
}

// Makes result tensors on the blocks that the executor allocated. Results that alias share a block.
std::vector<Tensor> Program::make_results(std::span<const Tensor> arguments,
                                          std::vector<ResultBlock>& fresh) const {
  for (const int block : result_blocks_)
    fresh.push_back({block, new_storage(graph_.device, graph_.buffers[block].bytes)});
  std::vector<Tensor> results;
  results.reserve(graph_.outputs.size());
  for (const Output& output : graph_.outputs) {
    const Value& value = output.value;
    if (!output.is_value()) {
      results.push_back(output.outside);
      continue;
    }
    const Buffer& buffer = graph_.buffers[value.buffer];
    if (buffer.kind == Buffer::Kind::input) {
      results.push_back(part_of(arguments[buffer.input], value));
    } else {
      const int block = plan_.placement_of(value).block;
      const auto made = std::ranges::find(fresh, block, &ResultBlock::block);
      Storage* storage = made == fresh.end() ? memory_->storage(block) : made->storage;
      storage->retain();
      results.push_back(
          make_tensor_on(storage, value.dtype, value.shape, value.strides, value.offset));
    }
    TensorImpl::of(results.back())->word.bits |= kReplayed;
  }
  return results;
}

std::vector<Tensor> Program::run(std::span<const Tensor> arguments) {
  const OpScope scope("compile");
  const HostScope replaying(HostActivity::replay, "replay");
  for (const RandomAdvance& advance : graph_.draws) before_replay(advance);
  // Increments versions before the calls: if one throws, earlier calls have already written.
  count_versions(arguments);
  struct Fresh : std::vector<ResultBlock> {
    ~Fresh() {
      for (const ResultBlock& each : *this) each.storage->drop();
    }
  } fresh;
  std::vector<Tensor> results = make_results(arguments, fresh);
  try {
    executor_->run(arguments, fresh);
  } catch (...) {
    forget_gradients();
    throw;
  }
  for (const RandomAdvance& advance : graph_.draws) after_replay(advance);
  bind_gradients(arguments);
  return results;
}

}  // namespace brrr::graph
