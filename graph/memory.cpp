#include "brrr/graph/memory.h"

#include <algorithm>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/lower.h"
#include "brrr/tensor/runtime.h"

namespace brrr::graph {
namespace {

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
    // Programs that were planned over the old storage keep it.
    Storage* larger = new_storage(device, bytes);
    if (storage_) storage_->drop();
    storage_ = larger;
  }
  return retained(storage_);
}

void Arena::order(StreamState& stream) {
  if (last_ && last_ != &stream) order_streams(*last_, stream);
  last_ = &stream;
}

Memory::Memory(const Graph& graph, const Plan& plan, std::shared_ptr<Arena> arena)
    : graph_(graph), plan_(plan), arena_(std::move(arena)), blocks_(graph.buffers.size()) {
  try {
    if (std::ranges::any_of(plan.arena_offset, [](std::int64_t offset) { return offset >= 0; })) {
      arena_storage_ = arena_->reserve(graph.device, plan.arena_bytes);
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (plan.arena_offset[i] >= 0)
          blocks_[i].address = static_cast<char*>(arena_storage_->data) + plan.arena_offset[i];
      }
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (graph.buffers[i].kind == Buffer::Kind::captured)
        keep(static_cast<int>(i), retained(TensorImpl::of(graph.buffers[i].captured)->storage));
    }
    for (const GradientSlot& slot : graph.gradients) {
      if (!graph.owns_gradient(slot)) continue;
      const int block = plan.placement_of(slot.after->value).block;
      if (!of(block).storage) renew(block);
    }
    make_constants();
  } catch (...) {
    release();
    throw;
  }
}

Memory::~Memory() { release(); }

void Memory::release() {
  for (AllocatedBlock& block : blocks_) {
    if (block.storage) block.storage->drop();
    if (block.operand_storage) block.operand_storage->drop();
  }
  if (arena_storage_) arena_storage_->drop();
}

void Memory::keep(int block, Storage* storage) {
  AllocatedBlock& kept = of(block);
  const auto old = std::ranges::find(outside_, kept.storage);
  if (kept.storage) {
    *old = storage;
    kept.storage->drop();
  } else {
    outside_.push_back(storage);
  }
  kept.storage = storage;
  set_address(block, static_cast<char*>(storage->data));
}

void Memory::renew(int block) {
  const std::size_t bytes = graph_.buffers[block].bytes;
  if (!of(block).storage) gradient_bytes_ += bytes;
  keep(block, new_storage(graph_.device, bytes));
}

void Memory::rebind(int block, Storage* storage) { keep(block, retained(storage)); }

void Memory::make_constants() {
  for (const auto& [buffer, made] : run_constants(graph_)) {
    constant_bytes_ += TensorImpl::of(made)->storage->bytes;
    keep(buffer, retained(TensorImpl::of(made)->storage));
  }
}

Tensor Memory::operand(const Value& value) {
  const Placement& placement = plan_.placement_of(value);
  AllocatedBlock& block = of(placement.block);
  if (!block.operand_storage) {
    block.operand_storage = adopt_storage(graph_.device, block.address,
                                          graph_.buffers[placement.block].bytes, nullptr, nullptr);
  }
  Tensor tensor =
      make_tensor_on(retained(block.operand_storage), value.dtype, value.shape, value.strides, 0);
  const std::int64_t bytes = static_cast<std::int64_t>(placement.offset) +
                             value.offset * static_cast<std::int64_t>(size_of(value.dtype));
  TensorImpl::of(tensor)->data = block.address ? block.address + bytes : nullptr;
  const bool in_arena = plan_.arena_offset[placement.block] >= 0;
  if (!in_arena) block.operands.emplace_back(TensorImpl::of(tensor), bytes);
  return tensor;
}

Tensor Memory::tensor_on(const Value& value) const {
  const Placement& placement = plan_.placement_of(value);
  Tensor tensor = make_tensor_on(retained(of(placement.block).storage), value.dtype, value.shape,
                                 value.strides, value.offset);
  TensorImpl& impl = *TensorImpl::of(tensor);
  impl.data = static_cast<char*>(impl.data) + placement.offset;
  return tensor;
}

void Memory::set_address(int block, char* address) {
  AllocatedBlock& moved = of(block);
  moved.address = address;
  if (moved.operand_storage) moved.operand_storage->data = address;
  for (auto& [impl, offset] : moved.operands) impl->data = address + offset;
}

}  // namespace brrr::graph
