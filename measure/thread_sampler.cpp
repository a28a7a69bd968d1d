#include "brrr/measure/thread_sampler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <tuple>

#include "brrr/measure/program_code.h"
#include "brrr/measure/timing.h"
#include "brrr/measure/unwind.h"
#include "brrr/tensor/error.h"

namespace brrr::measure {
namespace {

// Reads memory of this process that another thread writes, or that may be gone.
std::size_t read_memory(std::uintptr_t from, void* to, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  std::array<iovec, 8> pages{};
  std::size_t n = 0;
  for (std::size_t done = 0; done < bytes && n < pages.size(); ++n) {
    const std::size_t part = std::min(kPage - (from + done) % kPage, bytes - done);
    pages[n] = {reinterpret_cast<void*>(from + done), part};
    done += part;
  }
  const iovec here{to, bytes};
  const ssize_t count = ::process_vm_readv(::getpid(), &here, 1, pages.data(), n, 0);
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}

// Whether the instruction before the address is a call.
bool follows_call(std::uintptr_t address) {
  std::array<unsigned char, 7> code{};
  if (read_memory(address - code.size(), code.data(), code.size()) != code.size()) return false;
#if defined(__x86_64__)
  const auto at = [&](int back) { return code[static_cast<std::size_t>(7 - back)]; };
  if (at(5) == 0xe8) return true;
  // A call through a register or memory: FF /2, with its operand in the bytes between.
  constexpr std::array kLengths = {2, 3, 4, 6, 7};
  return std::ranges::any_of(
      kLengths, [&](int length) { return at(length) == 0xff && (at(length - 1) >> 3 & 7) == 2; });
#else
  std::uint32_t word = 0;
  std::memcpy(&word, code.data() + 3, sizeof word);
  return (word & 0xfc000000U) == 0x94000000U || (word & 0xfffffc1fU) == 0xd63f0000U;  // BL, BLR
#endif
}

// What /proc says of a thread: it runs, or where it waits.
struct Waiting {
  std::uintptr_t stack = 0, at = 0;  // 0: it runs
};
std::optional<Waiting> state_of(int file) {
  std::array<char, 256> text{};
  const ssize_t length = ::pread(file, text.data(), text.size() - 1, 0);
  if (length <= 0) return std::nullopt;
  if (std::strncmp(text.data(), "running", 7) == 0) return Waiting{};
  // The last two words are the stack pointer and the address.
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  const std::size_t last = all.find_last_of(' ');
  const std::size_t before = last == all.npos ? last : all.find_last_of(' ', last - 1);
  if (before == all.npos) return std::nullopt;
  return Waiting{std::strtoull(text.data() + before, nullptr, 16),
                 std::strtoull(text.data() + last, nullptr, 16)};
}

constexpr std::size_t kMeanFrames = 32;  // that there is memory for

// Of the sampler, for the handler.
std::atomic<ThreadSampler::State*> sampled{nullptr};

}  // namespace

// Samples are written by the handler or by the sampling thread, never by both: that thread asks the
// handler for one and waits for it.
struct ThreadSampler::State {
  ThreadSampling sampling;
  std::string problem;
  pid_t process = ::getpid();
  pid_t thread = static_cast<pid_t>(::syscall(SYS_gettid));
  int file = -1;
  std::atomic<bool> active{false}, asked{false};
  sem_t answered = {}, ending = {};
  std::vector<HostSample> samples;
  std::vector<std::uintptr_t> addresses;
  std::size_t n_addresses = 0;
  std::atomic<std::size_t> n_samples{0};
  enum class End : std::uint8_t { none, samples, stacks, time, thread };
  std::atomic<End> end{End::none};
  double begun = host_seconds();
  std::atomic<double> ended{0};
  std::thread sampler;

  explicit State(const ThreadSampling& options) : sampling(options) {
    samples.resize(sampling.most_samples);
    addresses.resize(sampling.most_samples * kMeanFrames + kMostFrames);
    ::sem_init(&answered, 0, 0);
    ::sem_init(&ending, 0, 0);
  }
  ~State() {
    if (file >= 0) ::close(file);
    ::sem_destroy(&answered);
    ::sem_destroy(&ending);
  }

  std::span<std::uintptr_t> room() {
    return std::span(addresses).subspan(n_addresses, kMostFrames);
  }
  void add(std::size_t frames, bool complete, bool waits) {
    const std::size_t n = n_samples.load(std::memory_order_relaxed);
    samples[n] = {.ns = static_cast<std::int64_t>(sampling.period_seconds * 1e9),
                  .begin = static_cast<std::uint32_t>(n_addresses),
                  .end = static_cast<std::uint32_t>(n_addresses + frames),
                  .complete = complete,
                  .waits = waits};
    n_addresses += frames;
    n_samples.store(n + 1, std::memory_order_release);
  }

