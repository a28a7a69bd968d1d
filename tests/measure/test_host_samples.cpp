// The sampling profiler of host time: shares of known work, what it refuses and what it restores.
#include "brrr/measure/host_samples.h"

#include <cmath>
#include <csignal>
#include <map>
#include <thread>

#include "brrr/measure/ledger.h"
#include "brrr/measure/timing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/sanitizers.h"
#include "tests/harness/catch.h"

using namespace brrr;
using measure::HostSampler;
using measure::HostSamples;

namespace {

void spin(double seconds) {
  for (const double start = measure::host_seconds(); measure::host_seconds() - start < seconds;) {
  }
}
[[gnu::noinline]] void spin_three_parts() {
  spin(3e-4);
  asm volatile("");  // no tail call: the frame stays
}
[[gnu::noinline]] void spin_one_part() {
  spin(1e-4);
  asm volatile("");
}

double milliseconds_of(const HostSamples& samples) {
  double ns = 0;
  for (const measure::HostSample& sample : samples.samples) ns += static_cast<double>(sample.ns);
  return ns * 1e-6;
}

struct SignalState {
  struct sigaction prof = {}, fault = {};
  sigset_t mask = {};

  static SignalState now() {
    SignalState state;
    ::sigaction(SIGPROF, nullptr, &state.prof);
    ::sigaction(SIGSEGV, nullptr, &state.fault);
    ::pthread_sigmask(SIG_SETMASK, nullptr, &state.mask);
    return state;
  }
  bool operator==(const SignalState& other) const {
    return prof.sa_handler == other.prof.sa_handler && fault.sa_handler == other.fault.sa_handler &&
           sigismember(&mask, SIGPROF) == sigismember(&other.mask, SIGPROF);
  }
};

volatile std::sig_atomic_t foreign_signals = 0;
void count_foreign(int) { foreign_signals = foreign_signals + 1; }

}  // namespace

TEST_CASE("functions get their share of the samples", "[host-samples]") {
  HostSampler sampler;
  const double start = measure::host_seconds();
  sampler.run([] {
    for (int i = 0; i < 1000; ++i) {
      spin_three_parts();
      spin_one_part();
    }
  });
  const double wall = (measure::host_seconds() - start) * 1e3;
  const HostSamples samples = sampler.samples();
  CHECK(samples.samples.size() == sampler.count());
  REQUIRE(samples.samples.size() > 50);
  CHECK(samples.lost == 0);
  CHECK(samples.interruption_ns > 0);
  // All of the time is in a sample, but for what the interruptions took.
  CHECK(milliseconds_of(samples) == Approx(wall).epsilon(0.15));
#if !BRRR_TSAN  // which calls handlers later
  // By samples: where the system lets other work run, one sample has all of that time.
  std::map<std::string, double> count;
  double complete = 0, all = 0;
  const measure::HostProfile profile = measure::named(samples);
  for (const measure::HostProfile::Stack& stack : profile.stacks) {
    const auto here = static_cast<double>(stack.samples);
    all += here;
    complete += stack.complete ? here : 0;
    for (const std::uint32_t frame : stack.frames) count[profile.frames[frame].function] += here;
  }
  CHECK(complete / all > 0.95);
  CHECK(count["spin_three_parts"] / all == Approx(0.75).margin(0.12));
  CHECK(count["spin_one_part"] / all == Approx(0.25).margin(0.12));
  CHECK(count["main"] == 0);  // frames below the sampled work are not recorded
#endif
}

#if defined(__x86_64__)
namespace {

// The unwinder's tables say that the caller's address is far outside of the stack.
[[gnu::noinline]] void spin_with_wrong_tables() {
  asm volatile(".cfi_remember_state\n.cfi_def_cfa rsp, 0x10000000000");
  spin(2e-4);
  asm volatile(".cfi_restore_state");
}

}  // namespace

TEST_CASE("wrong tables of the unwinder end a stack, not the program", "[host-samples]") {
  const SignalState state = SignalState::now();
  {
    HostSampler sampler;
    sampler.run([] {
      for (int i = 0; i < 500; ++i) spin_with_wrong_tables();
    });
    const HostSamples samples = sampler.samples();
    REQUIRE(samples.samples.size() > 10);
    std::size_t incomplete = 0;
    for (const measure::HostSample& sample : samples.samples) {
      CHECK(sample.end > sample.begin);
      incomplete += !sample.complete;
    }
    CHECK(incomplete > samples.samples.size() / 2);
  }
  CHECK(SignalState::now() == state);
}
#endif

TEST_CASE("time asleep is sampled too", "[host-samples]") {
  HostSampler sampler;
  for (int i = 0; i < 20; ++i)
    sampler.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  CHECK(milliseconds_of(sampler.samples()) > 180);
  CHECK(milliseconds_of(sampler.samples()) < 600);
}

TEST_CASE("a second sampler is refused, one after another is not", "[host-samples]") {
  {
    HostSampler first;
    CHECK_THROWS_WITH(HostSampler(),
                      "[sample] expected no other sampler in this process, got one "
                      "that exists");
    first.run([] { spin(0.05); });
    CHECK(first.count() > 5);
  }
  for (int i = 0; i < 3; ++i) {
    std::thread([] {
      HostSampler sampler;
      sampler.run([] { spin(0.05); });
      CHECK(sampler.count() > 5);
    }).join();
  }
  HostSampler sampler;
  std::thread([&] {
    CHECK_THROWS_WITH(sampler.run([] {}),
                      "[sample] expected the thread that made the sampler, got another one");
  }).join();
}

TEST_CASE("periods out of range are refused", "[host-samples]") {
  for (const double period : {0.0, 1e-6, 2.0, std::nan("")})
    CHECK_THROWS_WITH(HostSampler({.period_seconds = period}),
                      Catch::Contains("[sample] expected a period from 20 us to 1 s, got"));
  CHECK_NOTHROW(HostSampler({.period_seconds = 1e-3}));
}

TEST_CASE("samples that find no memory are counted", "[host-samples]") {
  HostSampler few({.most_samples = 60});  // measuring an interruption takes some, and returns them
  few.run([] { spin(0.25); });
  const HostSamples samples = few.samples();
  CHECK(samples.samples.size() == 60);
  CHECK(samples.lost > 0);
}

TEST_CASE("handlers and mask are those of before, whatever the work throws", "[host-samples]") {
  struct sigaction mine = {}, before = {};
  mine.sa_handler = count_foreign;
  ::sigaction(SIGPROF, &mine, &before);
  const SignalState state = SignalState::now();
  {
    HostSampler sampler;
    CHECK_FALSE(SignalState::now() == state);
    CHECK_THROWS_AS(sampler.run([] {
      spin(0.02);
      throw Error("[test] stop");
    }),
                    Error);
    const std::size_t count = sampler.count();
    spin(0.02);
    CHECK(sampler.count() == count);  // nothing is sampled between runs
    sampler.run([] { spin(0.02); });
    CHECK(sampler.count() > count);
  }
  CHECK(SignalState::now() == state);
  spin(0.01);
  CHECK(foreign_signals == 0);
  ::raise(SIGPROF);
  CHECK(foreign_signals == 1);
  ::sigaction(SIGPROF, &before, nullptr);
}
