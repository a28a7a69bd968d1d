// The program brrr: reads arguments, runs one subcommand, prints.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "brrr/measure/bench.h"
#include "brrr/measure/machine.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/runtime.h"
#include "cli/bench_steps.h"
#include "cli/compare.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/terminal.h"
#include "cli/text_output.h"
#include "cli/train.h"
#include "cli/train_lines.h"
#include "cli/training.h"
#include "cli/validators.h"

namespace brrr::cli {
namespace {

struct Common {
  bool json = false;
  std::string device;  // empty: the best one present
  std::uint64_t seed = 0;
  bool quick = false;

  Device chosen() const {
    if (device.empty()) return cuda_is_available() ? cuda() : cpu;
    const Device asked = Device::parse(device);
    require_device(asked, "brrr");
    return asked;
  }
};

void add_common(CLI::App* command, Common& common) {
  command->add_flag("--json", common.json, "Print one JSON document and nothing else");
  command->add_option("--device", common.device, "cpu or cuda; the best one present by default")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--seed", common.seed, "Seed of the random inputs")
      ->check(seed())
      ->capture_default_str();
}

struct Bench {
  const char* name;
  const char* help;
  measure::Results (*run)(const measure::BenchOptions&);
};
constexpr Bench kBenches[] = {
    {"overhead", "What one small op costs", measure::bench_overhead},
    {"pointwise", "Large pointwise ops against the memory's bandwidth", measure::bench_pointwise},
    {"matmul", "Matrix products against the bare library", measure::bench_matmul},
    {"reduce", "Reductions against the memory's bandwidth", measure::bench_reduce},
    {"steps", "Training steps called and replayed, and what replays cost", bench_steps},
};

void run_info(const Common& common) {
  if (!common.device.empty()) common.chosen();  // one that is not there is an error
  const measure::Machine machine = measure::describe_machine();
  print(common.json ? to_json(machine) : to_text(machine));
}

void run_bench(const Bench& bench, const Common& common) {
  ProgressLine progress;
  measure::BenchOptions options;
  options.device = common.chosen();
  options.seed = common.seed;
  options.quick = common.quick;
  options.progress = [&](const std::string& name) { progress.show(name); };
  const measure::Results results = bench.run(options);
  progress.clear();
  const measure::Machine machine = measure::describe_machine();
  print(common.json ? to_json(results, machine) : to_text(results, machine));
}

// --- train ---

struct TrainArguments {
  Common common;
  TrainOptions options;
  std::string dtype = "f32", matmul = "measured", mode = "eager", activation = "gelu_tanh";
  bool dot = false;  // of explain
};

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const nn::Activation each : nn::kActivations) names.emplace_back(nn::name_of(each));
  return names;
}