  void run();
  End run_until_end();
  bool interrupt();
  void search(const Waiting& waiting);
};

namespace {

void on_profile(int, siginfo_t* info, void* context) {
  const int saved = errno;
  ThreadSampler::State* const state = sampled.load(std::memory_order_acquire);
  if (state && info->si_code == SI_QUEUE && info->si_value.sival_ptr == state &&
      state->asked.exchange(false)) {
    if (state->active.load(std::memory_order_relaxed)) {
      const Unwound stack = unwind(context, state->room());
      if (stack.count > 0) state->add(stack.count, stack.complete, false);
    }
    ::sem_post(&state->answered);
  }
  errno = saved;
}

// Until the semaphore is posted; false: it was not, within the time.
bool wait_for(sem_t& semaphore, double seconds) {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  const auto ns = static_cast<long>(seconds * 1e9) + until.tv_nsec;
  until.tv_sec += ns / 1'000'000'000;
  until.tv_nsec = ns % 1'000'000'000;
  int status = 0;
  while ((status = ::sem_timedwait(&semaphore, &until)) != 0 && errno == EINTR) {
  }
  return status == 0;
}

// Ours stays: a signal may still be on its way when a sampler ends.
bool handler_is_ours() {
  struct sigaction now = {};
  ::sigaction(SIGPROF, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_profile;
}
bool handler_is_free() {
  struct sigaction now = {};
  ::sigaction(SIGPROF, nullptr, &now);
  return handler_is_ours() || ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL);
}

}  // namespace

// False: the thread has ended, or does not take the signal.
bool ThreadSampler::State::interrupt() {
  if (!handler_is_ours()) return false;
  asked = true;
  siginfo_t info = {};
  info.si_signo = SIGPROF;
  info.si_code = SI_QUEUE;
  info.si_pid = process;
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = this;
  if (::syscall(SYS_rt_tgsigqueueinfo, process, thread, SIGPROF, &info) != 0) return false;
  constexpr double kPatience = 0.05;
  if (wait_for(answered, kPatience)) return true;
  if (asked.exchange(false)) return false;  // it will find nothing asked
  while (::sem_wait(&answered) != 0) {      // it is in the handler now
  }
  return true;
}

void ThreadSampler::State::search(const Waiting& waiting) {
  std::array<std::uintptr_t, 2048> words{};
  const std::size_t count =
      read_memory(waiting.stack, words.data(), sizeof words) / sizeof(std::uintptr_t);
  if (!active) return;  // it has gone on
  const std::span<std::uintptr_t> to = room();
  std::size_t n = 0;
  to[n++] = waiting.at;
  for (std::size_t i = 0; i < count && n < to.size(); ++i) {
    dl_find_object found{};
    if (_dl_find_object(reinterpret_cast<void*>(words[i]), &found) != 0) continue;
    if (follows_call(words[i])) to[n++] = words[i] - 1;
  }
  add(n, false, true);
}

ThreadSampler::State::End ThreadSampler::State::run_until_end() {
  // Multiples of the golden ratio, modulo 1, are spread evenly: samples fall everywhere in a step.
  constexpr double kGolden = 0.6180339887498949;
  double spread = 0;
  while (host_seconds() < begun + sampling.seconds) {
    if (n_samples == samples.size()) return End::samples;
    if (addresses.size() - n_addresses < kMostFrames) return End::stacks;
    spread += kGolden;
    spread -= static_cast<double>(static_cast<long>(spread));
    if (wait_for(ending, sampling.period_seconds * (0.5 + spread))) return End::none;
    if (!active) continue;
    const std::optional<Waiting> state = state_of(file);
    if (!state) return End::thread;
    if (state->stack != 0) {
      search(*state);
    } else if (!interrupt()) {
      return End::thread;
    }
  }
  return End::time;
}

void ThreadSampler::State::run() {
  const End why = run_until_end();
  ended.store(host_seconds(), std::memory_order_relaxed);
  end.store(why, std::memory_order_release);
}

ThreadSampler::ThreadSampler(const ThreadSampling& sampling)
    : state_(std::make_unique<State>(sampling)) {
  State& state = *state_;
  try {
    prepare_unwinding();
  } catch (const Error& error) {
    state.problem = error.what();
    return;
  }
  const std::string path = fmt::format("/proc/self/task/{}/syscall", state.thread);
  state.file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state.file < 0 || !state_of(state.file)) {
    state.problem = fmt::format("{} cannot be read: {}", path, std::strerror(errno));
    return;
  }
  State* none = nullptr;
  if (!handler_is_free() || !sampled.compare_exchange_strong(none, &state)) {
    state.problem = "SIGPROF is in use";
    return;
  }
  struct sigaction action = {};
  action.sa_sigaction = on_profile;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGPROF, &action, nullptr);
  state.sampler = std::thread([&state] { state.run(); });
}

