// Which values of a CPU kernel are computed with Lanes (ops/cpu/lanes.inl), the others being left
// to the compiler's vectorizer, and in which loop.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <brrr/ops/jit/body.h>

namespace brrr::jit {

// Whether an expression can be computed with Lanes, which have neither truth values nor integers.
bool suits_lanes(Expression expression);

// Whether only Lanes give a value eager's bits, or compute it much faster.
bool needs_lanes(const Body& body, int value);

// The stage of each of `elements`, which are in the order of their computation. Each stage is a
// loop over a tile: even ones are left to the compiler, odd ones compute with Lanes. `is_read`:
// what is not computed here, whose stage is -1.
//
// Lanes compute the values that need them, exact arithmetic on those, and exact arithmetic for them
// alone. A function of another function's result has a later stage, and so has a function of
// rounded arithmetic, and arithmetic on a function's rounded result: the processor overlaps
// independent vectors of one stage, and would wait in a long chain.
std::map<int, int> stages_of(const Body& body, const std::vector<int>& elements,
                             const std::function<bool(int)>& is_read);

}  // namespace brrr::jit
