// Translates a body to the instructions of its interpreter.
#include "tests/harness/body_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "brrr/ops/cpu/tiles.h"
#include "brrr/tensor/fail.h"

namespace brrr::on_cpu {

using jit::Body, jit::BodyValue;
using jit::register_dtype;
using Kind = BodyValue::Kind;

namespace {

// The pointwise rows, and the reductions, in the order of LoopTable.
std::vector<const OpInfo*> rows_of(OpKind kind) {
  std::vector<const OpInfo*> rows;
  for (int op = 0; op < kBuiltinOps; ++op) {
    const OpInfo& row = op_info(static_cast<Op>(op));
    if (row.kind == kind && row.rule != DTypeRule::converts) rows.push_back(&row);
  }
  return rows;
}
const std::vector<const OpInfo*>& pointwise_rows() {
  static const std::vector<const OpInfo*> rows = rows_of(OpKind::pointwise);
  return rows;
}

// -1: no row that `fits`.
template <class Fits>
int row_of(const std::vector<const OpInfo*>& rows, Fits fits) {
  const auto found = std::ranges::find_if(rows, [&](const OpInfo* row) { return fits(*row); });
  return found == rows.end() ? -1 : static_cast<int>(found - rows.begin());
}
int reduction_of(const BodyValue& value) {
  static const std::vector<const OpInfo*> rows = rows_of(OpKind::reduction);
  return row_of(rows, [&](const OpInfo& row) {
    return value.expression == row.expression && value.identity == row.identity &&
           value.combine == row.combine && value.finish == row.finish;
  });
}

[[noreturn]] void refuse(const std::string& what) {
  fail("[fuse] no loop without a compiler computes {}", what);
}

}  // namespace

// An expression that no row has, as those of formulas, becomes instructions of rows' smaller ones.
class InstructionMaker {
 public:
  using Instruction = BodyInterpreter::Instruction;

  InstructionMaker(BodyInterpreter& to, const Body& body)
      : to_(to), body_(body), levels_(jit::levels_of(body)) {
    for (std::size_t i = 0; i < body.values.size(); ++i) registers_.push_back(add_value(i));
    // Outputs may be the memory of inputs: stores come after everything else.
    std::vector<Instruction> stores;
    for (const Body::TensorOperand& output : body.outputs) {
      Instruction instruction{.kind = Instruction::Kind::store};
      const int reg = registers_[output.value];
      instruction.reg = in_type(is_of_rows(output.value) ? reg : spread(reg), output.dtype);
      instruction.number = static_cast<int>(stores.size());
      instruction.memory = output.dtype;
      to_.registers_[instruction.reg].stored = true;
      stores.push_back(instruction);
    }
    to_.instructions_.insert(to_.instructions_.end(), stores.begin(), stores.end());
    share_buffers();
  }

 private:
  bool is_of_rows(int value) const { return body_.reduces() && !levels_[value].per_element(); }

  // Registers of elements share a buffer where one is no longer read when the other is written.
  void share_buffers() {
    std::vector<std::size_t> last(to_.registers_.size(), 0);
    for (std::size_t i = 0; i < to_.instructions_.size(); ++i) {
      for (const int input : to_.instructions_[i].inputs) last[input] = i;
      last[to_.instructions_[i].reg] = i;
    }
    std::vector<std::size_t> busy_until;  // of each buffer
    for (std::size_t i = 0; i < to_.instructions_.size(); ++i) {
      const Instruction& instruction = to_.instructions_[i];
      const auto reg = static_cast<std::size_t>(instruction.reg);
      if (instruction.kind == Instruction::Kind::store) continue;
      const bool stays =
          instruction.kind == Instruction::Kind::constant || to_.registers_[reg].of_rows;
      auto buffer = std::find_if(busy_until.begin(), busy_until.end(),
                                 [i](std::size_t until) { return until < i; });
      if (stays || buffer == busy_until.end()) buffer = busy_until.insert(busy_until.end(), 0);
      *buffer = stays ? to_.instructions_.size() : last[reg];
      to_.registers_[reg].buffer = static_cast<int>(buffer - busy_until.begin());
    }
    to_.buffers_ = busy_until.size();
  }

  int add_register(DType type, bool of_rows) {
    to_.registers_.push_back({type, of_rows});
    return static_cast<int>(to_.registers_.size()) - 1;
  }
  const BodyInterpreter::Register& at(int reg) const { return to_.registers_[reg]; }
  int add_instruction(Instruction instruction, DType type, bool of_rows) {
    instruction.reg = add_register(type, of_rows);
    bool& reduced = to_.registers_[instruction.reg].reduced;
    reduced = instruction.kind == Instruction::Kind::reduce;
    for (const int input : instruction.inputs) reduced |= at(input).reduced;
    to_.one_pass_ &= !(reduced && instruction.kind == Instruction::Kind::spread);
    to_.instructions_.push_back(std::move(instruction));
    return to_.instructions_.back().reg;
  }

  int convert(int reg, DType type) {
    Instruction instruction{.kind = Instruction::Kind::convert};
    instruction.inputs = {reg};
    instruction.convert = loops->convert[static_cast<int>(at(reg).type)][static_cast<int>(type)];
    return add_instruction(instruction, type, at(reg).of_rows);
  }
  int in_type(int reg, DType type) {
    type = register_dtype(type);
    return at(reg).type == type ? reg : convert(reg, type);
  }
  int spread(int reg) {
    if (!at(reg).of_rows) return reg;
    Instruction instruction{.kind = Instruction::Kind::spread};
    instruction.inputs = {reg};
    return add_instruction(instruction, at(reg).type, false);
  }

