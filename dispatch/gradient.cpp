#include "brrr/dispatch/gradient.h"

#include "brrr/dispatch/op_info.h"
#include "brrr/tensor/fail.h"

namespace brrr::core {

void throw_no_operand(const Call& call, int i) {
  fail("[{}] expected its gradient rule to name an operand of the call, got number {}",
       op_info(call.op).name, i);
}

void require_output(const Call& call, int output) {
  const OpInfo& info = op_info(call.op);
  if (output < 0 || output >= info.n_outputs) {
    fail("[{}] expected its gradient rule to name one of {} outputs, got number {}", info.name,
         int{info.n_outputs}, output);
  }
}

namespace {

void require_named(const OpInfo& info, CallValues value, const std::string& letter) {
  if (!info.registered || info.gradient.needs[0] & value) return;
  fail(
      "[{}] expected its gradient rule to read values that `needs` names, got {}; add \"{}\" to "
      "`needs`",
      info.name, letter, letter);
}

}  // namespace

void require_needed(const Call& call, int operand) {
  const OpInfo& info = op_info(call.op);
  if (info.arity >= 0 && operand >= info.arity) return;
  require_named(info, operand_bit(operand), std::string(1, static_cast<char>('a' + operand)));
}

void require_needed_output(const Call& call, int output) {
  const OpInfo& info = op_info(call.op);
  require_named(info, result_bit(output), info.n_outputs == 1 ? "y" : "y" + std::to_string(output));
}

}  // namespace brrr::core
