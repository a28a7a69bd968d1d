#include "tests/harness/compile_random.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>

#include "brrr/autograd/tape_node.h"
#include "brrr/graph/passes.h"
#include "brrr/graph/program.h"
#include "brrr/graph/rematerialize.h"
#include "brrr/graph/trace.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_plan.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/random_programs.h"
#include "tests/harness/rounding_bounds.h"

namespace brrr::test {
namespace {

constexpr int kCalls = 3;

// What a seed says.
struct Choices {
  Device device;
  Mode mode = Mode::graph;
  bool rematerialized = false;
  DType dtype = f32;
  std::optional<DType> rounded_to;  // the inputs' values, if not to dtype
  std::set<std::size_t> captured;   // the inputs that are; the others are arguments
  std::vector<Layout> layouts;      // of the inputs
  bool gradients = false, zero_first = false, update = false, noise = false;
  Program program;  // without what eager refuses
};

std::uint64_t mixed(std::uint64_t seed, std::size_t i) { return Random(seed * 977 + i).next(); }

// A run of the program on new tensors.
class Run {
 public:
  Run(const Choices& choices, const Program& program) : choices_(choices), program_(program) {
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      if (!choices_.captured.contains(i)) continue;
      captured_.push_back(input(i, 0));
      if (choices_.gradients) requires_grad_(captured_.back());
    }
  }

  // The step.
  Tensors operator()(const Tensors& arguments) {
    Tensors inputs;
    std::size_t of_arguments = 0, of_captured = 0;
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      inputs.push_back(choices_.captured.contains(i) ? captured_[of_captured++]
                                                     : arguments[of_arguments++]);
    }
    if (choices_.gradients && choices_.zero_first) {
      for (const Tensor& leaf : captured_) zero_grad(leaf);
    }
    steps_done = 0;
    const Tensors values = execute(program_, inputs, [&](std::size_t i, const Tensor& value) {
      ++steps_done;
      if (made) made->push_back(value);
      const bool fresh = program_.steps[i].op.back() != '_';
      if (!choices_.noise || !fresh || !is_floating(value.dtype())) return value;
      switch (mixed(program_.seed, i) % 9) {
        case 0: return dropout(value, 0.25);
        case 1: return value + rand_like(value);
        case 2: next_random_step(choices_.device); return value * randn_like(value);
        default: return value;
      }
    });
    if (choices_.gradients) differentiate(values);
    Tensors results;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i + 1 == values.size() || mixed(program_.seed, 1000 + i) % 5 == 0)
        results.push_back(values[i]);
    }
    return results;
  }

  Tensors arguments(int call) const {
    Tensors all;
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      if (!choices_.captured.contains(i)) all.push_back(input(i, call));
    }
    return all;
  }
  const Tensors& captured() const { return captured_; }
  // Those and their gradients.
  Tensors seen() const {
    Tensors all = captured_;
    if (choices_.gradients) {
      for (const Tensor& leaf : captured_) all.push_back(grad(leaf));
    }
    return all;
  }

  std::size_t steps_done = 0;
  Tensors* made = nullptr;  // what the steps gave goes there too

 private:
  Tensor input(std::size_t i, int call) const {
    const Dims& shape = program_.input_shapes[i];
    Random random(program_.seed * 64 + i * 8 + static_cast<std::uint64_t>(call));
    const bool whole = !is_floating(choices_.dtype);
    Values values(static_cast<std::size_t>(numel_of(shape)));
    for (double& v : values) {
      v = whole ? static_cast<double>(random.below(7) - 3)
                : round_to(choices_.rounded_to.value_or(choices_.dtype), random.uniform(-2, 2));
    }
    return make_sample(values, shape, choices_.dtype, choices_.layouts[i], choices_.device).tensor;
  }

  void differentiate(const Tensors& values) {
    Tensor loss;
    for (std::size_t i = captured_.size(); i < values.size(); ++i) {
      if (!requires_grad(values[i]) || mixed(program_.seed, 2000 + i) % 3) continue;
      const Tensor part = sum(values[i] * 0.5);
      loss = loss.defined() ? loss + part : part;
    }
    if (!loss.defined()) return;
    backward(loss);
    if (!choices_.update) return;
    const NoGrad constant;
    for (Tensor& leaf : captured_) {
      if (grad(leaf).defined()) sub_(leaf, grad(leaf) * 0.01);
    }
  }

  const Choices& choices_;
  const Program& program_;
  Tensors captured_;
};

// Drops what eager refuses, which is mostly writes to what a gradient needs.
Program accepted(Choices& choices, Program program) {
  for (;;) {
    // A value that a node keeps, overwritten by what comes of that node: backward refuses it, and
    // nothing else would free it.
    struct Made : Tensors {
      ~Made() {
        for (const Tensor& x : *this) autograd::forget_history(x);
      }
    } made;
    Run run(choices, program);
    run.made = &made;
    try {
      for (int call = 0; call < 2; ++call) run(run.arguments(call));
      return program;
    } catch (const Error&) {
      std::size_t bad = run.steps_done;
      if (bad == program.steps.size()) {
        // The backward found a value overwritten: the last write goes.
        while (bad > 0 && program.steps[bad - 1].op.back() != '_') --bad;
        if (bad == 0) {
          choices.gradients = false;
          continue;
        }
        --bad;
      }
      program = without_step(program, bad);
    }
  }
}

