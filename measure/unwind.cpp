#include "brrr/measure/unwind.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>

#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

// An upper bound for the part of a frame above its frame address.
constexpr std::uintptr_t kFrame = 4096;

// The interrupted instruction; 0 on unsupported processors.
std::uintptr_t interrupted_at([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

// The walk, from the handler's frame on.
struct Walk {
  std::uintptr_t from = 0, bottom = 0;
  std::span<std::uintptr_t> addresses;
  std::size_t count = 0;
  std::uintptr_t last = 0;  // stack address of the last frame; addresses increase
  bool started = false, complete = false;
  // Of the thread, while it walks.
  pid_t thread = 0;
  sigjmp_buf after_fault = {};
  struct sigaction fault_before = {};
};

std::atomic<Walk*> walking{nullptr};

// Called by the unwinder for each frame.
_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  const std::uintptr_t at = _Unwind_GetIPInfo(context, &before_instruction);
  // Frames of the handler come first, then the interrupted one.
  if (!walk.started && at != walk.from) return _URC_NO_REASON;
  walk.started = true;
  const std::uintptr_t place = _Unwind_GetCFA(context);
  if (place > walk.bottom) {
    walk.complete = place - walk.bottom < kFrame;
    return _URC_END_OF_STACK;
  }
  if (walk.count == walk.addresses.size() || at == 0 || place < walk.last) return _URC_END_OF_STACK;
  walk.last = place;
  // A return address may be in the next function: the call is before it.
  walk.addresses[walk.count++] = before_instruction ? at : at - 1;
  return _URC_NO_REASON;
}

// A fault of the walk jumps back to unwind(); any other is left to the previous handler.
void on_fault(int signal, siginfo_t*, void*) {
  Walk* const walk = walking.load(std::memory_order_relaxed);
  if (!walk) return;  // another thread's, whose walk is over: the instruction runs again
  if (walk->thread == static_cast<pid_t>(::syscall(SYS_gettid))) siglongjmp(walk->after_fault, 1);
  // The instruction is executed again and faults again, now in the previous handler.
  ::sigaction(signal, &walk->fault_before, nullptr);
}

}  // namespace

// The walk is not in the handler's frame: siglongjmp leaves locals that changed undefined.
Unwound unwind(void* context, std::span<std::uintptr_t> addresses, std::uintptr_t bottom) {
  static Walk walk;
  static std::atomic_flag busy;
  if (addresses.empty() || busy.test_and_set(std::memory_order_acquire)) return {};
  walk.from = interrupted_at(context);
  walk.bottom = bottom;
  walk.addresses = addresses;
  walk.count = 0;
  walk.last = 0;
  walk.started = walk.complete = false;
  walk.thread = static_cast<pid_t>(::syscall(SYS_gettid));
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  walking.store(&walk, std::memory_order_relaxed);
  ::sigaction(SIGSEGV, &action, &walk.fault_before);
  if (sigsetjmp(walk.after_fault, 0) == 0) {
    const _Unwind_Reason_Code code = _Unwind_Backtrace(visit_frame, &walk);
    if (bottom == UINTPTR_MAX) walk.complete = code == _URC_END_OF_STACK;
  }
  ::sigaction(SIGSEGV, &walk.fault_before, nullptr);
  walking.store(nullptr, std::memory_order_relaxed);
  if (walk.count == 0) walk.addresses[walk.count++] = walk.from;
  const Unwound result{walk.count, walk.complete};
  busy.clear(std::memory_order_release);
  return result;
}

void prepare_unwinding() {
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
  fail("[sample] expected Linux on x86-64 or AArch64: other systems' stacks are not known here");
#endif
  if (!::dlsym(RTLD_DEFAULT, "_dl_find_object"))
    fail("[sample] expected glibc 2.35 or newer, whose stacks a signal handler can unwind");
  Walk first;
  _Unwind_Backtrace(visit_frame, &first);
}

}  // namespace brrr::measure
