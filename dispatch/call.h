// One call of an op: its operands, attributes and dtype. Every layer receives the same object:
// autograd, traces, observers and backends. It is on the stack and allocates nothing, since an
// allocation takes as long as an eager op on a few elements.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>

#include <brrr/tensor/tensor.h>

namespace brrr::core {

// Built-in ops are numbered by their rows in ops.def.
enum class Op : std::uint16_t {
#define BRRR_UNARY(name, ...) name,
#define BRRR_BINARY(name, ...) name,
#define BRRR_TERNARY(name, ...) name,
#define BRRR_REDUCTION(name, ...) name,
#define BRRR_ARG_REDUCTION(name, ...) name,
#define BRRR_VIEW(name, ...) name,
#define BRRR_CONVERSION(name, ...) name,
#define BRRR_STRUCTURED(name, ...) name,
#define BRRR_FUSED(name, ...) name,
#define BRRR_FORMULA(name, ...) name,
#include <brrr/dispatch/ops.def>
  first_registered,  // ops registered at run time are numbered from here
};

inline constexpr int kBuiltinOps = static_cast<int>(Op::first_registered);

// An attribute in eight bytes: an integer, or the bits of a double. The op's row states the kind of
// each attribute (see Attribute in op_info.h).
struct Attr {
  std::int64_t bits;

  Attr() = default;
  Attr(std::int64_t value) : bits(value) {}
  template <std::floating_point F>
  Attr(F) = delete;  // would convert to an integer: use Attr::of
  static Attr of(double value) { return Attr(std::bit_cast<std::int64_t>(value)); }
  std::int64_t i() const { return bits; }
  double d() const { return std::bit_cast<double>(bits); }
};

inline constexpr int kMaxAttrs = 10;  // a shape of eight and two more
inline constexpr int kMaxOutputs = 4;

struct Call {
  Op op;
  std::uint8_t n_attrs = 0;
  // Pointwise: operand i is attrs[i], not a tensor. Read as a double when `dtype` is floating, else
  // as an i64.
  std::uint8_t scalars = 0;
  DType dtype =
      DType::f32;  // pointwise: the type computed in; creation, `cast`, `copy`: the result's
  bool in_place =
      false;      // the outputs exist and are written; for pointwise ops it is also operand 0
  Device device;  // creation: the device of the result
  std::uint32_t n_inputs = 0;
  const Tensor* const* inputs = nullptr;  // without the scalar operands
  Attr attrs[kMaxAttrs];                  // only the first n_attrs are set

  Call(Op o, const Tensor* const* in, std::uint32_t n) : op(o), n_inputs(n), inputs(in) {}

  const Tensor& input(int i) const { return *inputs[i]; }
  // `cat` has more operands than the mask has bits.
  bool is_scalar(int operand) const { return operand < 8 && scalars >> operand & 1; }
  void add_attr(Attr attr) { attrs[n_attrs++] = attr; }
  void add_shape(std::span<const std::int64_t> shape) {
    for (std::int64_t d : shape) add_attr(d);
  }
  // An attribute of kind `number`, or the operand of a pointwise call that is a number.
  double number(int place) const {
    return is_floating(dtype) ? attrs[place].d() : static_cast<double>(attrs[place].i());
  }
  std::string number_text(int place) const;
  // Attributes from `first` on, as a shape.
  std::span<const std::int64_t> shape_from(int first) const {
    return {&attrs[first].bits, static_cast<std::size_t>(n_attrs - first)};
  }
};

// Shape and type of an output that does not exist yet.
struct OutputSpec {
  DType dtype = DType::f32;
  Device device;
  Dims shape;
};

// "add(f32[2, 3], 2)" for messages, traces and profiles
std::string describe(const Call& call);

}  // namespace brrr::core
