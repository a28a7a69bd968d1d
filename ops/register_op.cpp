#include "brrr/ops/register_op.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/expression.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/cpu_compiler.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/pointwise.h"
#include "brrr/ops/registered.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

struct RegisteredPointwise final : RegisteredOp {
  // By the type computed in; made at the first call
  std::array<std::atomic<on_cpu::Loop>, kDTypes> loops{};
};

void run_pointwise(const Call& call, Tensor* outputs) {
  const OpInfo& info = op_info(call.op);
  auto& op = static_cast<RegisteredPointwise&>(*info.registered);
  const DType dtype = is_half(call.dtype) ? f32 : call.dtype;
  std::atomic<on_cpu::Loop>& slot = op.loops[static_cast<int>(dtype)];
  on_cpu::Loop loop = slot.load(std::memory_order_acquire);
  if (!loop) {
    loop = jit::pointwise_loop(info, dtype);
    slot.store(loop, std::memory_order_release);
  }
  on_cpu::run_loop(loop, call, outputs);
}

void require_name(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_word = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
  };
  if (name.empty() || is_digit(name[0]) || !std::ranges::all_of(name, is_word))
    fail("[register_op] expected a name of letters, digits and _, got \"{}\"", name);
}

// Calls the user's rule and checks its results against the operands.
void run_gradient(Gradient& gradient) {
  const OpInfo& info = op_info(gradient.call.op);
  info.registered->gradient(gradient);
  for (int i = gradient.n_operands; i < Gradient::kLeastOperands; ++i) {
    if (gradient.of_operands[i].defined()) core::throw_no_operand(gradient.call, i);
  }
  for (int i = 0; i < gradient.n_operands; ++i) {
    Tensor& given = gradient.of_operands[i];
    if (!gradient.wants(i) || !given.defined()) continue;
    const Like like = gradient.like(i);
    if (info.kind == OpKind::pointwise && !gradient.is_like_the_output(i) &&
        std::ranges::equal(given.shape(), gradient.g().shape())) {
      given = sum_to(given, like.shape);
    }
    if (given.dtype() != like.dtype || given.device() != like.device ||
        !std::ranges::equal(given.shape(), like.shape)) {
      fail("[{}] expected its gradient rule to give operand {} a gradient of {}{}, got {}",
           info.name, i, name_of(like.dtype), to_string(like.shape), given.describe());
    }
  }
}

// "a c y1" as values of a call.
CallValues values_named(const std::string& op, const std::string& names, int inputs, int outputs) {
  CallValues values = 0;
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const int operand = word.size() == 1 ? word[0] - 'a' : -1;
    const int output = word == "y" ? 0 : word.size() == 2 && word[0] == 'y' ? word[1] - '0' : -1;
    if (output >= 0 && output < outputs) {
      values |= result_bit(output);
    } else if (operand >= 0 && operand < kResultBit && (inputs < 0 || operand < inputs)) {
      values |= operand_bit(operand);
    } else {
      fail(
          "[register_op] expected {} to need operands by letter, from a on, and results as y, got "
          "\"{}\"",
          op, word);
    }
  }
  return values;
}

GradientRule gradient_rule(const std::string& op, bool exists, const std::string& needs, int inputs,
                           int outputs) {
  const CallValues values = values_named(op, needs, inputs, outputs);
  if (!exists && values != 0)
    fail("[register_op] expected a gradient that needs \"{}\" for {}, got none", needs, op);
  GradientRule rule;
  if (!exists) return rule;
  rule.run = run_gradient;
  rule.differentiable = (1u << kResultBit) - 1;
  for (CallValues& each : rule.needs) each = values;
  return rule;
}

}  // namespace

