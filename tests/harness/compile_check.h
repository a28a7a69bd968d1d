// Runs a step eagerly and compiled from the same state, and compares all effects: results, tensors
// written to, gradients, random numbers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <brrr/brrr.h>

namespace brrr::test {

using Tensors = std::vector<Tensor>;

// Type, shape and bits; "undefined".
std::string bits_of(const Tensor& x);
std::vector<std::string> bits_of(const Tensors& list);

// A step with all that it works on. It is made once for each mode.
struct World {
  std::function<Tensors(const Tensors& arguments)> step;
  std::function<Tensors(int call)> arguments = [](int) { return Tensors{}; };
  // What else a call may change: parameters, gradients, the optimizer's state.
  std::function<Tensors()> seen = [] { return Tensors{}; };
};
using MakeWorld = std::function<World()>;

// "" when `calls` calls leave the same bits in both modes, else the first place where they differ.
// The graph has to be replayed: a fallback is a difference.
std::string difference_from_eager(const MakeWorld& make, int calls = 4, Mode mode = Mode::graph);

// A function of some tensors from outside, which are compared after each call, as their gradients
// and the arguments are.
struct Case {
  const char* name;
  std::function<Tensors(const Tensors& captured, const Tensors& arguments)> function;
  std::vector<Dims> captured = {{3, 4}};
  std::vector<Dims> arguments = {{3, 4}};
  DType dtype = f32;
  bool leaves = false;  // those from outside
};
// Checks that none differs from eager.
void check_all(const std::vector<Case>& cases);

// Random tensors that do not come from the generator that steps draw from.
Tensor noise(const Dims& shape, std::uint64_t seed, DType dtype = f32);
Tensor integers(const Dims& shape, std::int64_t below, std::uint64_t seed, DType dtype = i64);

}  // namespace brrr::test
