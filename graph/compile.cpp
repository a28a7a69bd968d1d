#include "brrr/graph/compile.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/journal.h"
#include "brrr/graph/cuda_replay.h"
#include "brrr/graph/program.h"
#include "brrr/graph/trace.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/error.h"

namespace brrr::detail {
namespace {

using graph::Frozen;
using graph::Graph;
using graph::Program;
using graph::Trace;

// All that decides which calls a step makes.
struct Signature {
  std::string text;
  std::vector<std::int64_t> words;
  std::vector<Tensor> shapes;  // of the arguments, without values
  std::vector<const void*> fixed;
  std::vector<std::size_t> phases;
  std::vector<Static> statics;
};

void add_words(const Tensor& x, std::vector<std::int64_t>& words) {
  constexpr std::uint32_t kType = 0x1fffff;  // dtype, device, rank, layout
  words.push_back(x.impl()->word.bits & kType);
  const auto shape = x.shape(), strides = x.strides();
  words.insert(words.end(), shape.begin(), shape.end());
  words.insert(words.end(), strides.begin(), strides.end());
  words.push_back(static_cast<std::int64_t>(graph::phase_of(x)));
}

void fill_words(std::span<const Tensor> arguments, std::span<const Tensor> fixed,
                std::span<const Static> statics, std::vector<std::int64_t>& words) {
  words.clear();
  words.push_back(grad_enabled() | static_cast<int>(matmul_precision()) << 1 |
                  static_cast<int>(matmul_choice()) << 4);
  for (const Tensor& x : arguments) add_words(x, words);
  for (const Tensor& x : fixed) {
    add_words(x, words);
    words.push_back(reinterpret_cast<std::int64_t>(x.impl()->storage));
    words.push_back(x.storage_offset());
    // Which leaf it is matters, whatever memory it has.
    words.push_back(requires_grad(x) ? reinterpret_cast<std::int64_t>(x.impl()) : 0);
  }
  words.insert(words.end(), statics.begin(), statics.end());
}

std::string describe(std::span<const Tensor> arguments, std::span<const Tensor> fixed) {
  std::string text;
  for (const Tensor& x : arguments) text += (text.empty() ? "" : ", ") + x.describe();
  for (const Tensor& x : fixed) text += (text.empty() ? "fixed " : ", fixed ") + x.describe();
  return "(" + text + ")";
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Entry {
  Signature signature;
  std::string reason;
  std::unique_ptr<Program> program;
  std::int64_t calls = 0;
  int traced_again = 0, planned_again = 0;
  double trace_ms = 0, plan_ms = 0;
};

// What differs from the entry before.
std::string difference(const Signature& now, const Signature& before) {
  if (now.shapes.size() == before.shapes.size()) {
    for (std::size_t i = 0; i < now.shapes.size(); ++i) {
      const Tensor &x = now.shapes[i], &y = before.shapes[i];
      if (x.describe() != y.describe())
        return fmt::format("argument {} is {}, and was {}", i, x.describe(), y.describe());
      if (!std::ranges::equal(x.strides(), y.strides())) {
        return fmt::format("argument {} has strides {}, and had {}", i,
                           to_string(Dims(x.strides())), to_string(Dims(y.strides())));
      }
      if (now.phases[i] != before.phases[i]) {
        return fmt::format("argument {} starts {} bytes past a multiple of 16, and started {}", i,
                           now.phases[i], before.phases[i]);
      }
    }
  } else {
    return fmt::format("there are {} tensors, and were {}", now.shapes.size(),
                       before.shapes.size());
  }
  if (now.fixed != before.fixed) return "a fixed argument is another tensor";
  if (now.statics != before.statics) return "a number among the arguments changed";
  return "gradients, or how products are computed, were switched";
}

}  // namespace

Static static_of(double value) { return std::bit_cast<Static>(value); }

struct CompiledStep::State {
  explicit State(CompileOptions given) : options(std::move(given)) {}

