// The handler allocates nothing and takes no lock: memory is made before, and unwinding finds its
// tables through _dl_find_object, which glibc has since 2.35 and libgcc uses since GCC 12. The
// timer runs once for each sample and starts again when the handler is done, so the handler's own
// time is in no sample.
#include "brrr/measure/host_samples.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>

#include "brrr/tensor/fail.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace brrr::measure {
namespace {

constexpr std::size_t kMostFrames = 192;

std::int64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Where the thread was when the signal came; 0 on processors that this file does not know.
std::uintptr_t interrupted_at([[maybe_unused]] void* context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

// Restores the mask of the thread's signals, with SIGPROF blocked or not.
void block_sigprof(bool blocked, sigset_t* before = nullptr) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPROF);
  ::pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, before);
}

[[noreturn]] void fail_system(const char* call) {
  fail("[sample] {} failed: {}", call, std::strerror(errno));
}

}  // namespace

struct HostSampler::State {
  HostSampling sampling;
  // Memory of the handler. Its thread reads them outside of runs only.
  HostSamples samples;
  std::size_t n_samples = 0, n_addresses = 0;
  std::int64_t started_ns = 0;    // of the period under way
  std::int64_t carried_ns = 0;    // of that period in earlier runs
  std::int64_t remaining_ns = 0;  // of that period; 0: none is under way
  std::uint32_t periods = 0;
  std::uintptr_t bottom = 0;  // the stack of the sampled work is below

  timer_t timer = {};
  pid_t thread = 0;
  struct sigaction handler_before = {};
  sigset_t mask_before = {};

  void record(void* context);
  void start_timer(std::int64_t ns) const;
  std::int64_t next_period();
};

namespace {

std::atomic<HostSampler::State*> running{nullptr};

// What the unwinder calls for each frame, from the handler's on.
struct Unwinding {
  std::uintptr_t from, bottom;
  std::uintptr_t* addresses;
  std::size_t count = 0, most = 0;
  bool started = false, complete = false;
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* argument) {
  auto& unwinding = *static_cast<Unwinding*>(argument);
  int before_instruction = 0;
  const std::uintptr_t at = _Unwind_GetIPInfo(context, &before_instruction);
  // Frames of the handler come first, then the interrupted one.
  if (!unwinding.started && at != unwinding.from) return _URC_NO_REASON;
  unwinding.started = true;
  if (_Unwind_GetCFA(context) > unwinding.bottom) {
    unwinding.complete = true;
    return _URC_END_OF_STACK;
  }
  if (unwinding.count == unwinding.most || at == 0) return _URC_END_OF_STACK;
  // A return address may be in the next function: the call is before it.
  unwinding.addresses[unwinding.count++] = before_instruction ? at : at - 1;
  return _URC_NO_REASON;
}

void on_signal(int, siginfo_t* info, void* context) {
  const int saved = errno;
  HostSampler::State* const state = running.load(std::memory_order_relaxed);
  if (state && info->si_code == SI_TIMER && info->si_value.sival_ptr == state)
    state->record(context);
  errno = saved;
}

}  // namespace

void HostSampler::State::record(void* context) {
  const std::int64_t ns = carried_ns + now_ns() - started_ns;
  const std::size_t most = std::min(samples.addresses.size() - n_addresses, kMostFrames);
  if (n_samples == samples.samples.size() || most < kMostFrames) {
    ++samples.lost;
    samples.lost_ns += ns;
  } else {
    std::uintptr_t* const addresses = samples.addresses.data() + n_addresses;
    Unwinding unwinding{interrupted_at(context), bottom, addresses, 0, most};
    _Unwind_Backtrace(visit_frame, &unwinding);
    if (unwinding.count == 0) addresses[unwinding.count++] = unwinding.from;
    samples.samples[n_samples++] = {ns, static_cast<std::uint32_t>(n_addresses),
                                    static_cast<std::uint32_t>(n_addresses + unwinding.count),
                                    unwinding.complete};
    n_addresses += unwinding.count;
  }
  carried_ns = 0;
  const std::int64_t period = next_period();
  started_ns = now_ns();
  start_timer(period);
}

void HostSampler::State::start_timer(std::int64_t ns) const {
  const itimerspec once{.it_interval = {}, .it_value = {ns / 1'000'000'000, ns % 1'000'000'000}};
  ::timer_settime(timer, 0, &once, nullptr);
}

