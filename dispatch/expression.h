// Scalar expressions of pointwise ops, as text: what a row of ops.def or a user's op computes for
// one element.
#pragma once

#include <string>
#include <string_view>

#include <brrr/dispatch/op_info.h>

namespace brrr {

// Reads a user's expression over operands a, b, c (the first `arity` of them) and gives the text
// that kernels compile. The grammar is that of C++'s operators without assignment; names are the
// operands, the functions of ops/jit/scalar.inl, and K, which may enclose a number. Bare
// numbers become constants of the type computed in: "a * 0.5" is "a * K(0.5)". `types` are those
// that the op computes in: where integers are among them every number is an integer, division by 0
// gives 0 and a shift by more than the type's bits gives 0. With the rule `select` a is a truth
// value.
//
// Throws "[register_op] expected <what> at character <place> of <text>".
std::string checked_expression(std::string_view text, int arity,
                               DTypeSet types = dtype_sets::floats,
                               DTypeRule rule = DTypeRule::float_like);

// The relation of an expression's value to its operands.
Algebra algebra_of(std::string_view expression);

// Arithmetic operations per element: each operator and comparison counts 1, each function 1.
int flops_of(std::string_view expression);
// Those of them that are functions of the math library, or contain one: exp, tanh, pow.
int functions_of(std::string_view expression);

}  // namespace brrr
