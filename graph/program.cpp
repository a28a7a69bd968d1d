#include "brrr/graph/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "brrr/autograd/journal.h"
#include "brrr/graph/cuda_replay.h"
#include "brrr/graph/rename.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"

namespace brrr::graph {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

template <class T>
void add_once(std::vector<T>& list, T value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

Storage* retained(Storage* storage) {
  storage->retain();
  return storage;
}

}  // namespace

Arena::~Arena() {
  if (storage_) storage_->drop();
}

Storage* Arena::reserve(Device device, std::size_t bytes) {
  if (!storage_ || storage_->bytes < bytes || storage_->device != device) {
    // Programs that were planned over the old block keep it.
    Storage* larger = new_storage(device, bytes);
    if (storage_) storage_->drop();
    storage_ = larger;
  }
  return retained(storage_);
}

void Arena::order(StreamState& stream) {
  if (last_ && last_ != &stream) {
    const auto event = runtime_of(stream.device.type).new_event(stream.device, false);
    event->record(*last_);
    event->make_wait(stream);
  }
  last_ = &stream;
}

Program::Program(Graph graph, std::shared_ptr<Arena> arena, const ProgramOptions& options)
    : graph_(std::move(graph)), options_(options), arena_(std::move(arena)) {
  const OpScope scope("compile");
  const bool on_cuda = graph_.device.type == DeviceType::cuda;
  plan_ = make_plan(
      graph_,
      {.inputs_in_arena = on_cuda, .outputs_in_arena = on_cuda, .lanes = options.lanes && on_cuda});
  blocks_.resize(graph_.buffers.size());
  views_.resize(graph_.buffers.size());
  try {
    make_blocks();
    make_steps();
    if (on_cuda) cuda_ = make_cuda_replay(*this);
  } catch (...) {
    for (Block& block : blocks_) {
      if (block.storage) block.storage->drop();
    }
    if (arena_storage_) arena_storage_->drop();
    throw;
  }
  tell_of_references(true);
}

Program::~Program() {
  cuda_.reset();
  tell_of_references(false);
  steps_.clear();
  tensors_.clear();
  gradients_.clear();
  for (Block& block : blocks_) {
    if (block.storage) block.storage->drop();
  }
  if (arena_storage_) arena_storage_->drop();
}

// Memory for every root: the arena, what the trace met, and gradients.
void Program::make_blocks() {
  const bool needs_arena = std::ranges::any_of(plan_.in_arena, [](auto at) { return at >= 0; });
  if (needs_arena) arena_storage_ = arena_->reserve(graph_.device, plan_.arena_bytes);
  for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
    if (graph_.buffers[i].kind != Buffer::Kind::captured) continue;
    blocks_[i].storage = retained(graph_.buffers[i].captured.impl()->storage);
  }
  for (const LeafGradient& gradient : graph_.gradients) {
    if (!gradient.is_made()) continue;
    Block& block = blocks_[at(plan_.places[at(gradient.value.buffer)].root)];
    if (block.storage) continue;
    const std::size_t bytes = graph_.buffers[at(gradient.value.buffer)].bytes;
    block = {new_storage(graph_.device, bytes), 1};
    kept_bytes_ += bytes;
  }
}

// A handle to a value, on memory that may be pointed elsewhere later.
Tensor Program::tensor_of(const Value& value) {
  const Place& place = plan_.places[at(value.buffer)];
  const auto size = static_cast<std::int64_t>(size_of(value.dtype));
  Storage* storage = blocks_[at(place.root)].storage;
  std::int64_t base = static_cast<std::int64_t>(place.offset);
  if (const std::int64_t in_arena = plan_.in_arena[at(place.root)]; in_arena >= 0) {
    storage = arena_storage_;
    base += in_arena;
  } else if (storage) {
    ++blocks_[at(place.root)].own_references;
  } else {
    // An argument's, or a result's: each run says where.
    storage = adopt_storage(graph_.device, nullptr, graph_.buffers[at(place.root)].bytes, nullptr,
                            nullptr);
    storage->refs.store(0);
  }
  Tensor tensor = make_tensor_on(retained(storage), value.dtype, value.shape, value.strides, 0);
  const std::int64_t bytes = base + value.offset * size;
  tensor.impl()->data = static_cast<char*>(storage->data) + bytes;
  views_[at(place.root)].emplace_back(tensor.impl(), bytes);
  return tensor;
}

void Program::make_steps() {
  for (const Block& block : blocks_) {
    if (block.storage) outside_.push_back(block.storage);
  }
  std::size_t operands = 0, results = 0;
  for (const Node& node : graph_.nodes) {
    operands += node.inputs.size();
    results += node.outputs.size();
  }
  tensors_.reserve(operands + results);  // steps point into it
  pointers_.reserve(operands);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (plan_.dropped[i]) continue;
    const Node& node = graph_.nodes[i];
    const OpInfo& info = op_info(node.call.op);
    Step step(node.call);
    step.kernel = graph_.device.is_cpu() ? info.cpu : info.cuda;
    step.name = info.name;
    step.composite = node.composite;
    step.node = static_cast<int>(i);
    if (!step.kernel)
      fail(fmt::format("[{}] has no kernel for {}", info.name, to_string(graph_.device)));
    const std::size_t first = pointers_.size();
    for (const Value& input : node.inputs) {
      tensors_.push_back(tensor_of(input));
      pointers_.push_back(&tensors_.back());
    }
    step.call.inputs = pointers_.data() + first;
    step.outputs = tensors_.data() + tensors_.size();
    for (const Value& output : node.outputs) tensors_.push_back(tensor_of(output));
    steps_.push_back(step);
    for (const Value& output : node.outputs) {
      Storage* storage = blocks_[at(plan_.places[at(output.buffer)].root)].storage;
      const Buffer& buffer = graph_.buffers[at(output.buffer)];
      if (buffer.kind == Buffer::Kind::captured) add_once(written_, storage);
      if (buffer.kind == Buffer::Kind::input) add_once(written_arguments_, buffer.input);
    }
  }
  for (const LeafGradient& gradient : graph_.gradients) {
    gradients_.push_back(gradient.is_made() ? tensor_of(gradient.value) : Tensor());
  }
  // The graph's own handles to what it met.
  for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
    if (graph_.buffers[i].kind == Buffer::Kind::captured) blocks_[i].own_references += 2;
  }
  for (const LeafGradient& gradient : graph_.gradients) {
    count_own(gradient.before);
    adds_to_gradients_ |= gradient.outcome == LeafGradient::Outcome::added_to;
  }
  for (const Output& output : graph_.outputs) {
    // A handle of the graph's alone.
    if (output.real.defined() && output.real.impl()->refs.load() == 1) count_own(output.real);
  }
}