// What train and compare take: the model, its shape, how it is trained.
CLI::App* add_training(CLI::App* to, const char* model, TrainArguments& a) {
  const bool transformer = std::string_view(model) == "transformer";
  CLI::App* command = to->add_subcommand(
      model, transformer ? "Causal pre-norm blocks" : "Square layers with an activation between");
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  TrainOptions& o = a.options;
  ToyOptions& toy = o.toy;
  toy.model = model;
  toy.batch = transformer ? 8 : 128;
  toy.width = transformer ? 128 : 256;
  toy.layers = transformer ? 2 : 8;
  const auto number = [&](const char* name, auto& value, const char* what, const auto& check) {
    command->add_option(name, value, what)->check(check)->capture_default_str();
  };
  const CLI::Validator sizes = whole_number(1, 1 << 24);
  number("--batch", toy.batch, "Rows, or sequences", sizes);
  number("--width", toy.width, "Features", sizes);
  number("--layers", toy.layers, "Layers, or blocks", whole_number(1, 100'000));
  if (!transformer) {
    number("--activation", a.activation, "Between layers; gelu_tanh approximates gelu",
           one_of(activation_names()));
    command->add_flag("--residual", toy.residual,
                      "Blocks x + mlp(norm(x)), four times as wide inside, in place of layers");
  } else {
    toy.heads = 4;
    toy.seq = 64;
    number("--heads", toy.heads, "Attention heads; they divide the width", sizes);
    number("--seq", toy.seq, "Length of a sequence", sizes);
  }
  number("--dtype", a.dtype, "Of parameters and activations", one_of({"f32", "bf16"}));
  command->add_flag("--tf32", o.tf32, "Round the factors of f32 matrix products to TF32 (on CUDA)");
  number("--matmul", a.matmul, "Algorithm of matrix products (on CUDA)",
         one_of({"measured", "first"}));
  number("--remat", o.remat, "full: each layer is computed again in the backward pass",
         one_of({"none", "full"}, {"mincut"}));
  number("--optimizer", o.optimizer, "Optimizer", one_of({"adam", "adamw", "sgd", "lion"}));
  number("--lr", o.rate, "Learning rate", number_above(0));
  number("--warmup", o.warmup, "Steps in which the rate rises from 0", at_least(0));
  number("--clip", o.clip, "Limit of the gradients' common norm; 0: none",
         number_from(0, std::numeric_limits<double>::infinity()));
  number("--steps", o.steps, "Steps to train", at_least(0));
  number("--time", o.time_seconds, "Seconds of further steps that the time is taken from",
         number_from(0, 3600));
  add_common(command, a.common);
  return command;
}

CLI::App* add_train(CLI::App* train, const char* model, TrainArguments& a) {
  CLI::App* command = add_training(train, model, a);
  TrainOptions& o = a.options;
  command
      ->add_option(
          "--mode", a.mode,
          "graph: the step is traced once and replayed; fused: in kernels of several calls each")
      ->check(one_of({"eager", "graph", "fused"}))
      ->capture_default_str();
  command->add_flag("--check-finite", o.check_finite,
                    "Stop at the first number that is not finite, and say where; reads each step");
  command
      ->add_option("--save", o.save,
                   "File to write at the end, or when interrupted: parameters, optimizer, step")
      ->check(file_name());
  command->add_option("--load", o.load, "File of --save to go on from, to the same bits")
      ->check(file_name());
  return command;
}

// The options, with what other arguments say.
TrainOptions& settle(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = a.options;
  o.toy.device = a.common.chosen();
  o.toy.dtype = a.dtype == "bf16" ? bf16 : f32;
  o.toy.remat = o.remat == "full";
  o.toy.activation = *std::ranges::find(nn::kActivations, a.activation, &nn::name_of);
  o.measured_matmul = a.matmul == "measured";
  o.mode = a.mode == "fused" ? Mode::fused : a.mode == "graph" ? Mode::graph : Mode::eager;
  o.seed = a.common.seed;
  o.seed_is_given = command.count("--seed") > 0;
  return o;
}

// A training that is interrupted prints what there is, and gives the status that a shell gives to
// a program that the signal ended.
int run_train(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = settle(command, a);
  TrainLines lines(o, !a.common.json);
  const Interruptible interruptible;
  o.progress = [&](const TrainProgress& at) { lines.show(at); };
  o.stop = [&] { return interruptible.signal() != 0; };
  const TrainResult result = train(o);
  lines.finish(result);
  if (a.common.json) print(to_json(result));
  return result.interrupted ? 128 + interruptible.signal() : 0;
}

// The step as it was traced: what was decided, and the calls.
int run_explain(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = settle(command, a);
  if (o.mode == Mode::eager) o.mode = Mode::graph;
  Training training(o);
  for (int i = 0; i < 2; ++i) training.step();  // the second one is captured
  const auto& step = training.compiled_step();
  print(a.common.json ? step.graph_json()
        : a.dot       ? step.graph_dot()
                      : step.explain() + "\n" + step.graph_text());
  return 0;
}

// Fails when the modes disagree or the losses are not finite, having printed what there is.
int run_compare(const CLI::App& command, TrainArguments& a) {
  const TrainOptions& o = settle(command, a);
  ProgressLine progress;
  const Comparison result = compare(o, [&](const std::string& what) { progress.show(what); });
  progress.clear();
  print(a.common.json ? to_json(result) : to_text(result));
  const auto losses_at = [&](std::size_t step) {
    const auto loss = [&](int side) {
      return without_sign_of_nan(result.sides[side].losses[step]);
    };
    return fmt::format("{} and {} at step {}", loss(0), loss(1), step);
  };
  if (const auto step = result.divergence)
    fail(fmt::format("[compare] expected finite losses, got {}: the training diverged",
                     losses_at(*step)));
  if (const auto step = result.disagreement)
    fail("[compare] expected the same losses in both modes, got " + losses_at(*step));
  return 0;
}

void print_problem(std::string text) noexcept {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "brrr: %s\n", text.c_str());
}

// What stands where a subcommand should says more than that a subcommand is missing.
std::string told_by(const CLI::App& app, const CLI::ParseError& problem) {
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return problem.what();
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::App* each : last->get_subcommands(nullptr)) names.push_back(each->get_name());
  if (names.empty() || unknown.front().starts_with('-'))
    return "unexpected argument: " + unknown.front();
  return expected_one_of(names, unknown.front());
}

