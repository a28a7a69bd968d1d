#include "brrr/measure/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "brrr/measure/step_cost.h"
#include "brrr/tensor/measure_library.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

// Modules whose functions are kernels, whatever their names.
struct KnownModule {
  const char* prefix;  // of its base name
  HostClass of;
};
constexpr KnownModule kModules[] = {
    {"kernel.so", HostClass::kernels},  // generated and compiled by ops/jit
    {"libopenblas", HostClass::kernels},
    {"libblas", HostClass::kernels},
};
// Driver libraries, in which unwinding may stop. Their frames get the class of their caller; if it
// is unknown, they count as launches, the most frequent reason for a step to call them.
constexpr const char* kDrivers[] = {"libcuda", "libcublas", "libcupti", "libnvrtc", "libnvidia"};
// Modules whose functions get the class of their caller.
constexpr const char* kTransparent[] = {
    "libc.",      "libc-",    "libm.", "libm-",  "libmvec", "libstdc++", "libgcc_s",
    "libpthread", "ld-linux", "ld.so", "[vdso]", "libfmt",  "linux-vdso"};

// Whether `name` is `known`, or inside of it.
bool is_within(std::string_view name, std::string_view known) {
  return name.starts_with(known) &&
         (name.size() == known.size() || name.substr(known.size()).starts_with("::"));
}

// A function of the standard library, wherever it was instantiated, or of the C runtime.
bool is_of_language(const std::string& function) {
  return function.starts_with("std::") || function.starts_with("__gnu_cxx::") ||
         function.starts_with("operator ") || function.starts_with("fmt::") ||
         function.starts_with("_") || function.starts_with("typeinfo");
}

constexpr double kMostIncomplete = 0.01, kClosure = 0.03, kPerturbation = 0.05;

void add_missing(Ledger& ledger) {
  const HostProfile& profile = ledger.profile;
  const auto say = [&](std::string what) { ledger.missing.push_back(std::move(what)); };
  if (profile.lost > 0)
    say(fmt::format("{} of {} samples did not fit in memory", profile.lost,
                    profile.lost + ledger.samples));
  for (const std::string& module : profile.without_symbols)
    say(fmt::format("{} has no symbol table (.symtab): its local functions have no names", module));
  std::map<std::string, std::int64_t> stopped;
  for (const HostProfile::Stack& stack : profile.stacks) {
    if (!stack.complete && !profile.has_known_frame(stack))
      stopped[profile.frames[stack.frames.back()].module] += stack.ns;
  }
  const double all = static_cast<double>(std::max<std::int64_t>(profile.ns(), 1));
  for (const auto& [module, ns] : stopped) {
    const double share = static_cast<double>(ns) / all;
    if (share <= kMostIncomplete) continue;
    say(fmt::format("in {:.1f} % of the time the stack could not be followed beyond {}",
                    share * 100, module.empty() ? "code of no module" : module));
  }
  if (ledger.samples == 0) return say("no sample was taken: the step ran too briefly");
  if (ledger.untraced.disturbed())
    say("the samples of the step's time are widely spread: the machine was busy with other work");
  if (std::abs(ledger.closure()) > kClosure)
    say(fmt::format("the classes add up to {:.1f} % of the untraced step",
                    100 * (1 + ledger.closure())));
  if (ledger.perturbation() > kPerturbation)
    say(fmt::format("sampling made the step {:.1f} % slower", 100 * ledger.perturbation()));
}

// Steps that were sampled together.
struct SampledBatch {
  long steps = 0;
  double seconds = 0;
  std::size_t begin = 0, end = 0;  // samples
};

// The samples of batches whose time is near the median, and the number of their steps. Other
// batches were disturbed by other work on the machine.
std::pair<HostSamples, std::int64_t> undisturbed(HostSamples samples,
                                                 std::span<const SampledBatch> batches,
                                                 double median) {
  constexpr double kFar = 0.1;
  std::vector<HostSample> kept;
  std::int64_t steps = 0;
  for (const SampledBatch& batch : batches) {
    const double expected = median * static_cast<double>(batch.steps);
    if (std::abs(batch.seconds - expected) > kFar * expected) continue;
    const auto at = [&](std::size_t i) {
      return samples.samples.begin() + static_cast<std::ptrdiff_t>(i);
    };
    kept.insert(kept.end(), at(batch.begin), at(batch.end));
    steps += batch.steps;
  }
  samples.samples = std::move(kept);
  return {std::move(samples), steps};
}

