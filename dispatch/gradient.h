// Arguments and results of a gradient rule. A rule is written over public ops, so that it can be
// traced and differentiated again. It runs once for a recorded call, with the gradients of the
// outputs, and gives the gradients of the operands that need one.
#pragma once

#include <utility>

#include <brrr/dispatch/call.h>

namespace brrr {

// The metadata of an operand whose values were not saved.
struct Like {
  DType dtype;
  Device device;
  Dims shape;
  bool column_major = false;  // of the last two dimensions, the first is adjacent in memory
};

// Operands are counted as in the op's expression: numbers count.
class Gradient {
 public:
  // The recorded call: op and attributes. Its inputs are in `operand`, where they were saved.
  const Call& call;

  // Of an output; undefined where it is zero, which only ops of several outputs see.
  const Tensor& g(int output = 0) const { return of_outputs[output]; }
  bool wants(int i) const { return wanted[i]; }
  // Defined where the row declares that the gradient reads it.
  const Tensor& operand(int i) const { return *operands[i]; }
  // An operand of a pointwise op may be a number.
  bool is_number(int i) const { return call.is_scalar(i); }
  double number(int i) const { return call.attrs[i].d(); }
  const Tensor& result(int output = 0) const { return *results[output]; }
  Like like(int i) const {
    if (likes[i]) return *likes[i];
    return {of_outputs[0].dtype(), of_outputs[0].device(), Dims(of_outputs[0].shape())};
  }
  bool is_like_the_output(int i) const { return !likes[i]; }
  // An undefined gradient is zero.
  void give(int i, Tensor gradient) { given[i] = std::move(gradient); }

  // --- Filled in by the caller of the rule ---
  const Tensor* of_outputs;
  const Tensor* const* operands;
  const Tensor* const* results;
  const Like* const* likes;  // null for an operand of the first output's shape and dtype
  Tensor* given;
  const bool* wanted;
  int n_operands;
};

}  // namespace brrr
