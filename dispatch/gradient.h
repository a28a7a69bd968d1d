// Arguments and results of a gradient rule. A rule is written over public ops, so that it can be
// traced and differentiated again. It runs once for a recorded call: it takes the gradients of the
// outputs and returns those of the operands that need one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include <brrr/dispatch/call.h>

namespace brrr::core {

// Thrown when a gradient rule asks for an operand or output that its call does not have.
[[noreturn]] void throw_no_operand(const Call& call, int i);
void require_output(const Call& call, int output);
// Throws if a registered op's rule asks for an operand or output that its `needs` does not name.
void require_needed(const Call& call, int operand);
void require_needed_output(const Call& call, int output);

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
  // The recorded call: op and attributes. Use `operand` for the inputs that were saved.
  const Call& call;

  // The gradient of an output. Undefined stands for zeros, which occurs only in ops of several
  // outputs.
  const Tensor& g(int output = 0) const { return of_outputs[output_at(output)]; }
  bool wants(int i) const { return wanted[at(i)]; }
  // Defined where the row declares that the gradient reads it.
  const Tensor& operand(int i) const {
    const Tensor& saved = *operands[at(i)];
    if (!saved.defined()) [[unlikely]]
      require_needed(call, i);
    return saved;
  }
  // An operand of a pointwise op may be a number.
  bool is_number(int i) const { return call.is_scalar(i); }
  double number(int i) const { return call.attrs[i].d(); }
  const Tensor& result(int output = 0) const {
    const Tensor& saved = *results[output_at(output)];
    if (!saved.defined()) [[unlikely]]
      require_needed_output(call, output);
    return saved;
  }
  Like like(int i) const {
    if (likes[at(i)]) return *likes[i];
    return {of_outputs[0].dtype(), of_outputs[0].device(), Dims(of_outputs[0].shape())};
  }
  bool is_like_the_output(int i) const { return !likes[at(i)]; }
  // An undefined gradient is zero.
  void set(int i, Tensor gradient) { of_operands[at(i)] = std::move(gradient); }

  // Rules may ask for operands 0 to 3 of any call: gradients of missing operands are not wanted.
  static constexpr int kLeastOperands = 4;

  // --- Filled in by the caller of the rule ---
  const Tensor* of_outputs;
  const Tensor* const* operands;
  const Tensor* const* results;
  const Like* const* likes;  // null for an operand of the first output's shape and dtype
  Tensor* of_operands;
  const bool* wanted;
  int n_operands;

 private:
  int at(int i) const {
    if (i < 0 || i >= std::max(n_operands, kLeastOperands)) [[unlikely]]
      throw_no_operand(call, i);
    return i;
  }
  int output_at(int output) const {
    if (output != 0) require_output(call, output);
    return output;
  }
};

}  // namespace brrr::core
