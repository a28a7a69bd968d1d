// Owns how rows of the op table become kernel specs, and the rules that a spec obeys.
#include "brrr/ops/jit/spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/render.h"
#include "brrr/tensor/error.h"

namespace brrr::jit {

int KernelSpec::add(Value value) {
  values.push_back(std::move(value));
  return static_cast<int>(values.size()) - 1;
}

int KernelSpec::add_input(DType dtype, Access access) {
  inputs.push_back({dtype, access, 0});
  Value value;
  value.kind = Value::Kind::input;
  value.dtype = value.type = dtype;
  value.number = static_cast<int>(inputs.size()) - 1;
  return add(std::move(value));
}

int KernelSpec::add_scalar(DType dtype) {
  scalars.push_back(register_dtype(dtype));
  Value value;
  value.kind = Value::Kind::scalar;
  value.dtype = value.type = register_dtype(dtype);
  value.number = static_cast<int>(scalars.size()) - 1;
  return add(std::move(value));
}

void KernelSpec::add_output(int value, DType dtype, Access access) {
  outputs.push_back({dtype, access, value});
}

int add_pointwise(KernelSpec& spec, const OpInfo& op, DType computed_in, DType result,
                  const std::vector<int>& operands) {
  Value value;
  value.kind = Value::Kind::expression;
  value.type = computed_in;
  value.dtype = op.rule == DTypeRule::predicate ? boolean : result;
  value.select = op.rule == DTypeRule::select;
  value.operands = operands;
  value.text = op.expression;
  return spec.add(std::move(value));
}

int add_reduction(KernelSpec& spec, const OpInfo& op, DType result, int operand) {
  Value value;
  value.kind = Value::Kind::reduction;
  value.type = register_dtype(result);
  value.dtype = result;
  value.operands = {operand};
  value.text = op.expression;
  value.identity = op.identity;
  value.combine = op.combine;
  value.finish = op.finish;
  return spec.add(std::move(value));
}

int add_arg_reduction(KernelSpec& spec, const OpInfo& op, int operand) {
  Value value;
  value.kind = Value::Kind::arg;
  value.type = register_dtype(spec.values[operand].dtype);
  value.dtype = i64;
  value.operands = {operand};
  value.text = op.expression;
  return spec.add(std::move(value));
}

namespace {

std::string entry_name(std::string_view op, DType dtype) {
  std::string name;
  for (char c : op) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return fmt::format("{}_{}", name, name_of(dtype));
}

}  // namespace

KernelSpec pointwise_spec(const OpInfo& op, DType computed_in, std::uint8_t scalars,
                          const std::vector<DType>& inputs, DType output) {
  KernelSpec spec;
  spec.name = entry_name(op.name, computed_in);
  std::vector<int> operands;
  std::size_t next = 0;
  for (int i = 0; i < op.arity; ++i) {
    const bool condition = i == 0 && op.rule == DTypeRule::select;
    operands.push_back(scalars >> i & 1 ? spec.add_scalar(condition ? boolean : computed_in)
                                        : spec.add_input(inputs.at(next++)));
  }
  spec.add_output(add_pointwise(spec, op, computed_in, computed_in, operands), output);
  return spec;
}

KernelSpec copy_spec(DType from, DType to) {
  KernelSpec spec;
  spec.name = fmt::format("copy_{}_{}", name_of(from), name_of(to));
  spec.add_output(spec.add_input(from), to);
  return spec;
}

KernelSpec reduction_spec(const OpInfo& op, DType input, DType output) {
  KernelSpec spec;
  spec.name = entry_name(op.name, input);
  spec.walk = Walk::rows;
  spec.add_output(add_reduction(spec, op, output, spec.add_input(input)), output);
  return spec;
}

KernelSpec arg_reduction_spec(const OpInfo& op, DType input) {
  KernelSpec spec;
  spec.name = entry_name(op.name, input);
  spec.walk = Walk::rows;
  spec.add_output(add_arg_reduction(spec, op, spec.add_input(input)), i64);
  return spec;
}

int widest_access(const KernelSpec& spec) {
  std::size_t size = 1;
  for (const Operand& input : spec.inputs) {
    if (input.access != Access::broadcast) size = std::max(size, size_of(input.dtype));
  }
  // The few results of a reduction are written one by one.
  if (!spec.reduces() || spec.inputs.empty()) {
    for (const Operand& output : spec.outputs) size = std::max(size, size_of(output.dtype));
  }
  return static_cast<int>(16 / size);
}

void verify(const KernelSpec& spec) {
  const auto require = [&spec](bool holds, std::string_view what) {
    if (!holds) fail(fmt::format("[{}] expected a kernel spec with {}", spec.name, what));
  };
  const auto power_of_two = [](int n) { return n > 0 && (n & (n - 1)) == 0; };
  require(!spec.name.empty() && !spec.outputs.empty(), "a name and outputs");
  require(spec.rank >= 1 && spec.rank <= 8 && spec.reduced_rank >= 1 && spec.reduced_rank <= 8,
          "ranks of 1 to 8");
  require(power_of_two(spec.width) && spec.width <= 16 && spec.unroll >= 1, "a width of 1 to 16");
  require(spec.threads % 32 == 0 && spec.threads <= 1024, "blocks of whole warps");
  require(power_of_two(spec.lanes) && spec.lanes <= spec.threads, "lanes that are a power of two");
  require(spec.walk != Walk::tiled || spec.rank >= 2, "two dimensions to turn");
  // 0: per element, 1: per result
  std::vector<int> level;
  for (std::size_t i = 0; i < spec.values.size(); ++i) {
    const Value& value = spec.values[i];
    bool per_result = false,
         per_element = value.kind == Value::Kind::input || value.kind == Value::Kind::index;
    for (int operand : value.operands) {
      require(operand >= 0 && operand < static_cast<int>(i), "values in order");
      const Value::Kind kind = spec.values[operand].kind;
      if (kind == Value::Kind::scalar) continue;
      (level[operand] ? per_result : per_element) = true;
    }
    switch (value.kind) {
      case Value::Kind::input:
        require(value.number >= 0 && value.number < static_cast<int>(spec.inputs.size()),
                "known inputs");
        break;
      case Value::Kind::scalar:
        require(value.number >= 0 && value.number < static_cast<int>(spec.scalars.size()),
                "known scalars");
        break;
      case Value::Kind::index:
        require(spec.walk != Walk::strided && spec.walk != Walk::tiled,
                "no index in a strided walk");
        break;
      case Value::Kind::expression:
        require(!value.text.empty() && !value.operands.empty() && value.operands.size() <= 26,
                "expressions");
        break;
      case Value::Kind::reduction:
      case Value::Kind::arg:
        require(spec.reduces() && value.operands.size() == 1 && !per_result,
                "reductions of elements");
        per_element = false;
        per_result = true;
        break;
    }
    require(!(per_result && per_element), "no elements beside results in one expression");
    level.push_back(per_result ? 1 : 0);
  }
  require(spec.walk != Walk::columns ||
              partial_size(spec) * static_cast<std::size_t>(spec.width * spec.threads) <= 48 * 1024,
          "accumulators that fit into shared memory");
  for (const Operand& output : spec.outputs) {
    require(output.value >= 0 && output.value < static_cast<int>(spec.values.size()),
            "known results");
    require(!spec.reduces() || level[output.value] == 1, "outputs that are results");
  }
}

}  // namespace brrr::jit
