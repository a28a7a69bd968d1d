// An op that counts its runs on the CPU and copies its operand.
#pragma once

#include <string>

#include <brrr/ops/functions.h>
#include <brrr/ops/register_op.h>

namespace brrr::test {

inline int runs_of_counting_ops = 0;

// The result is like the operand.
inline void infer_like_operand(const core::Call& call, core::OutputSpec* outputs) {
  outputs[0] = {call.input(0).dtype(), call.input(0).device(), Dims(call.input(0).shape())};
}

// `channel`: where it keeps its order; "": of unknown effect.
inline core::Op counting_op(const std::string& name, const char* channel) {
  return register_op(StructuredOp{.name = name + channel,
                                  .infer = infer_like_operand,
                                  .cpu =
                                      [](const core::Call& call, Tensor* outputs) {
                                        ++runs_of_counting_ops;
                                        copy_(outputs[0], call.input(0));
                                      },
                                  .channel = channel,
                                  .cost = core::cost_of_moving});
}

}  // namespace brrr::test
