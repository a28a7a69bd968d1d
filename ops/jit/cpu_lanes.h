// Which values of a CPU kernel are computed with Lanes (ops/cpu/lanes.inl), the others being left
// to the compiler's vectorizer.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <brrr/ops/jit/body.h>

namespace brrr::jit {

// Whether an expression can be computed with Lanes, which have neither truth values nor integers.
bool suits_lanes(const std::string& text);

// Whether an expression calls a function of <cmath> with inexact results.
bool calls_function(const std::string& text);

// Whether only Lanes give a value eager's bits, or compute it much faster.
bool needs_lanes(const Body& body, int value);

// Of `elements`, in the order of their computation: values that need Lanes, exact arithmetic on
// them, and exact arithmetic for them alone. In loops of their own all of it would go through
// arrays. `is_read`: what is not computed here.
std::set<int> values_in_lanes(const Body& body, const std::vector<int>& elements,
                              const std::function<bool(int)>& is_read);

}  // namespace brrr::jit
