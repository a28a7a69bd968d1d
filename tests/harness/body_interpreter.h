// Runs bodies without a compiler, for tests of more programs than can be compiled: tile by tile,
// one value after another, by eager's loops. Results have eager's bits.
#pragma once

#include <cstdint>
#include <vector>

#include <brrr/ops/cpu/body_runner.h>
#include <brrr/ops/cpu/loops.h>
#include <brrr/ops/jit/body.h>
#include <brrr/ops/jit/cpu_kernel.h>

namespace brrr::on_cpu {

class BodyInterpreter final : public BodyRunner {
 public:
  // Throws where the body has a value that no loop computes, or rows too long for a tile.
  BodyInterpreter(const jit::Body& body, const StridedSpace& reduced, const jit::CpuOrder& order);
  // A range of elements or rows, as a generated function takes it.
  void run(const jit::CpuArguments& arguments, std::int64_t begin, std::int64_t end) const override;

 private:
  friend class InstructionMaker;

  // A value of each element of a tile, or of each row.
  struct Register {
    DType type;
    bool of_rows;
    bool stored = false, loaded = false;  // to or from an operand's memory
    bool reduced = false;                 // depends on a reduction
    int buffer = 0;
  };
  struct Instruction {
    enum class Kind : std::uint8_t { load, constant, apply, convert, spread, reduce, store };
    Kind kind = Kind::load;
    int reg = 0;                   // that it writes; store: reads
    std::vector<int> inputs = {};  // registers
    int number = 0;                // of the operand of the kernel, or of the reduction's row
    DType memory = DType::f32;     // load and store: the operand's type in memory
    std::uint64_t bits = 0;        // constant
    int scalar = -1;               // or the number of a scalar
    Loop loop = nullptr;
    Convert convert = nullptr;
    std::int64_t piece = 0;  // reduce
  };
  struct Tile;

  void run_tile(Tile& tile) const;
  void execute(const Instruction& instruction, Tile& tile) const;
  void reduce(const Instruction& instruction, Tile& tile) const;
  void move(const Instruction& instruction, Tile& tile) const;
  int operand_of(const Instruction& instruction) const;
  char* in_place(const Instruction& instruction, const Tile& tile) const;

  bool reduces_;
  int inputs_, outputs_;
  jit::CpuOrder order_;
  std::vector<Register> registers_;
  std::vector<Instruction> instructions_;
  std::size_t buffers_ = 0;
  bool one_pass_ = true;  // no value of an element depends on a reduction
};

}  // namespace brrr::on_cpu

namespace brrr::test {

// For a scope: fused kernels on the CPU are interpreted. Calls with coordinates are not fused.
struct Interpreted {
  Interpreted();
  ~Interpreted();
  Interpreted(const Interpreted&) = delete;
  Interpreted& operator=(const Interpreted&) = delete;
};

}  // namespace brrr::test