Op register_op(const PointwiseOp& op) {
  require_name(op.name);
  if (op.arity < 1 || op.arity > kMaxPointwiseArity) {
    fail("[register_op] expected {} to have 1 to {} operands, got {}", op.name, kMaxPointwiseArity,
         op.arity);
  }
  if (op.rule == DTypeRule::widened || op.rule == DTypeRule::converts ||
      (op.rule == DTypeRule::select && op.arity != 3)) {
    fail("[register_op] expected a dtype rule for pointwise ops of {} operands for {}", op.arity,
         op.name);
  }
  auto registered = std::make_shared<RegisteredPointwise>();
  const DTypeSet computed =
      op.rule == DTypeRule::float_like ? op.types & dtype_sets::floats : op.types;
  if (computed == 0) fail("[register_op] expected types that {} computes in, got none", op.name);
  OpInfo info;
  info.kind = OpKind::pointwise;
  info.rule = op.rule;
  info.types = op.types;
  info.arity = static_cast<std::int8_t>(op.arity);
  info.low = op.low;
  info.high = op.high;
  info.expression = checked_expression(op.expression, op.arity, computed, op.rule);
  info.infer = infer::pointwise;
  info.cost = cost::pointwise;
  info.cpu = run_pointwise;
#if BRRR_HAS_CUDA
  info.cuda = on_cuda::pointwise;
#endif
  registered->gradient = op.gradient;
  info.gradient = gradient_rule(op.name, op.gradient != nullptr, op.needs, op.arity, 1);
  info.registered = std::move(registered);
  return add_op(std::move(info), op.name);
}

namespace {

const OpInfo& known(Op op) {
  if (static_cast<int>(op) >= op_count())
    fail("[call_op] expected an op of the {} in the table, got number {}", op_count(),
         static_cast<int>(op));
  return op_info(op);
}

}  // namespace

Tensor call_op(Op op, std::span<const Operand> operands) {
  const OpInfo& info = known(op);
  if (info.kind != OpKind::pointwise) {
    std::vector<Tensor> inputs;
    for (const Operand& operand : operands) {
      if (!operand.tensor) fail("[{}] expected tensors, got a number", info.name);
      inputs.push_back(*operand.tensor);
    }
    if (info.n_outputs != 1) {
      fail("[{}] has {} outputs: call it with its attributes, or {{}} for none", info.name,
           info.n_outputs);
    }
    return call_op(op, inputs, std::span<const Scalar>()).front();
  }
  if (static_cast<int>(operands.size()) != info.arity) {
    fail("[{}] expected {} tensors or numbers, got {}", info.name, info.arity, operands.size());
  }
  return pointwise(op, operands, nullptr);
}

// --- Structured ops ---

namespace {

struct RegisteredStructured final : RegisteredOp {
  StructuredOp op;
};

const StructuredOp& definition(const Call& call) {
  return static_cast<const RegisteredStructured&>(*op_info(call.op).registered).op;
}

Cost cost_structured(const Call& call, std::span<const Tensor> outputs) {
  return definition(call).cost(call, outputs);
}

void cpu_structured(const Call& call, Tensor* outputs) {
  const StructuredOp& op = definition(call);
  if (!op.cpu) fail("[{}] has no CPU kernel; register one, or move its inputs to CUDA", op.name);
  op.cpu(call, outputs);
}

#if BRRR_HAS_CUDA
void cuda_structured(const Call& call, Tensor* outputs) {
  const StructuredOp& op = definition(call);
  if (op.cuda) return op.cuda(call, outputs);
  if (op.cuda_kernel.source.empty()) {
    fail("[{}] has no CUDA kernel; register one, or move its inputs to the CPU", op.name);
  }
  on_cuda::run_kernel_source(op.cuda_kernel, call, outputs, op.outputs);
}
#endif

Attr attribute(const char* op, const Attribute& row, Scalar value) {
  if (row.kind == Attribute::Kind::real) return Attr::of(value.to_double());
  if (value.category() == Category::floating) {
    fail("[{}] expected an integer for attribute {}, got {}: \"{}:double\" takes it", op, row.name,
         value.to_double(), row.name);
  }
  return value.to_int();
}

}  // namespace