constexpr Numbers kNumbers[] = {Numbers::exact_f32, Numbers::smooth_f64, Numbers::exact_i64,
                                Numbers::smooth_f64};
constexpr DType kFloats[] = {f32, f64, f32, bf16, f16};

Choices choices_of(std::uint64_t seed, Device device) {
  const Numbers numbers = kNumbers[seed % 4];
  Random random(seed * 31 + 7);
  const Program drawn = draw_program(seed, numbers, 5 + static_cast<int>(seed % 36));
  Choices choices;
  choices.device = device;
  const bool whole = numbers == Numbers::exact_i64;
  choices.dtype = whole ? i64 : kFloats[random.below(5)];
  for (std::size_t i = 0; i < drawn.inputs.size(); ++i) {
    if (random.below(2)) choices.captured.insert(i);
    const Layout layout = kLayouts[random.below(4)];  // expanded ones may not be written
    choices.layouts.push_back(random.below(3) == 0 && applies(layout, drawn.input_shapes[i])
                                  ? layout
                                  : Layout::contiguous);
  }
  choices.gradients = !whole && random.below(3) != 0;
  choices.zero_first = random.below(2);
  choices.update = random.below(2);
  choices.noise = !whole && random.below(2);
  choices.program = accepted(choices, drawn);
  return choices;
}

std::string problem_with_compile(const Choices& choices, const Program& program) {
  return difference_from_eager(
      [&] {
        const auto run = std::make_shared<Run>(choices, program);
        const auto given = std::make_shared<Tensors>();
        World world;
        world.step = [run](const Tensors& in) { return (*run)(in); };
        world.arguments = [=](int call) { return *given = run->arguments(call); };
        world.seen = [=] {
          Tensors all = run->seen();
          all.insert(all.end(), given->begin(), given->end());
          return all;
        };
        return world;
      },
      kCalls, choices.mode,
      !choices.rematerialized ? Remat::none()
      : program.seed % 2 == 0 ? Remat::full()
                              : Remat::min_cut());
}

// With values of the forward pass computed again, drawn among those that can be, in segments that
// are drawn as well.
graph::Graph rematerialized(const graph::Graph& graph, std::uint64_t seed) {
  const graph::Partition partition(graph, false, "random");
  std::vector<bool> again(graph.nodes.size());
  for (std::size_t i = 0; i < again.size(); ++i) {
    const int call = static_cast<int>(i);
    again[i] = partition.is_forward(call) && !partition.obstacle(call) && mixed(seed, i) % 4 != 0;
  }
  graph::Graph result =
      recompute_calls(graph, partition, again, partition.segments(1 + static_cast<int>(seed % 4)))
          .graph;
  verify(result, "recompute_calls");
  if (merge_equal(result) != 0) fail("merge_equal undid a recomputation");
  if (remove_dead(result) != 0) fail("a copy is left that nobody reads");
  return result;
}

// One call, traced, with all passes, by each kind of plan.
std::string problem_with_plans(const Choices& choices, const Program& program) {
  for (const bool in_arena : {false, true}) {
    for (const bool lanes : {true, false}) {
      const graph::PlanOptions options{in_arena, in_arena, lanes};
      Run eager(choices, program), planned(choices, program);
      manual_seed(program.seed);
      const Tensors eager_arguments = eager.arguments(1);
      Tensors expected = eager(eager_arguments);
      const std::string want_next = bits_of(rand({2}));
      manual_seed(program.seed);

      const Tensors arguments = planned.arguments(1);
      graph::Graph graph = [&] {
        graph::Trace trace("random", arguments);
        return trace.finish(planned(trace.inputs()));
      }();
      verify(graph, "trace");
      merge_equal(graph);
      verify(graph, "merge_equal");
      if (lanes) simplify(graph);
      verify(graph, "simplify");
      remove_dead(graph);
      verify(graph, "remove_dead");
      hoist_constants(graph);
      verify(graph, "hoist_constants");
      if (choices.rematerialized) graph = rematerialized(graph, program.seed);
      const graph::Plan plan = make_plan(graph, options);
      if (std::string problem = problem_of_plan(graph, options, plan); !problem.empty())
        return problem;
      for (const graph::GradientSlot& slot : graph.gradients) {
        for (std::size_t i = 0; i < planned.captured().size(); ++i) {
          if (graph.owns_gradient(slot) &&
              TensorImpl::of(planned.captured()[i]) == TensorImpl::of(slot.leaf))
            expected.push_back(grad(eager.captured()[i]));
        }
      }
      Random random(program.seed);
      const Tensors got = run_planned(graph, options, plan, arguments, random);
      if (bits_of(got) != bits_of(expected)) return "results of a planned order";
      if (bits_of(arguments) != bits_of(eager_arguments)) return "arguments of a planned order";
      if (bits_of(planned.captured()) != bits_of(eager.captured()))
        return "captured tensors of a planned order";
      if (bits_of(rand({2})) != want_next) return "draws after a planned order";
    }
  }
  return "";
}

