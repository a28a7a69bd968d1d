// Checks of the values of options: what a text should have been, or nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <brrr/graph/remat.h>

namespace brrr::measure {

struct Check {
  // "expected a whole number from 1 to 8, got 9"; "": nothing is wrong.
  std::function<std::string(const std::string& text)> complaint = {};
  std::vector<std::string> choices = {};  // for help and completion; empty: not a few names
};

Check one_of(std::vector<std::string> known);
Check device_name();
// A policy of rematerialization, or one of `further`.
Check remat_policy(const std::vector<std::string>& further = {});
Check whole_number(std::int64_t least, std::int64_t most);
Check at_least(std::int64_t least);
// Finite numbers.
Check number_above(double bound);
Check number_from(double least, double most);
Check seed();
Check file_name();
Check html_file_name();

// The policy that a text which remat_policy() accepts names: "budget=0.5".
Remat remat_of(const std::string& text);

// "expected one of mlp, transformer, got mpl; did you mean mlp?" Of many names a few, where one is
// near.
std::string expected_one_of(const std::vector<std::string>& known, const std::string& got);
// "; did you mean mlp?", if one of the names is near.
std::string did_you_mean(const std::vector<std::string>& known, const std::string& got);

}  // namespace brrr::measure