Op register_op(const StructuredOp& op) {
  require_name(op.name);
  if (op.inputs == 0 || op.inputs < -1 || op.inputs > 100) {
    fail("[register_op] expected {} to have 1 to 100 inputs, or -1 for any number, got {}", op.name,
         op.inputs);
  }
  const std::vector<Attribute> attributes = parse_attributes(op.attributes);
  if (attributes.size() > kMaxAttrs) {
    fail("[register_op] expected {} to have at most {} attributes, got \"{}\"", op.name, kMaxAttrs,
         op.attributes);
  }
  for (const Attribute& attribute : attributes) {
    require_name(attribute.name);
    if (attribute.kind != Attribute::Kind::integer && attribute.kind != Attribute::Kind::real) {
      fail("[register_op] expected attributes as \"axis\" or \"scale:double\", got {}",
           op.attributes);
    }
  }
  if (op.outputs < 1 || op.outputs > kMaxOutputs) {
    fail("[register_op] expected {} to have 1 to {} outputs, got {}", op.name, kMaxOutputs,
         op.outputs);
  }
  if (op.pure && !op.channel.empty())
    fail("[register_op] expected {} to be pure or to have a channel, got both", op.name);
  if (!op.infer) fail("[register_op] expected a shape rule for {}, got none", op.name);
  if (!op.cost) {
    fail(
        "[register_op] expected a cost for {} (FLOPs and bytes of a call), got none: set cost, of "
        "an op that computes nothing to cost_of_moving",
        op.name);
  }
  if (!op.cuda_kernel.source.empty() && (!op.cuda_kernel.launch || op.cuda_kernel.entry.empty())) {
    fail("[register_op] expected an entry and a launch rule beside the CUDA source of {}", op.name);
  }
  auto registered = std::make_shared<RegisteredStructured>();
  registered->op = op;
  registered->gradient = op.gradient;
  OpInfo info;
  info.kind = OpKind::structured;
  info.arity = static_cast<std::int8_t>(op.inputs);
  info.n_outputs = static_cast<std::uint8_t>(op.outputs);
  info.attributes = op.attributes;
  info.gradient = gradient_rule(op.name, op.gradient != nullptr, op.needs, op.inputs, op.outputs);
  info.effect = op.pure ? Effect::pure : !op.channel.empty() ? Effect::ordered : Effect::unknown;
  info.channel = op.channel;
  info.infer = [](const Call& call, OutputSpec* outputs) { definition(call).infer(call, outputs); };
  info.cost = cost_structured;
  info.cpu = cpu_structured;
#if BRRR_HAS_CUDA
  info.cuda = cuda_structured;
#endif
  info.registered = std::move(registered);
  return add_op(std::move(info), op.name);
}

std::vector<Tensor> call_op(Op op, std::span<const Tensor> inputs,
                            std::span<const Scalar> attributes) {
  const OpInfo& info = known(op);
  if (info.kind == OpKind::pointwise || !info.registered) {
    fail(
        "[{}] expected a structured op that was registered; call built-in ops by their functions, "
        "and pointwise ones without attributes",
        info.name);
  }
  if (inputs.empty() || (info.arity >= 0 && info.arity != static_cast<int>(inputs.size()))) {
    fail("[{}] expected {} tensors, got {}", info.name,
         info.arity < 0 ? "1 or more" : std::to_string(info.arity), inputs.size());
  }
  const std::vector<Attribute>& row = info.parsed_attributes;
  if (attributes.size() != row.size()) {
    fail("[{}] expected {} attributes ({}), got {}", info.name, row.size(), info.attributes,
         attributes.size());
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) {
    if (!input.defined()) undefined_operand(info.name, static_cast<int>(pointers.size()));
    pointers.push_back(&input);
  }
  Call call(op, pointers.data(), static_cast<std::uint32_t>(pointers.size()));
  call.dtype = pointers[0]->dtype();
  for (std::size_t i = 0; i < row.size(); ++i)
    call.add_attr(attribute(info.name, row[i], attributes[i]));
  std::vector<Tensor> outputs(info.n_outputs);
  dispatch(call, outputs.data());
  return outputs;
}

}  // namespace brrr