// One fused call against one in f64, of types for which there are bounds.
std::string problem_with_bounds(const Choices& choices, const Program& program) {
  const DType dtype = choices.dtype;
  if (choices.mode != Mode::fused || !is_floating(dtype) || dtype == f64) return "";
  Choices in_f64 = choices;
  in_f64.device = cpu;
  in_f64.dtype = f64;
  in_f64.rounded_to = dtype;
  const auto seen_after = [](Run& run, const Tensors& arguments, auto& step) {
    manual_seed(20);
    Tensors all = step(arguments);
    const Tensors seen = run.seen();
    all.insert(all.end(), seen.begin(), seen.end());
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  };
  Run fused(choices, program), wide(in_f64, program);
  auto step = compile(
      [&](const Tensors& in) { return fused(in); },
      {.mode = Mode::fused, .fallback = OnFallback::refuse, .frozen_rate = OnFrozenRate::ignore});
  const Tensors got = seen_after(fused, fused.arguments(0), step);
  return beyond_bounds(
      got, with_bounds([&] { return seen_after(wide, wide.arguments(0), wide); }, {dtype}));
}

std::string problem_of(const Choices& choices, const Program& program) {
  try {
    std::string problem = problem_with_compile(choices, program);
    if (problem.empty()) problem = problem_with_bounds(choices, program);
    return problem.empty() && choices.device.is_cpu() && choices.mode == Mode::graph
               ? problem_with_plans(choices, program)
               : problem;
  } catch (const std::exception& error) {
    return std::string("threw ") + error.what();
  }
}

std::string text_of(const Choices& choices, const Program& program) {
  std::string text = program.text() + std::string(name_of(choices.dtype));
  for (const std::size_t i : choices.captured) text += ", v" + std::to_string(i) + " captured";
  for (std::size_t i = 0; i < choices.layouts.size(); ++i) {
    if (choices.layouts[i] != Layout::contiguous)
      text += ", v" + std::to_string(i) + " " + name_of(choices.layouts[i]);
  }
  if (choices.gradients) text += ", gradients";
  if (choices.zero_first) text += ", zeroed first";
  if (choices.update) text += ", update";
  if (choices.noise) text += ", noise";
  return text + "\n";
}

}  // namespace

RandomOutcome run_random_program(std::uint64_t seed, Device device, bool with_text, Mode mode,
                                 bool rematerialized) {
  Choices choices = choices_of(seed, device);
  choices.mode = mode;
  choices.rematerialized = rematerialized;
  const Program& program = choices.program;
  RandomOutcome outcome;
  outcome.steps = static_cast<long>(program.steps.size());
  outcome.gradients = choices.gradients && !choices.captured.empty();
  outcome.writes =
      std::ranges::any_of(program.steps, [](const auto& s) { return s.op.back() == '_'; });
  if (with_text) outcome.text = text_of(choices, program);
  outcome.problem = problem_of(choices, program);
  if (outcome.problem.empty()) return outcome;
  const Program small =
      shrink(program, [&](const Program& p) { return !problem_of(choices, p).empty(); });
  outcome.text = text_of(choices, small) + problem_of(choices, small);
  return outcome;
}

void check_random_programs(Device device, std::uint64_t usual, Mode mode, bool rematerialized) {
  const char* seed_asked = std::getenv("BRRR_SEED");
  const char* count_asked = std::getenv("BRRR_PROGRAMS");
  const std::uint64_t first = seed_asked ? std::strtoull(seed_asked, nullptr, 10) : 1;
  const std::uint64_t count = count_asked  ? std::strtoull(count_asked, nullptr, 10)
                              : seed_asked ? 1
                                           : usual;
  const bool printed = seed_asked && count == 1;
  long steps = 0, failed = 0, refused = 0, with_gradients = 0, with_writes = 0;
  for (std::uint64_t seed = first; seed < first + count && failed < 5; ++seed) {
    if (!seed_asked && !in_this_part(std::to_string(seed))) continue;
    const RandomOutcome outcome = run_random_program(seed, device, printed, mode, rematerialized);
    steps += outcome.steps;
    with_gradients += outcome.gradients;
    with_writes += outcome.writes;
    if (printed) std::printf("%s", outcome.text.c_str());
    if (outcome.problem.empty()) continue;
    // What the interpreter of CPU kernels says of bodies that it cannot run.
    if (outcome.problem.find("no loop without a compiler") != std::string::npos) {
      ++refused;
      continue;
    }
    ++failed;
    INFO("replay with BRRR_SEED=" << seed << "\n" << outcome.text);
    CHECK(outcome.problem == "");
  }
  std::printf("random compiled programs: %llu, %ld steps, %ld with gradients, %ld with writes\n",
              static_cast<unsigned long long>(count), steps, with_gradients, with_writes);
  CHECK(refused * 2 < static_cast<long>(count));
  if (count < 1000) return;
  CHECK(with_gradients > static_cast<long>(count) / 4);
  CHECK(with_writes > static_cast<long>(count) / 4);
}

}  // namespace brrr::test
