#include "brrr/dispatch/cost.h"

#include <algorithm>

#include "brrr/dispatch/op_info.h"

namespace brrr {

Cost core::cost_of(const Call& call, std::span<const Tensor> outputs) {
  return does_work(call) ? op_info(call.op).cost(call, outputs) : Cost{};
}

bool core::does_work(const Call& call) {
  const OpInfo& info = op_info(call.op);
  return info.kind != OpKind::view && info.algebra != Algebra::undefined;
}

std::int64_t core::distinct_bytes(DType dtype, std::span<const std::int64_t> shape,
                                  std::span<const std::int64_t> strides) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (strides[d] != 0 || shape[d] == 0) bytes *= shape[d];
  }
  return bytes;
}

std::int64_t core::operand_bytes(const Call& call, std::span<const Tensor> outputs) {
  std::int64_t bytes = 0;
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) {
    if (call.inputs[i]->defined()) bytes += distinct_bytes(*call.inputs[i]);
  }
  std::int64_t written = 0;
  for (const Tensor& output : outputs) written += distinct_bytes(output);
  // A gather reads only as many bytes of its source as it returns.
  if (op_info(call.op).algebra == Algebra::gathering)
    bytes -= std::max<std::int64_t>(0, distinct_bytes(call.input(0)) - written);
  return bytes + written;
}

}  // namespace brrr
