// The memory of a planned graph: its blocks, and the operands of its launches, whose addresses
// follow their block.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <brrr/graph/plan.h>
#include <brrr/tensor/tensor.h>

namespace brrr::graph {

// Memory that the programs of one step share, since they never run at the same time. It grows to
// the largest program's size.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Storage* reserve(Device device, std::size_t bytes);
  // Makes later work of this stream wait for all work that used the memory.
  void order(StreamState& stream);

 private:
  StreamState* last_ = nullptr;
  Storage* storage_ = nullptr;
};

class Memory {
 public:
  Memory(const Graph& graph, const Plan& plan, std::shared_ptr<Arena> arena);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // An operand of a launch. Its storage has the address of the block and does not own the memory.
  Tensor operand(const Value& value);
  // A tensor that shares the ownership of a block outside of the arena.
  Tensor tensor_on(const Value& value) const;

  // The address of a block; null until the first run for blocks that each run allocates.
  char* address(int block) const { return of(block).address; }
  // Only for blocks outside of the arena.
  void set_address(int block, char* address);
  // Gives a gradient's block new memory, because the caller still holds the old.
  void renew(int block);
  // Continues with the memory of another gradient that a leaf has.
  void rebind(int block, Storage* storage);

  // The storage of a block outside of the arena that persists between runs; else null.
  Storage* storage(int block) const { return of(block).storage; }
  Storage* arena_storage() const { return arena_storage_; }
  // All storages outside of the arena that launches use.
  std::span<Storage* const> outside() const { return outside_; }
  Arena& arena() { return *arena_; }
  std::size_t gradient_bytes() const { return gradient_bytes_; }
  std::size_t constant_bytes() const { return constant_bytes_; }

 private:
  struct AllocatedBlock {
    Storage* storage = nullptr;          // kept between runs, owned
    Storage* operand_storage = nullptr;  // of the operands; owned, its memory is not
    char* address = nullptr;
    // Outside of the arena: their addresses follow the block's, at offsets in bytes.
    std::vector<std::pair<TensorImpl*, std::int64_t>> operands;
  };
  const AllocatedBlock& of(int block) const { return blocks_[block]; }
  AllocatedBlock& of(int block) { return blocks_[block]; }
  void keep(int block, Storage* storage);
  void make_constants();
  void release();

  const Graph& graph_;
  const Plan& plan_;
  std::shared_ptr<Arena> arena_;
  Storage* arena_storage_ = nullptr;
  std::vector<AllocatedBlock> blocks_;
  std::vector<Storage*> outside_;
  std::size_t gradient_bytes_ = 0, constant_bytes_ = 0;
};

}  // namespace brrr::graph
