// The stack of an interrupted thread, from within the handler of its signal. Allocates nothing and
// takes no lock: unwinding finds its tables through _dl_find_object, which glibc has since 2.35 and
// libgcc uses since GCC 12.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>

namespace brrr::measure {

inline constexpr std::size_t kMostFrames = 192;

struct Unwound {
  std::size_t count = 0;
  bool complete = false;  // the walk reached `bottom`, or the first frame of the thread
};

// Writes the addresses of `context`'s frames, innermost first: inside the running instruction, and
// inside the call instructions of outer frames. Frames above `bottom` on the stack are not walked.
// A fault in the walk ends it.
Unwound unwind(void* context, std::span<std::uintptr_t> addresses,
               std::uintptr_t bottom = UINTPTR_MAX);

// Called before a handler unwinds: the first walk of a process loads and allocates. Throws an Error
// where stacks cannot be unwound in a handler.
void prepare_unwinding();

}  // namespace brrr::measure