// The number of steps between two waits for the device. A stream queues about a thousand launches;
// the next launch blocks, which would count the device's time as `launch`. It queues fewer replays.
long steps_without_wait(Device device, const std::function<void()>& step) {
  if (device.is_cpu()) return 0;
  constexpr std::int64_t kQueued = 500;
  for (int i = 0; i < 2; ++i) step();  // a compiled step is captured in the second one
  const std::int64_t launches = cuda_launches(step).all;
  return launches == 0 ? calls_in_queue(0)
                       : static_cast<long>(std::max<std::int64_t>(kQueued / launches, 1));
}

}  // namespace

std::optional<HostClass> class_of(const Frame& frame) {
  if (is_within(frame.function, "brrr")) {
    const KnownName* longest = nullptr;
    for (const KnownName& each : known_names()) {
      if (is_within(frame.function, each.name) &&
          (!longest || std::string_view(each.name).size() > std::string_view(longest->name).size()))
        longest = &each;
    }
    return longest->of;
  }
  for (const KnownModule& each : kModules) {
    if (frame.module.starts_with(each.prefix)) return each.of;
  }
  if (starts_with_any(frame.module, kDrivers) || starts_with_any(frame.module, kTransparent) ||
      is_of_language(frame.function) || frame.module.empty() || !frame.named)
    return std::nullopt;
  return HostClass::user;
}

std::int64_t HostProfile::samples() const {
  std::int64_t sum = 0;
  for (const Stack& stack : stacks) sum += stack.samples;
  return sum;
}

std::int64_t HostProfile::ns() const {
  std::int64_t sum = 0;
  for (const Stack& stack : stacks) sum += stack.ns;
  return sum;
}

bool HostProfile::has_known_frame(const Stack& stack) const {
  return std::ranges::any_of(stack.frames, [&](std::uint32_t frame) {
    return measure::class_of(frames[frame]).has_value();
  });
}

HostClass HostProfile::class_of(const Stack& stack) const {
  for (const std::uint32_t frame : stack.frames) {
    if (const auto known = measure::class_of(frames[frame])) return *known;
  }
  if (stack.complete) return HostClass::user;
  if (!stack.frames.empty() && starts_with_any(frames[stack.frames.back()].module, kDrivers))
    return HostClass::launch;
  return HostClass::other;
}

HostProfile named(const HostSamples& samples) {
  HostProfile profile;
  profile.lost = samples.lost;
  LoadedCode code;
  std::unordered_map<std::uintptr_t, std::uint32_t> by_address;
  std::map<std::pair<std::string, std::string>, std::uint32_t> by_name;
  const auto frame_of = [&](std::uintptr_t address) {
    const auto known = by_address.find(address);
    if (known != by_address.end()) return known->second;
    Frame frame = code.frame_at(address);
    const auto [place, is_new] = by_name.emplace(std::pair(frame.module, frame.function),
                                                 static_cast<std::uint32_t>(profile.frames.size()));
    if (is_new) profile.frames.push_back(std::move(frame));
    return by_address[address] = place->second;
  };
  std::map<std::pair<std::vector<std::uint32_t>, bool>, std::size_t> by_stack;
  for (const HostSample& sample : samples.samples) {
    std::vector<std::uint32_t> frames;
    for (const std::uintptr_t address : samples.stack(sample)) frames.push_back(frame_of(address));
    const auto [place, is_new] =
        by_stack.emplace(std::pair(frames, sample.complete), profile.stacks.size());
    if (is_new)
      profile.stacks.push_back({.frames = std::move(frames), .complete = sample.complete});
    profile.of_samples.push_back(static_cast<std::uint32_t>(place->second));
    HostProfile::Stack& stack = profile.stacks[place->second];
    stack.ns += sample.ns;
    ++stack.samples;
  }
  const auto library = reinterpret_cast<std::uintptr_t>(&open_measure_library);  // brrr's
  if (!code.has_local_symbols(library))
    profile.without_symbols.push_back(code.frame_at(library).module);
  return profile;
}

double Ledger::sum_ns() const {
  double sum = 0;
  for (const LedgerLine& line : lines) sum += line.ns;
  return sum;
}

