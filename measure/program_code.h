// Finds the program's own code in stacks: what is neither brrr's nor the C++ runtime's nor the
// system's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/graph/step_report.h>

namespace brrr::measure {

struct Caller {
  std::string line = {};      // "train.cpp:31 in load"; empty: there is no line table
  std::string function = {};  // "load"; empty: no code of the program is in the stack
  bool calls_brrr = false;

  const std::string& place() const { return line.empty() ? function : line; }
};

// The innermost code of the program in each stack. Stacks have addresses inside of the running
// instruction and of call instructions, innermost first.
std::vector<Caller> callers_in(std::span<const std::span<const std::uintptr_t>> stacks);

// Where the program makes the calls of launches; empty: there is no line table.
std::vector<std::string> lines_of(std::span<const core::LaunchCost> launches);

}  // namespace brrr::measure