ThreadSampler::~ThreadSampler() {
  if (!state_->sampler.joinable()) return;
  ::sem_post(&state_->ending);
  state_->sampler.join();
  sampled = nullptr;
}

void ThreadSampler::begin() { state_->active.store(true, std::memory_order_relaxed); }

std::size_t ThreadSampler::end() {
  state_->active.store(false, std::memory_order_relaxed);
  return state_->n_samples.load(std::memory_order_acquire);
}

HostSamples ThreadSampler::samples() const {
  const State& state = *state_;
  HostSamples result;
  const std::size_t n = state.n_samples.load(std::memory_order_acquire);
  if (n == 0) return result;
  result.samples.assign(state.samples.begin(),
                        state.samples.begin() + static_cast<std::ptrdiff_t>(n));
  result.addresses.assign(state.addresses.begin(),
                          state.addresses.begin() + result.samples.back().end);
  return result;
}

const std::string& ThreadSampler::problem() const { return state_->problem; }

std::optional<SampledPart> ThreadSampler::part() const {
  using End = State::End;
  const End end = state_->end.load(std::memory_order_acquire);
  if (end == End::none) return std::nullopt;
  SampledPart part{.seconds = state_->ended.load(std::memory_order_relaxed) - state_->begun,
                   .of = host_seconds() - state_->begun};
  switch (end) {
    case End::samples:
      part.ended = fmt::format("it has {} samples", state_->sampling.most_samples);
      break;
    case End::stacks: part.ended = "its memory for stacks is full"; break;
    case End::time: part.ended = fmt::format("it ends after {} s", state_->sampling.seconds); break;
    default: part.ended = "the thread ended or takes no signals";
  }
  return part;
}

// --- Lines ---

std::vector<CodeLine> code_lines(const HostSamples& of, std::span<const HostSample> samples) {
  std::vector<std::span<const std::uintptr_t>> stacks;
  for (const HostSample& sample : samples) stacks.push_back(of.stack(sample));
  const std::vector<Caller> callers = callers_in(stacks);
  std::map<std::tuple<std::string, bool, bool>, std::int64_t> counts;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Caller& caller = callers[i];
    if (caller.function.empty()) continue;
    ++counts[{caller.place(), caller.calls_brrr, samples[i].waits}];
  }
  std::vector<CodeLine> lines;
  for (const auto& [key, count] : counts) {
    const auto& [place, calls_brrr, waits] = key;
    lines.push_back({place, calls_brrr, waits,
                     static_cast<double>(count) / static_cast<double>(samples.size()), count});
  }
  std::ranges::stable_sort(lines, std::ranges::greater(), &CodeLine::samples);
  return lines;
}

std::string to_string(const CodeLine& line) {
  return (line.waits ? "waiting at " : line.calls_brrr ? "in brrr from " : "") + line.place;
}

UserCode user_code_in(const std::function<void()>& call, double seconds) {
  constexpr double kPeriod = 300e-6;
  UserCode code;
  const double end = host_seconds() + seconds;
  ThreadSampler sampler({.period_seconds = kPeriod});
  code.problem = sampler.problem();
  if (!code.problem.empty()) return code;
  sampler.begin();
  do {
    call();
  } while (host_seconds() < end);
  sampler.end();
  const HostSamples samples = sampler.samples();
  code.lines = code_lines(samples, samples.samples);
  double known = 0;
  for (const CodeLine& each : code.lines) {
    known += each.share;
    if (!each.calls_brrr) code.share += each.share;
  }
  constexpr double kEnough = 0.8;
  if (known < kEnough) {
    code.problem = fmt::format("{:.0f} % of {} samples of the host's stack show what called",
                               100 * known, samples.samples.size());
  }
  std::erase_if(code.lines, [](const CodeLine& each) { return each.calls_brrr; });
  return code;
}

}  // namespace brrr::measure