  std::vector<Tensor> call(std::span<const Tensor> arguments, std::span<const Tensor> fixed,
                           std::span<const Static> statics, const StepFunction& function);
  std::unique_ptr<Entry> trace_and_plan(std::span<const Tensor> arguments,
                                        std::span<const Tensor> fixed,
                                        std::span<const Static> statics,
                                        const StepFunction& function);
  Entry* find_or_trace(std::span<const Tensor> arguments, std::span<const Tensor> fixed,
                       std::span<const Static> statics, const StepFunction& function);
  Graph trace(std::span<const Tensor> arguments, const StepFunction& function) const;
  void look_for_frozen_rates(const Graph& graph) const;
  std::vector<Tensor> fall_back(std::span<const Tensor> arguments, const StepFunction& function,
                                const std::string& why);
  std::string why_not(std::span<const Tensor> arguments, std::span<const Tensor> fixed) const;
  const Program& program(int entry) const;
  graph::ProgramOptions program_options() const {
    return {.lanes = options.lanes, .programmatic = options.programmatic};
  }

  CompileOptions options;
  std::recursive_mutex mutex;  // a step may ask for its own report
  std::vector<std::unique_ptr<Entry>> entries;
  std::vector<std::int64_t> words;  // of the call under way
  std::shared_ptr<graph::Arena> arena = std::make_shared<graph::Arena>();
  std::int64_t eager_calls = 0;
  std::vector<std::string> eager_reasons;
};

const Program& CompiledStep::State::program(int entry) const {
  if (entry < 0 || entry >= static_cast<int>(entries.size())) {
    fail(fmt::format("[{}] expected an entry below {}, got {}; call the step first", options.name,
                     entries.size(), entry));
  }
  return *entries[static_cast<std::size_t>(entry)]->program;
}

Graph CompiledStep::State::trace(std::span<const Tensor> arguments,
                                 const StepFunction& function) const {
  Trace trace(options.name, arguments);
  return trace.finish(function(trace.inputs()));
}

void CompiledStep::State::look_for_frozen_rates(const Graph& graph) const {
  if (options.frozen_rate == OnFrozenRate::ignore) return;
  std::vector<Frozen> found = graph::frozen_values(graph);
  std::erase_if(found, [](const Frozen& each) { return !each.updates_parameter; });
  if (found.empty()) return;
  const std::string text = fmt::format(
      "[{}] numbers of the host update parameters and will be the same in every replay; a schedule "
      "or inject_hyperparams keeps them on the device, frozen_rate = ignore says that they are "
      "meant:\n{}",
      options.name, graph::to_string(graph, found));
  if (options.frozen_rate == OnFrozenRate::refuse) fail(text);
  std::fputs(text.c_str(), stderr);
}

namespace {

void run_passes(Graph& graph) {
  using Pass = int (*)(Graph&);
  // Equal calls stay: a checkpoint makes them on purpose.
  constexpr std::pair<Pass, const char*> kPasses[] = {{graph::remove_dead, "remove_dead"}};
#ifndef NDEBUG
  graph::verify(graph, "trace");
#endif
  for (const auto& [pass, name] : kPasses) {
    pass(graph);
#ifndef NDEBUG
    graph::verify(graph, name);
#else
    static_cast<void>(name);
#endif
  }
}

}  // namespace

std::unique_ptr<Entry> CompiledStep::State::trace_and_plan(std::span<const Tensor> arguments,
                                                           std::span<const Tensor> fixed,
                                                           std::span<const Static> statics,
                                                           const StepFunction& function) {
  auto entry = std::make_unique<Entry>();
  const auto start = std::chrono::steady_clock::now();
  Graph graph = trace(arguments, function);
  entry->trace_ms = milliseconds_since(start);
  look_for_frozen_rates(graph);
  const auto traced = std::chrono::steady_clock::now();
  run_passes(graph);
  entry->program = std::make_unique<Program>(std::move(graph), arena, program_options());
  entry->plan_ms = milliseconds_since(traced);
  Signature& signature = entry->signature;
  signature.words = words;
  signature.text = describe(arguments, fixed);
  for (const Tensor& x : arguments) {
    signature.shapes.push_back(
        make_view(make_meta_tensor(x.dtype(), x.shape(), x.device()), x.shape(), x.strides()));
    signature.phases.push_back(graph::phase_of(x));
  }
  for (const Tensor& x : fixed) signature.fixed.push_back(x.data());
  signature.statics.assign(statics.begin(), statics.end());
  return entry;
}

std::vector<Tensor> CompiledStep::State::fall_back(std::span<const Tensor> arguments,
                                                   const StepFunction& function,
                                                   const std::string& why) {
  if (options.require_graph)
    fail(fmt::format("[{}] expected a step that can be replayed: {}", options.name, why));
  ++eager_calls;
  constexpr std::size_t kRemembered = 8;
  if (std::ranges::find(eager_reasons, why) == eager_reasons.end()) {
    if (eager_reasons.size() == kRemembered) eager_reasons.erase(eager_reasons.begin());
    eager_reasons.push_back(why);
  }
  return function(arguments);
}

// Why these arguments cannot be replayed here and now; "" when they can.
std::string CompiledStep::State::why_not(std::span<const Tensor> arguments,
                                         std::span<const Tensor> fixed) const {
  const auto require_values = [&](const Tensor& x, const char* kind, std::size_t i) {
    if (!x.defined())
      fail(fmt::format("[{}] expected tensors, got an undefined one as {} {}", options.name, kind,
                       i));
    if (x.is_meta())
      fail(fmt::format("[{}] expected tensors with values, got {} without memory as {} {}",
                       options.name, x.describe(), kind, i));
  };
  for (std::size_t i = 0; i < fixed.size(); ++i) require_values(fixed[i], "fixed argument", i);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& x = arguments[i];
    require_values(x, "argument", i);
    if (requires_grad(x) && grad_enabled()) {
      fail(fmt::format(
          "[{}] expected arguments that require no gradient, got {} as argument {}; make "
          "it one in the step, with requires_grad_(detach(x))",
          options.name, x.describe(), i));
    }
  }
  return current_cpu_queue() ? "the current stream of the CPU is a queue" : "";
}

// The entry for these arguments, and for the gradients that leaves have now; null when there is
// none and no room for it.
Entry* CompiledStep::State::find_or_trace(std::span<const Tensor> arguments,
                                          std::span<const Tensor> fixed,
                                          std::span<const Static> statics,
                                          const StepFunction& function) {
  Entry* moved = nullptr;
  bool other_gradients = false;
  for (const auto& entry : entries) {
    if (entry->signature.words != words) continue;
    const Program::Fit fit = entry->program->fit_of_gradients();
    if (fit == Program::Fit::yes) return entry.get();
    if (fit == Program::Fit::moved) moved = entry.get();
    other_gradients = true;
  }
  if (!moved && static_cast<int>(entries.size()) >= options.most_entries) return nullptr;
  auto entry = trace_and_plan(arguments, fixed, statics, function);
  if (moved) {
    // The gradients that it looks at are gone: no call will find them again.
    entry->reason = moved->reason;
    entry->calls = moved->calls;
    entry->traced_again = moved->traced_again + 1;
    entry->planned_again = moved->planned_again;
    *moved = std::move(*entry);
    return moved;
  }
  entry->reason = other_gradients   ? "leaves had gradients and have none, or had none"
                  : entries.empty() ? "first call"
                                    : difference(entry->signature, entries.back()->signature);
  entries.push_back(std::move(entry));
  return entries.back().get();
}

std::vector<Tensor> CompiledStep::State::call(std::span<const Tensor> arguments,
                                              std::span<const Tensor> fixed,
                                              std::span<const Static> statics,
                                              const StepFunction& function) {
  // Part of another step that is being traced, it is traced with it.
  if (options.mode == Mode::eager || Trace::on_this_thread()) return function(arguments);
  const std::lock_guard lock(mutex);
  if (const std::string why = why_not(arguments, fixed); !why.empty())
    return fall_back(arguments, function, why);
  fill_words(arguments, fixed, statics, words);
  // Other threads may change the gradients of the same leaves.
  std::unique_lock gradients(autograd::collecting());
  // Those that others hold are copied once: then the step is traced with the copies.
  Entry* found = find_or_trace(arguments, fixed, statics, function);
  if (found && found->program->copy_held_gradients())
    found = find_or_trace(arguments, fixed, statics, function);
  if (!found) {
    gradients.unlock();
    return fall_back(arguments, function,
                     fmt::format("{} would be entry {} of at most {}", describe(arguments, fixed),
                                 entries.size() + 1, options.most_entries));
  }
  if (found->program->made_gradients_are_held()) {
    // They stay the caller's; the step writes to new ones from now on.
    Graph graph = found->program->graph();
    found->program = std::make_unique<Program>(std::move(graph), arena, program_options());
    ++found->planned_again;
  }
  const std::string why = found->program->shared_memory(arguments);
  if (!why.empty() || !found->program->adds_to_gradients()) gradients.unlock();
  if (!why.empty()) return fall_back(arguments, function, why);
  std::vector<Tensor> results = found->program->run(arguments);
  ++found->calls;
  return results;
}

CompiledStep::CompiledStep(CompileOptions options)
    : state_(std::make_unique<State>(std::move(options))) {
  if (state_->options.most_entries < 1)
    fail(
        fmt::format("[compile] expected at least one entry, got {}", state_->options.most_entries));
}
CompiledStep::~CompiledStep() = default;

std::vector<Tensor> CompiledStep::call(std::span<const Tensor> arguments,
                                       std::span<const Tensor> fixed,
                                       std::span<const Static> statics,
                                       const StepFunction& function) {
  return state_->call(arguments, fixed, statics, function);
}

CompileReport CompiledStep::report() const {
  const std::lock_guard lock(state_->mutex);
  CompileReport report;
  for (const auto& entry : state_->entries) {
    const Program& program = *entry->program;
    CompiledEntry line;
    line.signature = entry->signature.text;
    line.reason = entry->reason;
    if (entry->traced_again > 0)
      line.reason += fmt::format(
          "; traced again {} times, since a gradient that the step looks at "
          "was another tensor",
          entry->traced_again);
    if (entry->planned_again > 0)
      line.reason += fmt::format("; planned again {} times, since somebody kept a gradient",
                                 entry->planned_again);
    line.calls = entry->calls;
    line.nodes = static_cast<int>(program.steps().size());
    line.lanes = program.plan().lanes;
    line.arena_bytes = program.plan().arena_bytes;
    line.least_bytes = program.plan().least_bytes;
    line.kept_bytes = program.kept_bytes();
    line.trace_ms = entry->trace_ms;
    line.plan_ms = entry->plan_ms;
    if (const graph::CudaReplay* replay = program.cuda()) {
      line.launches = replay->launches();
      line.scratch_bytes = replay->scratch_bytes();
      line.capture_ms = replay->capture_ms();
    }
    report.entries.push_back(std::move(line));
  }
  report.eager_calls = state_->eager_calls;
  report.eager_reasons = state_->eager_reasons;
  return report;
}

std::string CompiledStep::explain() const {
  const CompileReport all = report();
  std::string text =
      fmt::format("{}: {} of at most {} entries, {} eager calls\n", state_->options.name,
                  all.entries.size(), state_->options.most_entries, all.eager_calls);
  const std::lock_guard lock(state_->mutex);
  for (std::size_t i = 0; i < all.entries.size(); ++i) {
    const CompiledEntry& e = all.entries[i];
    text += fmt::format(
        "entry {} {}: {}; called {} times\n  {} calls in {} lanes{}\n  memory: arena {} bytes (at "
        "least {}), gradients {}, scratch {}\n",
        i, e.signature, e.reason, e.calls, e.nodes, e.lanes,
        e.launches > 0 ? fmt::format(", {} nodes in the CUDA graph", e.launches) : "",
        e.arena_bytes, e.least_bytes, e.kept_bytes, e.scratch_bytes);
    const Graph& graph = state_->entries[i]->program->graph();
    const std::vector<Frozen> frozen = graph::frozen_values(graph);
    if (frozen.empty()) continue;
    text += "  the same in every replay:\n";
    const std::string lines = graph::to_string(graph, frozen);
    for (std::size_t from = 0; from < lines.size();) {
      const std::size_t end = lines.find('\n', from);
      text += "    " + lines.substr(from, end - from) + "\n";
      from = end + 1;
    }
  }
  for (const std::string& why : all.eager_reasons) text += "eager: " + why + "\n";
  return text;
}

std::string CompiledStep::graph_text(int entry, int format) const {
  const std::lock_guard lock(state_->mutex);
  return graph::to_string(state_->program(entry).graph(), static_cast<graph::Format>(format));
}

void CompiledStep::each_call(int entry, const Visit& visit) const {
  if (!visit) fail("[each_call] expected a function, got none");
  const std::lock_guard lock(state_->mutex);
  for (const graph::Step& step : state_->program(entry).steps())
    visit(step.call, {step.outputs, op_info(step.call.op).n_outputs});
}

void CompiledStep::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->entries.clear();
}

}  // namespace brrr::detail
