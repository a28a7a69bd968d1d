// A program in f64 with a bound of what rounding to another type may change in each element of its
// results: a running error analysis. Fused and eager execution round at different places and sum in
// different orders, and both stay within the bounds.
//
// Each call of the program in f64 is observed. An element of a result has a radius: how far a value
// may be off that was computed in the program's type. It is what the radii of the operands change
// in the result (the call runs again with operands moved by their radii), plus the rounding of
// the call itself:
// - u of the type, times the value: a result is rounded once;
// - u of f32, in which halves compute too, for each operation of an expression, and for each term
//   of a sum times the sum of the terms' sizes, which bounds every order of summation;
// - u of TF32 twice for the factors of a product in TF32.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::test {

struct Bounded {
  Tensor value;  // f64 on the CPU, or of another type than the program's
  Tensor
      radius;  // f64; not finite where it may overflow; of a truth value 1 where it may be either
};

struct Precisions {
  DType dtype = DType::f32;  // of the program
  bool tf32 = false;         // its products may round factors to TF32
};

// Calls `program`, whose arguments are f64 on the CPU, and gives bounds of the tensors that it
// returns. Draws are those of the program's own type. Throws where an index depends on rounding,
// and at an op that has no bound here.
std::vector<Bounded> with_bounds(const std::function<std::vector<Tensor>()>& program,
                                 Precisions precisions);

// "" if each tensor is within the bounds, else the first element that is not.
std::string beyond_bounds(const std::vector<Tensor>& got, const std::vector<Bounded>& wanted);
// The same of a program's results and then its arguments, which it may have written to. It is
// called with copies of `arguments`, which have the program's type.
using TensorsFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::string beyond_bounds(const TensorsFunction& program, const std::vector<Tensor>& arguments,
                          Precisions precisions, const std::vector<Tensor>& got);

// The widest radius relative to its tensor's largest value, or to 1 where that is smaller: bounds
// of the size of the values say nothing.
double widest(const std::vector<Bounded>& all);

}  // namespace brrr::test
