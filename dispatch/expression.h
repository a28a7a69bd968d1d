// Scalar expressions of pointwise ops: what a row of ops.def or a user's op computes for one
// element. A text is parsed once, to operations in single assignment; whoever decides anything by
// an expression asks these, and only renderers read its text.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/dispatch/dtype_rule.h>

namespace brrr {

enum class Algebra : std::uint8_t;

enum class ScalarOp : std::uint8_t {
  operand,   // of the expression: a, b, c, ...
  constant,  // a number of the type T computed in
  lowest,    // the ends of T's range
  highest,
  cast,  // to T: of a truth value, or of an operation that C++ promotes
  negate,
  logical_not,
  logical_or,
  logical_and,
  bit_or,
  bit_xor,
  bit_and,
  equal,
  not_equal,
  less_equal,
  greater_equal,
  less,
  greater,
  add,
  subtract,
  multiply,
  divide,
  modulo,
  select,  // operand 1 where operand 0 is true, else operand 2
  maximum,
  minimum,
  call,  // of any other function
};
constexpr bool is_comparison(ScalarOp op) {
  return op >= ScalarOp::equal && op <= ScalarOp::greater;
}

// A function of ops/jit/scalar.inl, or of the prelude of generated kernels.
struct ScalarFunction {
  enum class Types : std::uint8_t { any, floating, integer };
  enum class Guard : std::uint8_t { none, possible, required };

  std::string_view name;
  std::int8_t operands = 1;
  ScalarOp op = ScalarOp::call;
  Types types = Types::any;  // that it computes in
  bool for_users = true;
  bool gives_flag = false;
  bool inexact = false;   // calls the math library, whose vector and scalar forms differ in bits
  bool in_lanes = false;  // Lanes (ops/cpu/lanes.inl) have it
  // Whether there is a form that a Guard watches (ops/jit/prelude.inl), and no other.
  Guard guard = Guard::none;
};

// One operation, on values before it.
struct ScalarValue {
  ScalarOp op = ScalarOp::operand;
  bool guarded = false;                      // of a function, the form that takes a Guard
  int number = 0;                            // operand: which of a, b, c, ...
  const ScalarFunction* function = nullptr;  // of all that are written as calls
  std::string digits = {};                   // constant
  std::vector<int> operands = {};
};

// A handle of an expression that lives as long as the process: equal expressions are one.
class Expression {
 public:
  Expression() = default;  // no values
  // Of a row's text, which is trusted: C++ over operands a, b, c, ... and K(x), x as type T.
  template <std::convertible_to<std::string_view> Text>
  Expression(const Text& text) : Expression(of_row(text)) {}

  bool empty() const { return !parsed_; }
  // In the order of their computation: the last one is the result.
  std::span<const ScalarValue> values() const;
  const std::string& text() const;  // C++
  // Arithmetic operations per element: each operator, comparison and function counts 1.
  int flops() const;
  // Those of them that are functions of the math library, or contain one: exp, tanh, pow.
  int functions() const;
  // Whether it is this operation alone, on operands a, b, c in order.
  bool is(ScalarOp op) const;
  // Whether it is one of several values, chosen by comparing.
  bool selects() const;
  // Whether it calls a function that takes a Guard.
  bool is_guarded() const;
  // The same with guarded forms of all functions that have one.
  Expression with_guards() const;

  friend bool operator==(Expression, Expression) = default;

 private:
  struct Parsed;
  friend Expression checked_expression(std::string_view, int, core::DTypeSet, core::DTypeRule);
  explicit Expression(const Parsed* parsed) : parsed_(parsed) {}
  static Expression of_row(std::string_view text);
  static Expression of(std::vector<ScalarValue> values);

  const Parsed* parsed_ = nullptr;
};

// Reads a user's expression over operands a, b, c (the first `arity` of them). The grammar is that
// of C++'s operators without assignment; names are the operands, the functions of
// ops/jit/scalar.inl, and K, which may enclose a number. Bare numbers become constants of the type
// computed in: "a * 0.5" is "a * K(0.5)". `types` are those that the op computes in: where integers
// are among them every number is an integer, division by 0 gives 0 and a shift by more than the
// type's bits gives 0. With the rule `select` a is a truth value.
//
// Throws "[register_op] expected <what> at character <place> of <text>".
Expression checked_expression(std::string_view text, int arity,
                              core::DTypeSet types = core::dtype_sets::floats,
                              core::DTypeRule rule = core::DTypeRule::float_like);

// The relation of an expression's value to its operands.
Algebra algebra_of(Expression expression);

}  // namespace brrr