  int add_value(std::size_t number) {
    const BodyValue& value = body_.values[number];
    const bool of_rows = is_of_rows(static_cast<int>(number));
    int reg = 0;
    switch (value.kind) {
      case Kind::input: {
        Instruction instruction{.kind = Instruction::Kind::load};
        instruction.number = value.number;
        instruction.memory = value.dtype;
        reg = add_instruction(instruction, register_dtype(value.dtype), of_rows);
        to_.registers_[reg].loaded = true;
        break;
      }
      case Kind::scalar: {
        Instruction instruction{.kind = Instruction::Kind::constant};
        instruction.scalar = value.number;
        return add_instruction(instruction, value.dtype, body_.reduces());
      }
      case Kind::expression: reg = add_expression(value); break;
      case Kind::reduction: reg = add_reduction(value); break;
      default: refuse("indices, draws and checks");
    }
    if (value.kind != Kind::input && is_rounded(body_, static_cast<int>(number)))
      reg = rounded(reg, value.dtype);
    return reg;
  }
  int rounded(int reg, DType half) { return convert(convert(reg, half), DType::f32); }

  int add_reduction(const BodyValue& value) {
    Instruction instruction{.kind = Instruction::Kind::reduce};
    instruction.number = reduction_of(value);
    const int given = value.operands[0];
    const DType type = register_dtype(value.type);
    if (instruction.number < 0) refuse("a registered reduction");
    const ReductionLoops& fold = loops->reduction[instruction.number][static_cast<int>(type)];
    if (!fold.finish) refuse(fmt::format("a reduction in {}", name_of(type)));
    instruction.inputs = {in_type(registers_[given], type)};
    instruction.piece = is_half(body_.value(given).dtype) ? std::min<i64>(to_.order_.piece, 1024)
                                                          : to_.order_.piece;
    return in_type(add_instruction(instruction, fold.result, true), type);
  }

  int add_expression(const BodyValue& value) {
    type_ = register_dtype(value.type);
    operands_.clear();
    for (std::size_t k = 0; k < value.operands.size(); ++k) {
      const int reg = registers_[value.operands[k]];
      operands_.push_back(in_type(reg, value.select && k == 0 ? DType::boolean : type_));
    }
    const int row =
        row_of(pointwise_rows(), [&](const OpInfo& r) { return r.expression == value.expression; });
    if (row >= 0) return apply(row, operands_);
    std::vector<int> regs;
    for (const ScalarValue& each : value.expression.values()) regs.push_back(scalar(each, regs));
    return value.dtype == boolean ? regs.back() : in_type(regs.back(), value.dtype);
  }

  // One operation of an expression, by the row that computes it alone.
  int scalar(const ScalarValue& value, const std::vector<int>& regs) {
    if (value.op == ScalarOp::operand) return operands_.at(static_cast<std::size_t>(value.number));
    if (value.op == ScalarOp::constant) return number(value.digits);
    std::vector<int> operands;
    for (const int operand : value.operands) operands.push_back(regs[operand]);
    return apply(row_of(pointwise_rows(),
                        [&](const OpInfo& row) {
                          return row.expression.is(value.op) &&
                                 row.expression.values().back().function == value.function;
                        }),
                 std::move(operands));
  }

  int apply(int row, std::vector<int> operands) {
    Instruction instruction{.kind = Instruction::Kind::apply};
    if (row >= 0) instruction.loop = loops->pointwise[row][static_cast<int>(type_)];
    if (!instruction.loop) refuse("an operation that no row has");
    const bool of_rows =
        std::all_of(operands.begin(), operands.end(), [&](int o) { return at(o).of_rows; });
    for (const int operand : operands)
      instruction.inputs.push_back(of_rows ? operand : spread(operand));
    const bool is_flag = pointwise_rows()[row]->rule == DTypeRule::predicate;
    return add_instruction(instruction, is_flag ? DType::boolean : type_, of_rows);
  }

  int number(const std::string& digits) {
    const double value = std::strtod(digits.c_str(), nullptr);
    std::int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const Element element = element_of(type_, bits, true);
    Instruction instruction{.kind = Instruction::Kind::constant};
    std::memcpy(&instruction.bits, element.bytes, sizeof instruction.bits);
    return add_instruction(instruction, type_, body_.reduces());
  }

  BodyInterpreter& to_;
  const Body& body_;
  std::vector<jit::Level> levels_;
  std::vector<int> registers_;  // of values
  DType type_ = DType::f32;     // of the expression being translated
  std::vector<int> operands_;
};

BodyInterpreter::BodyInterpreter(const Body& body, const StridedSpace& reduced,
                                 const jit::CpuOrder& order)
    : reduces_(body.reduces()),
      inputs_(static_cast<int>(body.inputs.size())),
      outputs_(static_cast<int>(body.outputs.size())),
      order_(order) {
  constexpr i64 kMostElements = i64{1} << 20;
  if (body.has_bounds() || !body.indices.empty()) refuse("blocks of a result");
  if (reduced.count() > kMostElements) refuse(fmt::format("rows of {} elements", reduced.count()));
  InstructionMaker(*this, body);
}

}  // namespace brrr::on_cpu