Ledger ledger_of(Device device, HostProfile profile, std::int64_t steps, const Timing& untraced,
                 const Timing& traced) {
  Ledger ledger{.device = device,
                .lines = {},
                .untraced = untraced,
                .traced = traced,
                .steps = steps,
                .samples = 0,
                .missing = {},
                .profile = std::move(profile)};
  ledger.samples = ledger.profile.samples();
  for (std::size_t i = 0; i < kHostClasses; ++i) ledger.lines[i].of = static_cast<HostClass>(i);
  for (const HostProfile::Stack& stack : ledger.profile.stacks) {
    LedgerLine& line = ledger.lines[static_cast<std::size_t>(ledger.profile.class_of(stack))];
    line.ns += static_cast<double>(stack.ns);
    line.samples += stack.samples;
  }
  const double all = std::max(ledger.sum_ns(), 1.0);
  const double n = static_cast<double>(std::max<std::int64_t>(ledger.samples, 1));
  for (LedgerLine& line : ledger.lines) {
    line.share = line.ns / all;
    line.standard_error = std::sqrt(line.share * (1 - line.share) / n);
    line.ns /= static_cast<double>(std::max<std::int64_t>(steps, 1));
  }
  add_missing(ledger);
  return ledger;
}

namespace {

// The lines of the samples of the class `user`.
std::vector<CodeLine> user_lines(const HostSamples& samples, const HostProfile& profile) {
  std::vector<HostSample> own;
  for (std::size_t i = 0; i < samples.samples.size(); ++i) {
    if (profile.class_of(profile.stacks[profile.of_samples[i]]) == HostClass::user)
      own.push_back(samples.samples[i]);
  }
  std::vector<CodeLine> lines = code_lines(samples, own);
  std::erase_if(lines, [](const CodeLine& line) { return line.calls_brrr; });
  const double all = static_cast<double>(samples.samples.size());
  for (CodeLine& line : lines) line.share = static_cast<double>(line.samples) / all;
  return lines;
}

// `plain` runs as many steps as it is told; samples fall in every second batch of them.
Ledger sampled_ledger(Device device, const Batch& plain, const LedgerOptions& options) {
  HostSampler sampler(options.sampling);
  std::vector<SampledBatch> batches;
  const Batch sampled = [&](long n) {
    SampledBatch batch{.steps = n, .begin = sampler.count()};
    sampler.run([&] { batch.seconds = plain(n); });
    batch.end = sampler.count();
    batches.push_back(batch);
    return batch.seconds;
  };
  constexpr double kSample = 0.01;
  const auto [untraced, traced] =
      time_both(plain, sampled,
                {.samples = static_cast<int>(std::ceil(options.seconds / (2 * kSample))),
                 .sample_seconds = std::min(kSample, options.seconds / 10),
                 .budget_seconds = options.seconds,
                 .stop = options.stop});
  const auto [samples, steps] = undisturbed(sampler.samples(), batches, traced.median);
  Ledger ledger = ledger_of(device, named(samples), steps, untraced, traced);
  ledger.interruption_ns = samples.interruption_ns;
  ledger.code = user_lines(samples, ledger.profile);
  return ledger;
}

}  // namespace

Ledger host_ledger(Device device, const std::function<void()>& step, const LedgerOptions& options) {
  const long most_queued = steps_without_wait(device, step);
  const Batch plain = synchronized_batch(device, [&, queued = 0L]() mutable {
    step();
    if (++queued == most_queued) {
      synchronize(device);
      queued = 0;
    }
  });
  Ledger ledger = sampled_ledger(device, plain, options);
  // A sleep that is interrupted lasts longer, by more than the interruption.
  const bool slowed = ledger.perturbation() > kPerturbation || ledger.closure() > kClosure;
  if (ledger.samples == 0 || ledger.untraced.disturbed() || !slowed) return ledger;
  const double period =
      static_cast<double>(ledger.profile.ns()) * 1e-9 / static_cast<double>(ledger.samples);
  LedgerOptions rarer = options;
  constexpr double kFewest = 100;  // samples, in half of the time
  rarer.sampling.period_seconds =
      std::min(std::clamp(period * ledger.perturbation() / (kClosure / 2), period,
                          std::max(period, options.seconds / 2 / kFewest)),
               1.0);
  return sampled_ledger(device, plain, rarer);
}

}  // namespace brrr::measure
