// Scalar expressions of pointwise ops, as text: what a row of ops.def or a user's op computes for
// one element.
#pragma once

#include <string>
#include <string_view>

namespace brrr {

// Checks an expression over operands a, b, c (the first `arity` of them) and makes its bare numbers
// constants of the type computed in: "a * 0.5" becomes "a * K(0.5)". Throws "[register_op] ..."
// naming the place and what was wrong: an unknown name, an operand past the arity, a character that
// has no place in an expression, unbalanced parentheses.
std::string checked_expression(std::string_view text, int arity);

// Arithmetic operations per element: each operator and comparison counts 1, each function 1.
int flops_of(std::string_view expression);

}  // namespace brrr
