// The place of a call in the user's program: the innermost frame outside of brrr.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace brrr::graph {

// Return addresses, innermost first, from the first that is not the library's on. Cheap to take;
// describing it costs a process that reads the program's line table.
class CallSite {
 public:
  static CallSite here();
  std::span<const void* const> frames() const { return {frames_, static_cast<std::size_t>(n_)}; }

 private:
  static constexpr int kMost = 8;
  const void* frames_[kMost];
  int n_ = 0;
};

// "train.cpp:12 in train_step", a line for each; where a program has no line table, the function
// and how far into it: "train_step+0x2f". Names of files are as the compiler was given them.
std::vector<std::string> describe(std::span<const CallSite> sites);
std::string describe(const CallSite& site);
// Throws the error that is being handled again, of the same type, with "(at train.cpp:12 in step)".
[[noreturn]] void rethrow_with(const CallSite& site);

}  // namespace brrr::graph