int run(int argc, char** argv) {
  CLI::App app(BRRR_DESCRIPTION, "brrr");
  app.set_version_flag("--version", "brrr " BRRR_VERSION);
  Common common;
  app.require_subcommand(1);
  CLI::App* info = app.add_subcommand("info", "The build, the devices, the libraries");
  add_common(info, common);
  CLI::App* bench = app.add_subcommand("bench", "Micro-benchmarks, each beside its measured limit");
  bench->require_subcommand(1);
  for (const Bench& one : kBenches) {
    CLI::App* command = bench->add_subcommand(one.name, one.help);
    add_common(command, common);
    command->add_flag("--quick", common.quick, "Small sizes and few samples: shows that it runs");
  }
  CLI::App* train = app.add_subcommand("train", "Train a toy model and take its step's time");
  train->require_subcommand(1);
  CLI::App* compare = app.add_subcommand("compare", "Train in every mode, side by side");
  compare->require_subcommand(1);
  CLI::App* explain = app.add_subcommand("explain", "The step that a replay makes, call by call");
  explain->require_subcommand(1);
  struct Command {
    CLI::App* app;
    int (*run)(const CLI::App&, TrainArguments&);
    TrainArguments arguments = {};
  };
  std::list<Command> commands;
  for (const char* model : {"mlp", "transformer"}) {
    Command& one = commands.emplace_back(Command{nullptr, run_train});
    one.app = add_train(train, model, one.arguments);
    Command& all = commands.emplace_back(Command{nullptr, run_compare});
    all.app = add_training(compare, model, all.arguments);
    Command& told = commands.emplace_back(Command{nullptr, run_explain});
    told.app = add_training(explain, model, told.arguments);
    told.app->add_option("--mode", told.arguments.mode, "How the step is replayed: graph, fused")
        ->check(one_of({"graph", "fused"}))
        ->default_str("graph");
    told.app->add_flag("--dot", told.arguments.dot, "The calls as a graph for dot")
        ->excludes("--json");
  }

  try {
    app.parse(argc, argv);
    for (const Command& command : commands) {
      const ToyOptions& toy = command.arguments.options.toy;
      if (toy.heads == 0 || toy.width % toy.heads == 0) continue;
      throw CLI::ValidationError(
          fmt::format("--heads: {} do not divide a width of {}", toy.heads, toy.width));
    }
  } catch (const CLI::Success& asked) {  // --help
    std::ostringstream text;
    const int status = app.exit(asked, text, text);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& problem) {
    print_problem(fmt::format("{}; see brrr --help", told_by(app, problem)));
    return 2;
  }
  if (info->parsed()) run_info(common);
  for (const Bench& one : kBenches) {
    if (bench->got_subcommand(one.name)) run_bench(one, common);
  }
  for (Command& command : commands) {
    if (command.app->parsed()) return command.run(*command.app, command.arguments);
  }
  return 0;
}

}  // namespace
}  // namespace brrr::cli

int main(int argc, char** argv) {
  try {
    return brrr::cli::run(argc, argv);
  } catch (const std::exception& problem) {
    brrr::cli::print_problem(problem.what());
    return 1;
  }
}
