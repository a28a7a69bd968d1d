// Owns how the interpreter runs its steps.
#include "brrr/ops/cpu/body_interpreter.h"

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
  std::vector<std::vector<char>> memory = {};  // of each slot
  std::vector<char*> slots = {};               // where it is: there, or in the memory of an operand
  std::vector<i64> filled = {};                // elements of constants
  std::vector<std::vector<double>> totals = {}, others = {};  // of any type: of each reduction

  i64 size(const Slot& slot) const { return slot.of_rows ? rows : count; }
};

void BodyInterpreter::run(const jit::CpuArguments& arguments, i64 begin, i64 end) const {
  constexpr i64 kCache = 192 << 10, kColumns = 256;
  const i64 most = std::clamp<i64>(kCache / static_cast<i64>(8 * buffers_ + 1), 64, kTile);
  Tile tile{.arguments = arguments, .walk = *arguments.space, .place = {}};
  tile.memory.resize(buffers_);
  tile.slots.resize(slots_.size());
  tile.filled.resize(slots_.size());
  tile.totals.resize(slots_.size());
  tile.others.resize(slots_.size());
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
    tile.walk.add_dim(tile.rows);
    for (int k = 0; k < reduced.operands; ++k) {
      tile.base[k] = line.offset(kept, k);
      tile.walk.stride[k][reduced.rank] = kept.inner_stride(k);
    }
    if (!order_.by_columns) move_dim(tile.walk, reduced.rank, 0);
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
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(tile.size(slots_[i])) * size_of(slots_[i].type);
    std::vector<char>& memory = tile.memory[slots_[i].buffer];
    if (memory.size() < bytes) {
      memory.resize(bytes);
      tile.filled[i] = 0;
    }
  }
  for (std::size_t i = 0; i < slots_.size(); ++i)
    tile.slots[i] = tile.memory[slots_[i].buffer].data();
  // The value of an output is computed in place, unless the output is also an input.
  for (const Step& step : steps_) {
    const auto is_input = [&](const void* memory) {
      const void* const* inputs = tile.arguments.inputs;
      return std::find(inputs, inputs + inputs_, memory) != inputs + inputs_;
    };
    if (step.kind != Step::Kind::store || slots_[step.slot].loaded ||
        is_input(tile.arguments.outputs[step.number]))
      continue;
    if (char* memory = in_place(step, tile)) tile.slots[step.slot] = memory;
  }
  for (const Step& step : steps_) run_step(step, tile);
}

