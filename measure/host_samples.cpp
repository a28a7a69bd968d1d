// The handler allocates nothing and takes no lock: memory is made before. The timer runs once for
// each sample and starts again when the handler is done, so the handler's own time is in no sample.
#include "brrr/measure/host_samples.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>

#include "brrr/measure/unwind.h"
#include "brrr/tensor/fail.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace brrr::measure {
namespace {

constexpr std::size_t kMostAddresses = 1 << 20;  // the total length of all stacks
constexpr double kMostOfPeriod = 0.03;  // the share of a period that interruptions may take

std::int64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
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
  // Written by the handler, and read by its thread outside of runs only.
  HostSamples samples;
  std::size_t n_samples = 0, n_addresses = 0;
  std::int64_t entered_ns = 0;    // the last handler
  std::int64_t started_ns = 0;    // the current period, at the end of the last handler
  std::int64_t carried_ns = 0;    // of that period in earlier runs
  std::int64_t remaining_ns = 0;  // of that period; 0: there is none
  std::uint32_t periods = 0;
  std::int64_t outside_ns = 0;  // of an interruption, before and after the handler
  std::uintptr_t bottom = 0;    // the stack of the sampled work is below

  timer_t timer = {};
  pid_t thread = 0;
  struct sigaction handler_before = {};
  sigset_t mask_before = {};

  void record(void* context);
  void measure_interruption(HostSampler& sampler);
  void start_timer(std::int64_t ns) const;
  std::int64_t next_period();
};

namespace {

std::atomic<HostSampler::State*> running{nullptr};

void on_signal(int, siginfo_t* info, void* context) {
  const int saved = errno;
  HostSampler::State* const state = running.load(std::memory_order_relaxed);
  if (state && info->si_code == SI_TIMER && info->si_value.sival_ptr == state)
    state->record(context);
  errno = saved;
}

}  // namespace

void HostSampler::State::record(void* context) {
  entered_ns = now_ns();
  const std::int64_t ns =
      std::max<std::int64_t>(carried_ns + entered_ns - started_ns - outside_ns, 0);
  if (n_samples == samples.samples.size() || samples.addresses.size() - n_addresses < kMostFrames) {
    ++samples.lost;
  } else {
    const Unwound stack =
        unwind(context, std::span(samples.addresses).subspan(n_addresses, kMostFrames), bottom);
    samples.samples[n_samples++] = {ns, static_cast<std::uint32_t>(n_addresses),
                                    static_cast<std::uint32_t>(n_addresses + stack.count),
                                    stack.complete};
    n_addresses += stack.count;
  }
  carried_ns = 0;
  start_timer(next_period());
  started_ns = now_ns();
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

// Interrupts an empty loop. `sampler` is the one of this state.
void HostSampler::State::measure_interruption(HostSampler& sampler) {
  constexpr std::size_t kInterruptions = 48;
  std::vector<std::int64_t> all, outside;
  sampler.run([&] {
    const std::int64_t end = now_ns() + 100'000'000;
    std::int64_t before = now_ns();
    for (std::size_t seen = n_samples; before < end && all.size() < kInterruptions;) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (n_samples != seen) {
        seen = n_samples;
        all.push_back(now_ns() - before);
        outside.push_back(all.back() - (started_ns - entered_ns));
      }
      before = now_ns();
    }
  });
  n_samples = n_addresses = 0;
  carried_ns = remaining_ns = 0;
  if (all.empty()) return;
  const auto median = [](std::vector<std::int64_t>& ns) {
    std::ranges::nth_element(ns, ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 2));
    return ns[ns.size() / 2];
  };
  outside_ns = median(outside);
  samples.interruption_ns = median(all);
  sampling.period_seconds = std::max(
      sampling.period_seconds, static_cast<double>(samples.interruption_ns) * 1e-9 / kMostOfPeriod);
}

HostSampler::HostSampler(const HostSampling& sampling) {
  if (!(sampling.period_seconds >= 20e-6 && sampling.period_seconds <= 1))
    fail("[sample] expected a period from 20 us to 1 s, got {} s", sampling.period_seconds);
  prepare_unwinding();
  state_ = std::make_unique<State>();
  State& state = *state_;
  state.sampling = sampling;
  state.samples.samples.resize(sampling.most_samples);
  state.samples.addresses.resize(kMostAddresses);
  state.thread = static_cast<pid_t>(::syscall(SYS_gettid));

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
  state.measure_interruption(*this);
}

HostSampler::~HostSampler() {
  State& state = *state_;
  ::timer_delete(state.timer);
  ::sigaction(SIGPROF, &state.handler_before, nullptr);
  running = nullptr;
  // Restores the signal mask only on the sampled thread, whose mask it is.
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
      // A period that ended while the signal was blocked has no sample: its time would go to the
      // start of the next run.
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGPROF);
      const timespec at_once{};
      while (::sigtimedwait(&set, nullptr, &at_once) > 0) state.carried_ns = state.remaining_ns = 0;
    }
  } const stop{state};
  state.bottom = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  state.started_ns = now_ns();
  state.start_timer(state.remaining_ns);
  block_sigprof(false);
  work();
  asm volatile("" ::: "memory");  // keeps the frame until `work` has returned
}

std::size_t HostSampler::count() const { return state_->n_samples; }

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
  result.interruption_ns = state.samples.interruption_ns;
  return result;
}

}  // namespace brrr::measure
