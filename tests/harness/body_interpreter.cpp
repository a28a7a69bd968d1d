// Runs the instructions of the interpreter.
#include "tests/harness/body_interpreter.h"

#include <algorithm>
#include <cstring>

#include "brrr/ops/cpu/tiles.h"

namespace brrr::on_cpu {

// Elements of the space, or adjacent rows: one after the other, or element by element of all of
// them where they are columns.
struct BodyInterpreter::Tile {
  const jit::CpuArguments& arguments;
  StridedSpace walk;
  Coordinates place;
  i64 count = 0, rows = 1;
  i64 first = 0, reduced = 1;  // of the elements of each row, those that are in the tile
  i64 base[StridedSpace::kMaxOperands] = {};
  std::vector<std::vector<char>> memory = {};  // of each register
  std::vector<char*> registers = {};           // where it is: there, or in the memory of an operand
  std::vector<i64> filled = {};                // elements of constants
  std::vector<std::vector<double>> totals = {}, others = {};  // of any type: of each reduction

  i64 size(const Register& reg) const { return reg.of_rows ? rows : count; }
};

void BodyInterpreter::run(const jit::CpuArguments& arguments, i64 begin, i64 end) const {
  constexpr i64 kCache = 192 << 10, kColumns = 256;
  const i64 most = std::clamp<i64>(kCache / static_cast<i64>(8 * buffers_ + 1), 64, kTile);
  Tile tile{.arguments = arguments, .walk = *arguments.space, .place = {}};
  tile.memory.resize(buffers_);
  tile.registers.resize(registers_.size());
  tile.filled.resize(registers_.size());
  tile.totals.resize(registers_.size());
  tile.others.resize(registers_.size());
  if (!reduces_) {
    for (i64 first = begin; first < end; first += most) {
      tile.place = Coordinates(tile.walk, first);
      tile.count = std::min(most, end - first);
      run_tile(tile);
    }
    return;
  }
  const StridedSpace &kept = *arguments.space, &reduced = *arguments.reduced;
  const i64 elements = reduced.count();
  const bool parts = one_pass_ && order_.by_columns;  // rows need not be there as a whole
  const i64 rows = parts               ? kColumns
                   : order_.by_columns ? std::clamp<i64>((i64{1} << 16) / elements, 8, kColumns)
                                       : std::max<i64>(1, most / elements);
  for (i64 row = begin; row < end; row += tile.rows) {
    const Coordinates line(kept, row);
    tile.rows = std::min({rows, end - row, line.run(kept)});
    tile.walk = reduced;
    for (int k = 0; k < reduced.operands; ++k) tile.base[k] = line.offset(kept, k);
    if (tile.rows > 1) {  // else eight dimensions may be reduced
      tile.walk.add_dim(tile.rows);
      for (int k = 0; k < reduced.operands; ++k)
        tile.walk.stride[k][reduced.rank] = kept.inner_stride(k);
      if (!order_.by_columns) move_dim(tile.walk, reduced.rank, 0);
    }
    coalesce(tile.walk);
    const i64 part = parts ? std::max<i64>(1, 4 * most / tile.rows) : elements;
    for (tile.first = 0; tile.first < elements; tile.first += part) {
      tile.reduced = std::min(part, elements - tile.first);
      tile.count = tile.rows * tile.reduced;
      tile.place = Coordinates(tile.walk, tile.first * tile.rows);
      run_tile(tile);
    }
  }
}

void BodyInterpreter::run_tile(Tile& tile) const {
  for (std::size_t i = 0; i < registers_.size(); ++i) {
    const auto bytes =
        static_cast<std::size_t>(tile.size(registers_[i])) * size_of(registers_[i].type);
    std::vector<char>& memory = tile.memory[registers_[i].buffer];
    if (memory.size() < bytes) {
      memory.resize(bytes);
      tile.filled[i] = 0;
    }
  }
  for (std::size_t i = 0; i < registers_.size(); ++i)
    tile.registers[i] = tile.memory[registers_[i].buffer].data();
  // The value of an output is computed in place, unless the output is also an input.
  for (const Instruction& instruction : instructions_) {
    const auto is_input = [&](const void* memory) {
      const void* const* inputs = tile.arguments.inputs;
      return std::find(inputs, inputs + inputs_, memory) != inputs + inputs_;
    };
    if (instruction.kind != Instruction::Kind::store || registers_[instruction.reg].loaded ||
        is_input(tile.arguments.outputs[instruction.number]))
      continue;
    if (char* memory = in_place(instruction, tile)) tile.registers[instruction.reg] = memory;
  }
  for (const Instruction& instruction : instructions_) execute(instruction, tile);
}

void BodyInterpreter::execute(const Instruction& instruction, Tile& tile) const {
  const auto at = static_cast<std::size_t>(instruction.reg);
  const auto memory = [&](int reg) { return tile.registers[reg]; };
  const i64 n = tile.size(registers_[at]), size = static_cast<i64>(size_of(registers_[at].type));
  char* const to = memory(instruction.reg);
  switch (instruction.kind) {
    case Instruction::Kind::load:
    case Instruction::Kind::store: return move(instruction, tile);
    case Instruction::Kind::constant: {
      // In an output's memory each tile has a place of its own.
      const bool stays = to == tile.memory[registers_[at].buffer].data();
      if (stays && tile.filled[at] >= n) return;
      Element element;
      const std::uint64_t* scalars = tile.arguments.scalars;
      std::memcpy(element.bytes,
                  instruction.scalar < 0 ? &instruction.bits : scalars + instruction.scalar, 8);
      if (stays) tile.filled[at] = n;
      return fill_elements(to, element, size, n);
    }
    case Instruction::Kind::apply: {
      const void* inputs[kMaxInputs];
      for (std::size_t k = 0; k < instruction.inputs.size(); ++k)
        inputs[k] = memory(instruction.inputs[k]);
      return instruction.loop(to, inputs, n);
    }
    case Instruction::Kind::convert:
      return instruction.convert(to, memory(instruction.inputs[0]), n);
    case Instruction::Kind::spread: {
      const char* const from = memory(instruction.inputs[0]);
      const auto bytes = static_cast<std::size_t>(tile.rows * size);
      for (i64 j = 0; order_.by_columns && j < tile.reduced; ++j)
        std::memcpy(to + j * tile.rows * size, from, bytes);
      for (i64 r = 0; !order_.by_columns && r < tile.rows; ++r) {
        Element element;
        std::memcpy(element.bytes, from + r * size, static_cast<std::size_t>(size));
        fill_elements(to + r * tile.reduced * size, element, size, tile.reduced);
      }
      return;
    }
    case Instruction::Kind::reduce: return reduce(instruction, tile);
  }
}

// The number of an instruction's operand in spaces: outputs come before inputs in those of
// elements, after them in those of rows.
int BodyInterpreter::operand_of(const Instruction& instruction) const {
  const bool loads = instruction.kind == Instruction::Kind::load;
  return instruction.number + (loads ? (reduces_ ? 0 : outputs_) : (reduces_ ? inputs_ : 0));
}

// The address of the tile in an operand's memory if a register can be there; else null.
char* BodyInterpreter::in_place(const Instruction& instruction, const Tile& tile) const {
  const Register& reg = registers_[instruction.reg];
  const int operand = operand_of(instruction);
  if (reg.type != instruction.memory) return nullptr;
  i64 offset = tile.base[operand];
  if (reg.of_rows) {
    if (tile.rows > 1 && tile.arguments.space->inner_stride(operand) != 1) return nullptr;
  } else {
    if (tile.walk.inner_stride(operand) != 1 ||
        (tile.place.run(tile.walk) < tile.count && !is_contiguous(tile.walk, operand)))
      return nullptr;
    offset += tile.place.offset(tile.walk, operand);
  }
  const auto number = static_cast<std::size_t>(instruction.number);
  const void* const memory = instruction.kind == Instruction::Kind::load
                                 ? tile.arguments.inputs[number]
                                 : tile.arguments.outputs[number];
  return static_cast<char*>(const_cast<void*>(memory)) +
         offset * static_cast<i64>(size_of(instruction.memory));
}

// Copies between memory and a register.
void BodyInterpreter::move(const Instruction& instruction, Tile& tile) const {
  const Register& reg = registers_[instruction.reg];
  const bool loads = instruction.kind == Instruction::Kind::load,
             converts = reg.type != instruction.memory;
  char*& values = tile.registers[instruction.reg];
  char* const there = in_place(instruction, tile);
  if (there == values) return;
  if (there && loads && !reg.stored) {
    values = there;
    return;
  }
  const int operand = operand_of(instruction);
  const auto number = static_cast<std::size_t>(instruction.number);
  const i64 size = static_cast<i64>(size_of(instruction.memory)), n = tile.size(reg);
  std::vector<char> moved(converts ? static_cast<std::size_t>(n * size) : 0);
  char* const plain = converts ? moved.data() : values;
  const auto convert = [](DType from, DType to) {
    return loops->convert[static_cast<int>(from)][static_cast<int>(to)];
  };
  StridedSpace row;  // of a value of each row
  row.operands = operand + 1;
  row.add_dim(tile.rows);
  if (reg.of_rows) row.stride[operand][0] = tile.arguments.space->inner_stride(operand);
  const StridedSpace& walk = reg.of_rows ? row : tile.walk;
  const i64 stride = walk.inner_stride(operand);
  const void* const whole = loads ? tile.arguments.inputs[number] : tile.arguments.outputs[number];
  char* const memory = static_cast<char*>(const_cast<void*>(whole)) + tile.base[operand] * size;
  if (!loads && converts) convert(reg.type, instruction.memory)(plain, values, n);
  each_run(walk, operand, reg.of_rows ? Coordinates() : tile.place, n,
           [&](i64 done, i64 run, i64 offset) {
             char* const mine = plain + done * size;
             char* const other = memory + offset * size;
             if (stride == 1) {
               std::memcpy(loads ? mine : other, loads ? other : mine,
                           static_cast<std::size_t>(run * size));
               return;
             }
             if (loads) return gather_strided(mine, other, size, run, stride);
             visit_word(size, [&](auto* word) {
               using W = std::remove_pointer_t<decltype(word)>;
               for (i64 i = 0; i < run; ++i)
                 reinterpret_cast<W*>(other)[i * stride].bits = reinterpret_cast<W*>(mine)[i].bits;
             });
           });
  if (loads && converts) convert(instruction.memory, reg.type)(values, plain, n);
}

// In eager's order, as CpuOrder says.
void BodyInterpreter::reduce(const Instruction& instruction, Tile& tile) const {
  const Register& given = registers_[instruction.inputs[0]];
  const ReductionLoops& fold = loops->reduction[instruction.number][static_cast<int>(given.type)];
  const char* const values = tile.registers[instruction.inputs[0]];
  const i64 size = static_cast<i64>(size_of(given.type)), rows = tile.rows;
  const i64 end = tile.first + tile.reduced, elements = tile.arguments.reduced->count();
  std::vector<double>& totals = tile.totals[instruction.reg];
  std::vector<double>& others = tile.others[instruction.reg];
  for (i64 first = tile.first; first < end;) {
    const i64 block = first / order_.block * order_.block;
    const i64 block_end = std::min(elements, block + order_.block), last = std::min(end, block_end);
    std::vector<double>& to = block == 0 ? totals : others;
    if (first == block) {
      to.resize(static_cast<std::size_t>(rows));
      fold.identity(to.data(), rows);
    }
    if (order_.by_columns) {
      fold.fold_rows(to.data(), values + (first - tile.first) * rows * size, rows, last - first,
                     rows);
    } else {
      for (i64 at = first; at < last;) {
        const i64 run = std::min(last, (at / order_.run + 1) * order_.run) - at;
        for (i64 done = 0; done < run; done += instruction.piece)
          fold.fold_runs(to.data(), values + (at + done) * size,
                         std::min(instruction.piece, run - done), rows, tile.reduced);
        at += run;
      }
    }
    if (block > 0 && last == block_end) fold.merge(totals.data(), others.data(), rows);
    first = last;
  }
  if (end == elements) fold.finish(tile.registers[instruction.reg], totals.data(), rows, elements);
}

}  // namespace brrr::on_cpu

namespace brrr::test {

Interpreted::Interpreted() {
  on_cpu::set_body_runners([](const jit::Body& body, const StridedSpace& reduced,
                              const jit::CpuOrder& order) -> std::unique_ptr<on_cpu::BodyRunner> {
    return std::make_unique<on_cpu::BodyInterpreter>(body, reduced, order);
  });
}
Interpreted::~Interpreted() { on_cpu::set_body_runners(nullptr); }

}  // namespace brrr::test
