// The place of a call in the user's program: the innermost frame outside of brrr.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace brrr::graph {

// Return addresses, innermost first, starting outside of the library. Taking one is cheap;
// describing it runs addr2line.
class CallSite {
 public:
  static CallSite here();
  // The innermost frames of another stack, by addresses inside of their call instructions.
  static CallSite of(std::span<const std::uintptr_t> stack);
  std::span<const void* const> frames() const { return {frames_, static_cast<std::size_t>(n_)}; }

 private:
  static constexpr int kMost = 8;
  const void* frames_[kMost];
  int n_ = 0;
};

// "train.cpp:12 in train_step", a line for each; without a line table, the function and the offset:
// "train_step+0x2f". File names are as they were passed to the compiler.
std::vector<std::string> describe(std::span<const CallSite> sites);
// For a message. The first of the process without a line says how to have lines.
std::string describe(const CallSite& site);
// Rethrows the error that is being handled, with the same type and " (at train.cpp:12 in step)"
// appended.
[[noreturn]] void rethrow_with(const CallSite& site);

}  // namespace brrr::graph
