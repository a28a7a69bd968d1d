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

}  // namespace brrr::core
