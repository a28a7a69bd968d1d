#include "brrr/graph/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/journal.h"
#include "brrr/graph/first_call_progress.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_report.h"
#include "brrr/graph/guards.h"
#include "brrr/graph/passes.h"
#include "brrr/graph/program.h"
#include "brrr/graph/rematerialize.h"
#include "brrr/graph/replay_check.h"
#include "brrr/graph/replay_listener.h"
#include "brrr/graph/signature.h"
#include "brrr/graph/step_entry.h"
#include "brrr/graph/trace.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/tensor/counted.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/host_work.h"

namespace brrr::core {
namespace {

using graph::Entry;
using graph::Graph;
using graph::Guards;
using graph::Program;
using graph::Signature;
using graph::StepArguments;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Why a call cannot be replayed. Each kind of reason is reported once.
struct Fallback {
  enum Kind : std::uint8_t { queue, aliases, entries };
  Kind kind;
  std::string why;
};

}  // namespace

Static static_of(double value) { return std::bit_cast<Static>(value); }

struct CompiledStep::State {
  State(CompiledStep& of, CompileOptions given) : step(of), options(std::move(given)) {}

  // Sets `replayed` to the index of the entry, if one is replayed.
  std::vector<Tensor> call(const StepArguments& arguments, const StepFunction& function,
                           int& replayed);
  std::unique_ptr<Entry> trace_and_plan(const StepArguments& arguments,
                                        const StepFunction& function);
  Entry* find_or_trace(const StepArguments& arguments, const StepFunction& function);
  Entry* retrace(Entry& stale, const StepArguments& arguments, const StepFunction& function,
                 bool replaced);
  void report_retrace(const std::string& why);
  Graph trace(std::span<const Tensor> arguments, const StepFunction& function) const;
  std::unique_ptr<Program> plan(Graph graph, Graph unfused, std::span<const Tensor> arguments,
                                Entry& entry, std::string& why_not_compiled);
  // Returns whether the step is fused.
  bool choose(Graph& graph, const Graph& unfused, std::span<const Tensor> arguments, Entry& entry);
  void report_unfused(const std::string& what, const std::string& why);
  void fuse(Graph& graph) const;
  graph::RematReport rematerialize(Graph& graph) const;
  void check_budget(const graph::RematReport& report, std::size_t arena_bytes,
                    const std::string& why_not_compiled) const;
  void report_frozen_rates(std::vector<graph::HostConstant> constants,
                           std::span<const std::int64_t> statics) const;
  std::vector<Tensor> fall_back(const StepArguments& arguments, const StepFunction& function,
                                const Fallback& fallback);
  // Whether replays of a graph give the bits of eager calls.
  bool has_eager_bits(const Graph& graph) const {
    return options.mode != Mode::fused ||
           (graph.device.is_cpu() && options.rounding == Rounding::eager);
  }
  Fallback too_many_entries(const StepArguments& arguments) const;
  void require_values(const StepArguments& arguments) const;
  std::string reason_for(const Entry& entry) const;
  std::string advice(const Signature* further) const;
  const Program& program(int entry) const;
  graph::ProgramOptions program_options() const {
    return {.lanes = options.lanes, .programmatic = options.programmatic};
  }

  // Status line from the start of the trace to the end of the first run.
  std::optional<graph::FirstCallProgress> progress;
  void begin_phase(const char* does) {
    if (progress) progress->phase(does);
  }