void Program::count_own(const Tensor& handle) {
  for (Block& block : blocks_) {
    if (handle.defined() && block.storage == handle.impl()->storage) {
      ++block.own_references;
      return;
    }
  }
}

void Program::point(int root, char* data) {
  for (auto& [impl, offset] : views_[at(root)]) impl->data = data + offset;
}

void Program::count_versions(std::span<const Tensor> arguments) {
  const auto wrote = [](Storage* storage) {
    storage->version.fetch_add(1, std::memory_order_relaxed);
  };
  for (Storage* storage : written_) wrote(storage);
  for (const int i : written_arguments_) wrote(arguments[at(i)].impl()->storage);
}

std::string Program::shared_memory(std::span<const Tensor> arguments) const {
  // A replay on CUDA hands a written argument back with the bytes between its elements, as they
  // were before the call.
  const auto share = [this](const Tensor& x, const Tensor& y, bool both_written) {
    const Extent of_x = extent_of(region_of(x)), of_y = extent_of(region_of(y));
    return cuda_ && both_written ? of_x.low < of_y.high && of_y.low < of_x.high
                                 : may_overlap(region_of(x), region_of(y));
  };
  for (const int i : written_arguments_) {
    if (std::ranges::find(outside_, arguments[at(i)].impl()->storage) != outside_.end())
      return fmt::format(
          "argument {}, which the step writes to, shares memory with what it takes from outside",
          i);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& x = arguments[i];
    if (std::ranges::find(written_, x.impl()->storage) != written_.end())
      return fmt::format("argument {} shares memory with what the step writes to", i);
    const bool written =
        std::ranges::find(written_arguments_, static_cast<int>(i)) != written_arguments_.end();
    for (const int other : written_arguments_) {
      const Tensor& y = arguments[at(other)];
      if (at(other) != i && x.shares_storage_with(y) && share(x, y, written))
        return fmt::format("arguments {} and {} share memory, and the step writes to {}", i, other,
                           other);
    }
  }
  return "";
}

namespace {

// A value that lies in an argument.
Tensor part_of(const Tensor& argument, const Value& value) {
  return make_view(argument, value.shape, value.strides, value.offset);
}

}  // namespace

std::vector<Tensor> Program::run(std::span<const Tensor> arguments) {
  const OpScope scope("compile");
  for (const RandomAdvance& advance : graph_.draws) before_replay(advance);
  // Before the calls: one that throws has those before it written.
  count_versions(arguments);
  std::vector<Tensor> results;
  results.reserve(graph_.outputs.size());
  if (cuda_) {
    cuda_->run(arguments, results);
  } else {
    run_on_cpu(arguments, results);
  }
  for (const RandomAdvance& advance : graph_.draws) after_replay(advance);
  if (!graph_.gradients.empty()) bind_gradients(arguments);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Output& output = graph_.outputs[i];
    if (!output.real.defined() && results[i].defined())
      results[i].impl()->word.bits |= TensorWord::kReplayed;
  }
  return results;
}

void Program::run_steps() const {
  const Step* step = steps_.data();
  const Step* const end = step + steps_.size();
  try {
    for (; step != end; ++step) step->run();
  } catch (const Error&) {
    forget_gradients();
    rethrow_with(graph_.nodes[at(step->node)].site);
  } catch (...) {
    forget_gradients();
    throw;
  }
}

void Program::run_on_cpu(std::span<const Tensor> arguments, std::vector<Tensor>& results) {
  for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
    const Buffer& buffer = graph_.buffers[i];
    if (buffer.kind == Buffer::Kind::input)
      point(static_cast<int>(i), static_cast<char*>(arguments[at(buffer.input)].data()));
  }
  // Results have memory of their own in each run.
  std::vector<std::pair<int, Storage*>> made;
  const auto storage_for = [&](const Value& value) {
    const int root = plan_.places[at(value.buffer)].root;
    if (Storage* kept = blocks_[at(root)].storage) return retained(kept);
    for (const auto& [known, storage] : made) {
      if (known == root) return retained(storage);
    }
    Storage* storage = new_storage(graph_.device, graph_.buffers[at(root)].bytes);
    made.emplace_back(root, storage);
    point(root, static_cast<char*>(storage->data));
    return storage;
  };
  for (const Output& output : graph_.outputs) {
    const Value& value = output.value;
    if (output.real.defined() || value.buffer < 0) {
      results.push_back(output.real);
    } else if (graph_.buffers[at(value.buffer)].kind == Buffer::Kind::input) {
      results.push_back(part_of(arguments[at(graph_.buffers[at(value.buffer)].input)], value));
    } else {
      results.push_back(make_tensor_on(storage_for(value), value.dtype, value.shape, value.strides,
                                       value.offset));
    }
  }
  run_steps();
}

}  // namespace brrr::graph
