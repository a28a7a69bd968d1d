// Formula rows on CUDA: one generated kernel for each row and types.
#include "brrr/ops/formulas.h"

#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/ops/kernels.h"

namespace brrr::on_cuda {
namespace {

#define BRRR_ONE(name) +1
#define BRRR_FORMULA(name, written, read, numbers, ...)                                    \
  static_assert(2 * (0 BRRR_EACH(BRRR_ONE, written)) + 0 BRRR_EACH(BRRR_ONE, read)         \
                                                           BRRR_EACH(BRRR_ONE, numbers) <= \
                    Elementwise::kMostOperands,                                            \
                #name " has more operands than an elementwise kernel takes");
#include "brrr/dispatch/ops.def"
#undef BRRR_ONE

jit::Body make(const void* of) {
  const Call& call = *static_cast<const Call*>(of);
  const OpInfo& info = op_info(call.op);
  jit::Body body;
  body.name = std::string(info.name) + "_" + name_of(call.input(0).dtype()).data();
  std::vector<int> operands;
  std::vector<DType> outputs;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i)
    operands.push_back(body.add_input(call.input(static_cast<int>(i)).dtype()));
  for (int k = 0; k < info.formula.written; ++k) outputs.push_back(call.input(k).dtype());
  std::vector<std::uint64_t> scalars;
  const std::vector<int> results = jit::add_call(body, call, operands, outputs, scalars);
  for (std::size_t k = 0; k < results.size(); ++k) body.add_output(results[k], outputs[k]);
  return body;
}

}  // namespace

void formula(const Call& call, Tensor* outputs) {
  const Formula& body = op_info(call.op).formula;
  Elementwise work;
  for (int k = 0; k < body.written; ++k) work.add_output(outputs[k]);
  work.what = static_cast<std::uint64_t>(call.op) |
              static_cast<std::uint64_t>(call.attrs[body.numbers()].i()) << 16;
  for (int i = 0, at = 16 + kMaxAttrs; i < static_cast<int>(call.n_inputs); ++i, at += 3) {
    work.add_input(call.input(i));
    work.what |= static_cast<std::uint64_t>(call.input(i).dtype()) << at;
  }
  each_number(call, [&](int k, const Tensor* tensor) {
    if (!tensor) work.add_scalar(jit::scalar_bits(call.attrs[k], true, formula_dtype(call)));
  });
  work.make = make;
  work.of = &call;
  run_elementwise(work);
}

}  // namespace brrr::on_cuda