// Multiples of the golden ratio, modulo 1, are spread evenly at every length of the sequence.
std::int64_t HostSampler::State::next_period() {
  constexpr double kGolden = 0.6180339887498949;
  const double multiple = ++periods * kGolden;
  const double factor = 0.5 + multiple - std::floor(multiple);
  return static_cast<std::int64_t>(sampling.period_seconds * 1e9 * factor);
}

HostSampler::HostSampler(const HostSampling& sampling) {
  if (!(sampling.period_seconds >= 20e-6 && sampling.period_seconds <= 1))
    fail("[sample] expected a period from 20 us to 1 s, got {} s", sampling.period_seconds);
#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
  fail("[sample] expected Linux on x86-64 or AArch64: other systems' stacks are not known here");
#endif
  if (!::dlsym(RTLD_DEFAULT, "_dl_find_object"))
    fail("[sample] expected glibc 2.35 or newer, whose stacks a signal handler can unwind");
  state_ = std::make_unique<State>();
  State& state = *state_;
  state.sampling = sampling;
  state.samples.samples.resize(sampling.most_samples);
  state.samples.addresses.resize(sampling.most_addresses);
  state.thread = static_cast<pid_t>(::syscall(SYS_gettid));
  // The first unwinding of a process loads and allocates.
  Unwinding first{0, ~std::uintptr_t{0}, nullptr};
  _Unwind_Backtrace(visit_frame, &first);

  State* none = nullptr;
  if (!running.compare_exchange_strong(none, &state))
    fail("[sample] expected no other sampler in this process, got one that exists");
  block_sigprof(true, &state.mask_before);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGPROF, &action, &state.handler_before);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGPROF;
  event.sigev_value.sival_ptr = &state;
  event.sigev_notify_thread_id = state.thread;
  if (::timer_create(CLOCK_MONOTONIC, &event, &state.timer) != 0) {
    const int problem = errno;
    ::sigaction(SIGPROF, &state.handler_before, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &state.mask_before, nullptr);
    running = nullptr;
    errno = problem;
    fail_system("timer_create");
  }
}

HostSampler::~HostSampler() {
  State& state = *state_;
  ::timer_delete(state.timer);
  ::sigaction(SIGPROF, &state.handler_before, nullptr);
  running = nullptr;
  // On another thread the mask is not the sampled one's: SIGPROF then stays blocked there.
  if (state.thread == static_cast<pid_t>(::syscall(SYS_gettid)))
    ::pthread_sigmask(SIG_SETMASK, &state.mask_before, nullptr);
}

[[gnu::noinline]] void HostSampler::run(const std::function<void()>& work) {
  State& state = *state_;
  if (state.thread != static_cast<pid_t>(::syscall(SYS_gettid)))
    fail("[sample] expected the thread that made the sampler, got another one");
  if (state.remaining_ns == 0) state.remaining_ns = state.next_period();
  struct Stop {
    State& state;
    ~Stop() {
      block_sigprof(true);
      const itimerspec never{};
      itimerspec left{};
      ::timer_settime(state.timer, 0, &never, &left);
      state.carried_ns += now_ns() - state.started_ns;
      state.remaining_ns =
          std::max<std::int64_t>(left.it_value.tv_sec * 1'000'000'000 + left.it_value.tv_nsec, 1);
      // The period may have ended while the signal was blocked.
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGPROF);
      const timespec at_once{};
      while (::sigtimedwait(&set, nullptr, &at_once) > 0) {
      }
    }
  } const stop{state};
  state.bottom = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  state.started_ns = now_ns();
  state.start_timer(state.remaining_ns);
  block_sigprof(false);
  work();
  asm volatile("" ::: "memory");  // keeps the frame until `work` has returned
}

HostSamples HostSampler::samples() const {
  const State& state = *state_;
  HostSamples result;
  result.samples.assign(
      state.samples.samples.begin(),
      state.samples.samples.begin() + static_cast<std::ptrdiff_t>(state.n_samples));
  result.addresses.assign(
      state.samples.addresses.begin(),
      state.samples.addresses.begin() + static_cast<std::ptrdiff_t>(state.n_addresses));
  result.lost = state.samples.lost;
  result.lost_ns = state.samples.lost_ns;
  return result;
}

}  // namespace brrr::measure
