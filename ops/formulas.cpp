#include "brrr/ops/formulas.h"

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/arguments.h"

namespace brrr {
namespace {

void run(Op op, std::initializer_list<const Tensor*> elements,
         std::initializer_list<const Operand*> numbers, std::span<Tensor> outputs, bool in_place) {
  const Tensor* inputs[kMaxAttrs + kMaxOutputs];
  Call call(op, inputs, 0);
  call.in_place = in_place;
  for (const Tensor* element : elements) inputs[call.n_inputs++] = element;
  std::int64_t tensors = 0;
  for (const Operand* number : numbers) {
    if (number->tensor) {
      tensors |= std::int64_t{1} << call.n_attrs;
      inputs[call.n_inputs++] = number->tensor;
    }
    call.add_attr(Attr::of(number->tensor ? 0 : number->scalar.to_double()));
  }
  call.add_attr(tensors);
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    if (!inputs[i]->defined()) undefined_operand(op_info(op).name, static_cast<int>(i));
  }
  for (std::size_t i = 0; in_place && i < outputs.size(); ++i) outputs[i] = *inputs[i];
  dispatch(call, outputs.data());
}

}  // namespace

#define BRRR_ADDRESS(name) &of.name,
#define BRRR_ONE(name) +1
#define BRRR_RUN(name, written, read, numbers, in_place)                          \
  std::array<Tensor, 0 BRRR_EACH(BRRR_ONE, written)> outputs;                     \
  run(Op::name, {BRRR_EACH(BRRR_ADDRESS, written) BRRR_EACH(BRRR_ADDRESS, read)}, \
      {BRRR_EACH(BRRR_ADDRESS, numbers)}, outputs, in_place);
#define BRRR_FORMULA(name, written, read, numbers, ...)                               \
  std::array<Tensor, 0 BRRR_EACH(BRRR_ONE, written)> name(const operands::name& of) { \
    BRRR_RUN(name, written, read, numbers, false)                                     \
    return outputs;                                                                   \
  }                                                                                   \
  void name##_(const operands::name& of) { BRRR_RUN(name, written, read, numbers, true) }
#include "brrr/dispatch/ops.def"

}  // namespace brrr