  CompiledStep& step;
  CompileOptions options;
  std::recursive_mutex mutex;  // a step may ask for its own report
  std::vector<std::unique_ptr<Entry>> entries;
  std::vector<std::int64_t> words;  // signature of the current call
  std::shared_ptr<graph::Arena> arena = std::make_shared<graph::Arena>();
  std::int64_t eager_calls = 0;
  std::vector<std::string> eager_reasons;
  std::set<std::string> unfused_reported;  // what runs unfused
  int retraces = 0;
  unsigned reported = 0;  // kinds of fallback already reported on stderr, as bits
};

const Program& CompiledStep::State::program(int entry) const {
  if (entry < 0 || entry >= static_cast<int>(entries.size())) {
    fail("[{}] expected an entry below {}, got {}; call the step first", options.name,
         entries.size(), entry);
  }
  return *entries[entry]->program;
}

Graph CompiledStep::State::trace(std::span<const Tensor> arguments,
                                 const StepFunction& function) const {
  graph::Trace trace(options.name, arguments);
  return trace.finish(function(trace.inputs()));
}

void CompiledStep::State::report_frozen_rates(std::vector<graph::HostConstant> constants,
                                              std::span<const std::int64_t> statics) const {
  if (options.frozen_rate == OnFrozenRate::ignore) return;
  constants = graph::frozen_rates(std::move(constants), graph::numbers_of(statics));
  if (constants.empty()) return;
  const std::string text = fmt::format(
      "[{}] numbers of the host update parameters and will be the same in every replay; a schedule "
      "or inject_hyperparams keeps them on the device, frozen_rate = ignore says that they are "
      "meant:\n{}",
      options.name, graph::to_string(constants, true));
  if (options.frozen_rate == OnFrozenRate::refuse) fail(text);
  std::fputs(text.c_str(), stderr);
}

namespace {

void run(const graph::Pass& pass, Graph& graph) {
  pass.run(graph);
#ifndef NDEBUG
  graph::verify(graph, pass.name);
#endif
}

Graph through_passes(Graph graph, Mode mode) {
  for (const graph::Pass& pass : graph::kPasses) {
    if (pass.in_graph_mode || mode == Mode::fused) run(pass, graph);
  }
  return graph;
}

}  // namespace

void CompiledStep::State::fuse(Graph& graph) const {
  graph.fast = options.rounding == Rounding::fast;
  run({"fuse", graph::fuse}, graph);
}

graph::RematReport CompiledStep::State::rematerialize(Graph& graph) const {
  graph::RematOptions remat{
      options.remat, options.name, Program::plan_options(graph.device, program_options()), {}};
  if (options.mode == Mode::fused) remat.fuse = [this](Graph& each) { fuse(each); };
  graph::RematReport report = graph::rematerialize(graph, remat);
#ifndef NDEBUG
  graph::verify(graph, "rematerialize");
#endif
  return report;
}

// Throws if the budget is exceeded: a step whose kernels could not be compiled is fused and planned
// again, so its plan is not the one that the policy chose.
void CompiledStep::State::check_budget(const graph::RematReport& report, std::size_t arena_bytes,
                                       const std::string& why_not_compiled) const {
  const double most = options.remat.fraction() * static_cast<double>(report.baseline.peak_bytes);
  if (options.remat.kind() == Remat::Kind::budget && !report.saves_nothing &&
      static_cast<double>(arena_bytes) > most)
    fail(
        "[{}] expected memory of at most {:.0f} bytes by its budget of {}, got {}, since its "
        "kernels "
        "are not compiled: {}",
        options.name, most, options.remat.fraction(), arena_bytes, why_not_compiled);
}

// Once for each kernel, or whole step, that cannot be made.
void CompiledStep::State::report_unfused(const std::string& what, const std::string& why) {
  if (options.fallback == OnFallback::ignore || !unfused_reported.insert(what).second) return;
  std::fputs(fmt::format("[{}] runs {}, since {}\n", options.name, what, why).c_str(), stderr);
}

bool CompiledStep::State::choose(Graph& graph, const Graph& unfused,
                                 std::span<const Tensor> arguments, Entry& entry) {
  if (options.mode != Mode::fused) return false;
  graph.fast = options.rounding == Rounding::fast;
  // A policy of rematerialization has chosen by what its plan takes.
  if (!options.measure || graph.has_policy || !graph::measures_choices()) return true;
  if (!entry.choice) {
    begin_phase("times kernels");
    const auto fuse_as_required = [&](Graph& each) {
      const Graph before = each;
      fuse(each);
      graph::check_required(before, each, options.name);
    };
    entry.choice = graph::choose_by_times(
        graph, {fuse_as_required, program_options(), arguments,
                graph.required.empty() ? &unfused : nullptr, has_eager_bits(graph)});
    graph.apart.insert(entry.choice->apart.begin(), entry.choice->apart.end());
    graph.copies_factors &= entry.choice->copies_factors;
  }
  return !entry.choice->unfused;
}

// Makes the program of a graph and its kernels, fused if the mode asks for it. If a kernel on CUDA
// cannot be made, the step is fused again with its calls apart. The CPU's kernels are compiled
// together: if that fails, the step is replayed call by call. `why_not_compiled` gets the first
// failure's reason.
std::unique_ptr<Program> CompiledStep::State::plan(Graph graph, Graph unfused,
                                                   std::span<const Tensor> arguments, Entry& entry,
                                                   std::string& why_not_compiled) {
  while (choose(graph, unfused, arguments, entry)) {
    Graph fused = graph;
    try {
      fuse(fused);
      graph::check_required(graph, fused, options.name);
      auto program = std::make_unique<Program>(std::move(fused), arena, program_options());
      program->prepare();
      return program;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const graph::RefusedKernel& refused) {
      if (!graph.required.empty() || options.fallback == OnFallback::refuse) throw;
      const std::size_t apart = graph.apart.size();
      for (const int call : refused.calls) graph.apart.emplace(call, WhyNotFused::no_kernel);
      if (graph.apart.size() == apart) throw;
      const std::string why = jit::in_one_line(refused.what());
      if (why_not_compiled.empty()) why_not_compiled = why;
      report_unfused(refused.kernel + " unfused", "their kernel cannot be made: " + why);
    } catch (const Error& error) {
      if (graph.device.is_cuda() || !graph.required.empty() ||
          options.fallback == OnFallback::refuse)
        throw;
      why_not_compiled = jit::in_one_line(error.what());
      if (options.fallback == OnFallback::warn) graph::report_uncompiled(why_not_compiled);
      break;
    }
    if (entries.empty()) arena = std::make_shared<graph::Arena>();  // drop the failed plan's
  }
  const bool is_chosen = entry.choice && entry.choice->unfused;
  return std::make_unique<Program>(std::move(is_chosen ? unfused : graph), arena,
                                   program_options());
}

std::unique_ptr<Entry> CompiledStep::State::trace_and_plan(const StepArguments& arguments,
                                                           const StepFunction& function) {
  const HostScope scope(HostActivity::trace, options.name.c_str());
  progress.emplace(options.name);
  auto entry = std::make_unique<Entry>();
  const auto start = std::chrono::steady_clock::now();
  Graph graph = trace(arguments.tensors, function);
  entry->trace_ms = milliseconds_since(start);
  tell_listener([&](ReplayListener& each) { each.traced(step, graph, options); });
  if (options.verify > 0) entry->traced = std::make_shared<graph::TracedCalls>(graph);
  const auto traced = std::chrono::steady_clock::now();
#ifndef NDEBUG
  graph::verify(graph, "trace");
#endif
  run({"remove_dead", graph::remove_dead}, graph);
  entry->host_constants = graph::host_constants(graph);
  report_frozen_rates(entry->host_constants, arguments.statics);
  Graph unfused;
  if (options.mode == Mode::fused) unfused = through_passes(graph, Mode::graph);
  graph = through_passes(std::move(graph), options.mode);
  if (options.remat.kind() != Remat::Kind::none) {
    begin_phase("chooses what to recompute");
    entry->remat = rematerialize(graph);
  }
  begin_phase(options.mode == Mode::fused ? "fuses, plans memory and compiles kernels"
                                          : "plans memory");
  std::string why_not_compiled;
  entry->program =
      plan(std::move(graph), std::move(unfused), arguments.tensors, *entry, why_not_compiled);
  if (entry->remat)
    check_budget(*entry->remat, entry->program->plan().arena_bytes, why_not_compiled);
  entry->guards.emplace(entry->program->graph());
  entry->plan_ms = milliseconds_since(traced);
  entry->signature = graph::signature_of(arguments, words);
  return entry;
}

std::vector<Tensor> CompiledStep::State::fall_back(const StepArguments& arguments,
                                                   const StepFunction& function,
                                                   const Fallback& fallback) {
  if (options.fallback == OnFallback::refuse)
    fail("[{}] expected a step that can be replayed: {}", options.name, fallback.why);
  ++eager_calls;
  constexpr std::size_t kRemembered = 8;
  if (std::ranges::find(eager_reasons, fallback.why) == eager_reasons.end()) {
    if (eager_reasons.size() == kRemembered) eager_reasons.erase(eager_reasons.begin());
    eager_reasons.push_back(fallback.why);
  }
  const unsigned kind = 1u << fallback.kind;
  if (options.fallback == OnFallback::warn && !(reported & kind)) {
    const std::string line = fmt::format(
        "[{}] runs eagerly where it cannot be replayed: {} (reported once; report() counts eager "
        "calls)\n",
        options.name, fallback.why);
    std::fputs(line.c_str(), stderr);
  }
  reported |= kind;
  return function(arguments.tensors);
}

// Advice on how to have more calls replayed. `further`: the signature of a call without an entry.
std::string CompiledStep::State::advice(const Signature* further) const {
  std::vector<const Signature*> all;
  for (const auto& entry : entries) all.push_back(&entry->signature);
  if (further) all.push_back(further);
  return graph::advice_on_numbers(all);
}

Fallback CompiledStep::State::too_many_entries(const StepArguments& arguments) const {
  const Signature signature = graph::signature_of(arguments, words);
  const std::string mend = advice(&signature);
  return {Fallback::entries,
          fmt::format(
              "{} would be entry {} of at most {}; {}", signature.text, entries.size() + 1,
              options.most_entries,
              mend.empty() ? "fewer shapes, or a larger most_entries, would avoid that" : mend)};
}

void CompiledStep::State::require_values(const StepArguments& arguments) const {
  const auto require = [&](const Tensor& x, const char* kind, std::size_t i) {
    if (!x.defined())
      fail("[{}] expected tensors, got an undefined one as {} {}", options.name, kind, i);
    if (x.is_meta())
      fail("[{}] expected tensors with values, got {} without memory as {} {}", options.name,
           x.describe(), kind, i);
  };
  for (std::size_t i = 0; i < arguments.fixed.size(); ++i)
    require(arguments.fixed[i], "fixed argument", i);
  for (std::size_t i = 0; i < arguments.tensors.size(); ++i) {
    const Tensor& x = arguments.tensors[i];
    require(x, "argument", i);
    if (requires_grad(x) && grad_enabled())
      fail(
          "[{}] expected arguments that require no gradient, got {} as argument {}; make it one in "
          "the step, with requires_grad_(detach(x))",
          options.name, x.describe(), i);
    for (std::size_t j = 0; j < arguments.fixed.size(); ++j) {
      if (TensorImpl::of(x)->storage == TensorImpl::of(arguments.fixed[j])->storage &&
          TensorImpl::of(x)->storage->bytes > 0)
        fail(
            "[{}] expected arguments with memory of their own, got {} as argument {} and {} as "
            "fixed argument {} of one storage; use the fixed argument for both, or pass a clone",
            options.name, x.describe(), i, arguments.fixed[j].describe(), j);
    }
  }
}

// The entry for these arguments, the current settings and the current gradients of leaves; traces
// if there is none. Null if that would exceed most_entries.
Entry* CompiledStep::State::find_or_trace(const StepArguments& arguments,
                                          const StepFunction& function) {
  Entry* stale = nullptr;
  std::vector<Entry*> others;  // that differ in the gradients of leaves alone
  for (const auto& entry : entries) {
    if (entry->signature.words != words) continue;
    const Guards::Verdict guards = entry->guards->check();
    if (guards == Guards::Verdict::other_setting) continue;
    const bool replaced = guards == Guards::Verdict::replaced;
    const Program::Fit fit = replaced ? Program::Fit::moved : entry->program->fit_of_gradients();
    if (fit == Program::Fit::yes) return entry.get();
    if (fit == Program::Fit::moved) stale = entry.get();
    others.push_back(entry.get());
  }
  if (stale) {
    const bool replaced = stale->guards->check() == Guards::Verdict::replaced;
    if (replaced || !stale->program->rebind_gradients())
      return retrace(*stale, arguments, function, replaced);
    stale->guards->follow(stale->program->graph());
    return stale;
  }
  if (static_cast<int>(entries.size()) >= options.most_entries) return nullptr;
  if (others.size() > 1) report_retrace(others.back()->program->difference_of_gradients());
  auto entry = trace_and_plan(arguments, function);
  entry->reason = reason_for(*entry);
  entries.push_back(std::move(entry));
  return entries.back().get();
}

// From the third time on, a step that is traced again counts as one that cannot be replayed.
void CompiledStep::State::report_retrace(const std::string& why) {
  constexpr int kOften = 3;
  if (++retraces < kOften || options.fallback == OnFallback::ignore) return;
  if (options.fallback == OnFallback::refuse)
    fail("[{}] expected a step that can be replayed, got one to trace again for time {}: {}",
         options.name, retraces, why);
  if (retraces > kOften) return;
  fmt::print(stderr,
             "[{}] is traced again for the third time: {} (reported once; report() counts)\n",
             options.name, why);
}

// Traces again and replaces an entry that no later call can match: memory that it reads was
// replaced, or leaves have gradient tensors of other layouts than those it reads.
Entry* CompiledStep::State::retrace(Entry& stale, const StepArguments& arguments,
                                    const StepFunction& function, bool replaced) {
  report_retrace(replaced ? stale.guards->replacement(stale.program->graph())
                          : stale.program->difference_of_gradients());
  auto entry = trace_and_plan(arguments, function);
  entry->reason = stale.reason;
  entry->calls = stale.calls;
  entry->traced_again = stale.traced_again + !replaced;
  entry->replaced = stale.replaced + replaced;
  entry->renewed = stale.renewed;
  stale = std::move(*entry);
  return &stale;
}

// Why an entry was made in addition to the existing ones.
std::string CompiledStep::State::reason_for(const Entry& entry) const {
  if (entries.empty()) return "first call";
  for (const auto& other : entries) {
    if (other->signature.words != entry.signature.words) continue;
    const std::string setting = other->guards->difference();
    return setting.empty() ? "leaves had gradients and have none, or had none" : setting;
  }
  return graph::difference(entry.signature, entries.back()->signature);
}

std::vector<Tensor> CompiledStep::State::call(const StepArguments& arguments,
                                              const StepFunction& function, int& replayed) {
  // Called by a step that is being traced or verified, this step is part of it.
  if (options.mode == Mode::eager || graph::Trace::on_this_thread() ||
      graph::ReplayCheck::on_this_thread())
    return function(arguments.tensors);
  const std::lock_guard lock(mutex);
  require_values(arguments);
  if (current_cpu_queue())
    return fall_back(arguments, function,
                     {Fallback::queue, "the current stream of the CPU is a queue"});
  graph::fill_words(arguments, words);
  struct EndOfProgress {
    State& of;
    ~EndOfProgress() { of.progress.reset(); }
  } const end_of_progress{*this};
  // Locked because other threads may change the gradients of the same leaves.
  std::unique_lock gradients(autograd::accumulation_mutex());
  Entry* found = find_or_trace(arguments, function);
  std::optional<graph::ReplayCheck> check;
  if (found && found->verified < options.verify) {
    check.emplace(options.name, found->traced, found->program->graph(), arguments.tensors,
                  has_eager_bits(found->program->graph()));
    gradients.unlock();
    check->run_eagerly(function);
    gradients.lock();
    found = find_or_trace(arguments, function);
  }
  // The leaves have new gradient tensors, the copies: trace again with these.
  if (found && found->program->copy_accumulated_gradients())
    found = find_or_trace(arguments, function);
  if (!found) {
    gradients.unlock();
    return fall_back(arguments, function, too_many_entries(arguments));
  }
  found->renewed += found->program->renew_gradients();
  const std::string why = found->program->alias_problem(arguments.tensors);
  if (!why.empty() || !found->program->accumulates()) gradients.unlock();
  if (!why.empty()) return fall_back(arguments, function, {Fallback::aliases, why});
  begin_phase("compiles kernels and measures products");
  std::chrono::steady_clock::time_point start;
  const bool is_first = found->first_run_ms == 0;
  if (is_first) start = std::chrono::steady_clock::now();
  std::vector<Tensor> results = found->program->run(arguments.tensors);
  if (is_first) found->first_run_ms = milliseconds_since(start);
  if (check) {
    check->compare(results);
    if (++found->verified == options.verify) found->traced.reset();
  }
  ++found->calls;
  replayed = static_cast<int>(std::ranges::find(entries, found, &std::unique_ptr<Entry>::get) -
                              entries.begin());
  return results;
}

CompiledStep::CompiledStep(CompileOptions options)
    : state_(std::make_unique<State>(*this, std::move(options))) {
  if (state_->options.verify < 0)
    fail("[compile] expected a number of calls to verify, got {}", state_->options.verify);
  if (state_->options.most_entries < 1)
    fail("[compile] expected at least one entry, got {}", state_->options.most_entries);
}
CompiledStep::~CompiledStep() {
  tell_listener([&](auto& each) { each.destroyed(*this); });
}

std::vector<Tensor> CompiledStep::call(std::span<const Tensor> arguments,
                                       std::span<const Tensor> fixed,
                                       std::span<const Static> statics,
                                       const StepFunction& function) {
  ReplayScope scope(*this);
  return state_->call({arguments, fixed, statics}, function, scope.entry);
}

CompileReport CompiledStep::report() const {
  const std::lock_guard lock(state_->mutex);
  CompileReport report{.name = state_->options.name};
  for (const auto& entry : state_->entries) {
    CompiledEntry line = graph::report_of(*entry->program);
    line.mode = state_->options.mode;
    line.signature = entry->signature.text;
    line.reason = reason_of(*entry);
    line.calls = entry->calls;
    if (entry->remat) {
      line.recomputed_calls = entry->remat->recomputed_calls;
      line.arena_bytes_without_remat = entry->remat->baseline.peak_bytes;
    }
    line.trace_ms = entry->trace_ms;
    line.plan_ms = entry->plan_ms;
    line.first_run_ms = entry->first_run_ms;
    report.entries.push_back(std::move(line));
  }
  report.eager_calls = state_->eager_calls;
  report.eager_reasons = state_->eager_reasons;
  return report;
}

std::string CompiledStep::explain() const {
  const CompileReport all = report();
  std::string text =
      fmt::format("{}: {} of at most {} entries, {}\n", state_->options.name, all.entries.size(),
                  state_->options.most_entries, counted(all.eager_calls, "eager call"));
  const std::lock_guard lock(state_->mutex);
  for (std::size_t i = 0; i < all.entries.size(); ++i)
    text += fmt::format("entry {} {}", i, graph::to_string(*state_->entries[i], all.entries[i]));
  for (const std::string& why : all.eager_reasons) text += "eager: " + why + "\n";
  if (const std::string mend = state_->advice(nullptr); !mend.empty())
    text += "advice: " + mend + "\n";
  return text;
}

std::string CompiledStep::graph_text(int entry, int format) const {
  const std::lock_guard lock(state_->mutex);
  const Graph& graph = state_->program(entry).graph();
  const auto& remat = state_->entries[entry]->remat;
  return graph::to_string(graph, static_cast<graph::GraphFormat>(format),
                          remat ? graph::to_json(*remat) : "null");
}

LiveBytes CompiledStep::live_bytes(int entry) const {
  const std::lock_guard lock(state_->mutex);
  state_->program(entry);  // throws where there is no such entry
  const auto& remat = state_->entries[entry]->remat;
  if (!remat)
    fail("[{}] live_bytes expected a step compiled with a policy of rematerialization, got none",
         state_->options.name);
  return {.every_value_kept = remat->baseline.live,
          .planned = remat->chosen.live,
          .every_value_kept_in_gradients = remat->baseline.in_gradients,
          .planned_in_gradients = remat->chosen.in_gradients};
}

std::vector<UnfusedEdge> CompiledStep::unfused(int entry) const {
  const std::lock_guard lock(state_->mutex);
  return graph::describe_unfused(state_->program(entry).graph());
}

std::vector<GeneratedKernel> CompiledStep::kernels(int entry) const {
  const std::lock_guard lock(state_->mutex);
  const Program& program = state_->program(entry);
  return graph::describe_kernels(program.graph(), program.launches(), program.prediction());
}

std::vector<LaunchCost> CompiledStep::launches(int entry) const {
  const std::lock_guard lock(state_->mutex);
  const Program& program = state_->program(entry);
  return graph::describe_launches(program.graph(), program.launches(), program.prediction());
}

void CompiledStep::measure_kernels() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& entry : state_->entries) entry->program->measure_kernels();
}

void CompiledStep::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->entries.clear();
  state_->retraces = 0;
  state_->arena = std::make_shared<graph::Arena>();
}

}  // namespace brrr::core