void BodyInterpreter::run_step(const Step& step, Tile& tile) const {
  const auto at = static_cast<std::size_t>(step.slot);
  const auto memory = [&](int slot) { return tile.slots[slot]; };
  const i64 n = tile.size(slots_[at]), size = static_cast<i64>(size_of(slots_[at].type));
  char* const to = memory(step.slot);
  switch (step.kind) {
    case Step::Kind::load:
    case Step::Kind::store: return move(step, tile);
    case Step::Kind::constant: {
      if (tile.filled[at] >= n) return;
      Element element;
      const std::uint64_t* scalars = tile.arguments.scalars;
      std::memcpy(element.bytes, step.scalar < 0 ? &step.bits : scalars + step.scalar, 8);
      tile.filled[at] = n;
      return fill_elements(to, element, size, n);
    }
    case Step::Kind::apply: {
      const void* inputs[kMaxInputs];
      for (std::size_t k = 0; k < step.inputs.size(); ++k) inputs[k] = memory(step.inputs[k]);
      return step.loop(to, inputs, n);
    }
    case Step::Kind::convert: return step.convert(to, memory(step.inputs[0]), n);
    case Step::Kind::spread: {
      const char* const from = memory(step.inputs[0]);
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
    case Step::Kind::reduce: return reduce(step, tile);
  }
}

// The number of a step's operand in spaces: outputs stand before inputs in those of elements, after
// them in those of rows.
int BodyInterpreter::operand_of(const Step& step) const {
  const bool loads = step.kind == Step::Kind::load;
  return step.number + (loads ? (reduces_ ? 0 : outputs_) : (reduces_ ? inputs_ : 0));
}

// The address of the tile in an operand's memory if a slot can be there; else null.
char* BodyInterpreter::in_place(const Step& step, const Tile& tile) const {
  const Slot& slot = slots_[step.slot];
  const int operand = operand_of(step);
  if (slot.type != step.memory) return nullptr;
  i64 offset = tile.base[operand];
  if (slot.of_rows) {
    if (tile.rows > 1 && tile.arguments.space->inner_stride(operand) != 1) return nullptr;
  } else {
    if (tile.walk.inner_stride(operand) != 1 ||
        (tile.place.run(tile.walk) < tile.count && !is_contiguous(tile.walk, operand)))
      return nullptr;
    offset += tile.place.offset(tile.walk, operand);
  }
  const auto number = static_cast<std::size_t>(step.number);
  const void* const memory = step.kind == Step::Kind::load ? tile.arguments.inputs[number]
                                                           : tile.arguments.outputs[number];
  return static_cast<char*>(const_cast<void*>(memory)) +
         offset * static_cast<i64>(size_of(step.memory));
}

// Between memory and a slot.
void BodyInterpreter::move(const Step& step, Tile& tile) const {
  const Slot& slot = slots_[step.slot];
  const bool loads = step.kind == Step::Kind::load, converts = slot.type != step.memory;
  char*& values = tile.slots[step.slot];
  char* const there = in_place(step, tile);
  if (there == values) return;
  if (there && loads && !slot.stored) {
    values = there;
    return;
  }
  const int operand = operand_of(step);
  const auto number = static_cast<std::size_t>(step.number);
  const i64 size = static_cast<i64>(size_of(step.memory)), n = tile.size(slot);
  std::vector<char> moved(converts ? static_cast<std::size_t>(n * size) : 0);
  char* const plain = converts ? moved.data() : values;
  const auto convert = [](DType from, DType to) {
    return loops->convert[static_cast<int>(from)][static_cast<int>(to)];
  };
  StridedSpace row;  // of a value of each row
  row.operands = operand + 1;
  row.add_dim(tile.rows);
  if (slot.of_rows) row.stride[operand][0] = tile.arguments.space->inner_stride(operand);
  const StridedSpace& walk = slot.of_rows ? row : tile.walk;
  const i64 stride = walk.inner_stride(operand);
  const void* const whole = loads ? tile.arguments.inputs[number] : tile.arguments.outputs[number];
  char* const memory = static_cast<char*>(const_cast<void*>(whole)) + tile.base[operand] * size;
  if (!loads && converts) convert(slot.type, step.memory)(plain, values, n);
  each_run(walk, operand, slot.of_rows ? Coordinates() : tile.place, n,
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
  if (loads && converts) convert(step.memory, slot.type)(values, plain, n);
}

// In eager's order, as CpuOrder says.
void BodyInterpreter::reduce(const Step& step, Tile& tile) const {
  const Slot& given = slots_[step.inputs[0]];
  const ReductionLoops& fold = loops->reduction[step.number][static_cast<int>(given.type)];
  const char* const values = tile.slots[step.inputs[0]];
  const i64 size = static_cast<i64>(size_of(given.type)), rows = tile.rows;
  const i64 end = tile.first + tile.reduced, elements = tile.arguments.reduced->count();
  std::vector<double>& totals = tile.totals[step.slot];
  std::vector<double>& others = tile.others[step.slot];
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
        for (i64 done = 0; done < run; done += step.piece)
          fold.fold_runs(to.data(), values + (at + done) * size, std::min(step.piece, run - done),
                         rows, tile.reduced);
        at += run;
      }
    }
    if (block > 0 && last == block_end) fold.merge(totals.data(), others.data(), rows);
    first = last;
  }
  if (end == elements) fold.finish(tile.slots[step.slot], totals.data(), rows, elements);
}

}  // namespace brrr::on_cpu
