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

// A step with its tensors, created once for each mode.
struct World {
  std::function<Tensors(const Tensors& arguments)> step;
  std::function<Tensors(int call)> arguments = [](int) { return Tensors{}; };
  // Other tensors that a call may change: parameters, gradients, optimizer state.
  std::function<Tensors()> seen = [] { return Tensors{}; };
};
using MakeWorld = std::function<World()>;

// "" if `calls` calls give the same bits in both modes, else the first difference. The graph must
// be replayed: a fallback is a difference.
std::string difference_from_eager(const MakeWorld& make, int calls = 4, Mode mode = Mode::graph,
                                  Remat remat = Remat::none());

// A function of captured tensors and arguments. Both are compared after each call, with the
// gradients.
struct Case {
  const char* name;
  std::function<Tensors(const Tensors& captured, const Tensors& arguments)> function;
  std::vector<Dims> captured = {{3, 4}};
  std::vector<Dims> arguments = {{3, 4}};
  DType dtype = f32;
  bool leaves = false;  // the captured tensors require a gradient
};
// Of captured tensors that require a gradient.
inline Case with_leaves(const char* name, decltype(Case::function) function,
                        std::vector<Dims> captured = {{3, 4}}, DType dtype = f32) {
  return {name, std::move(function), std::move(captured), {{3, 4}}, dtype, true};
}
// Checks that none differs from eager.
void check_all(const std::vector<Case>& cases, Mode mode = Mode::graph);

// Random tensors, independent of the generator that steps draw from.
Tensor noise(const Dims& shape, std::uint64_t seed, DType dtype = f32);
Tensor integers(const Dims& shape, std::int64_t below, std::uint64_t seed, DType dtype = i64);

}  // namespace brrr::test
