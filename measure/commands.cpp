#include "brrr/measure/commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <list>
#include <string_view>
#include <utility>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/compare_report.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/explain.h"
#include "brrr/measure/interrupt.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/model_run.h"
#include "brrr/measure/profile.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/terminal.h"
#include "brrr/measure/trace.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

// A command of a model, with the values of its options.
struct Command {
  using Run = int (*)(const Command&, const ModelRun&);

  const Model* model = nullptr;
  Run run = nullptr;
  CLI::App* app = nullptr;
  // Of all commands:
  CommonOptions common = {};
  StepArguments step = {};
  std::int64_t steps = 20;
  double seconds = 0.5;
  // Of compare:
  bool double_batch = false, quick = false, verbose = false;
  std::string report = {};
  // Of explain:
  bool dot = false, source = false, svg = false;
  int entry = 0;
  // Of trace and profile:
  int record = 3;
  std::string out = {}, svg_file = {};

  bool has(const char* option) const { return app->get_option_no_throw(option) != nullptr; }
};

// What a model's step is made of, and on what it runs.
void add_shared(Command& command, const std::vector<std::string>& further_policies = {}) {
  command.app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_common(command.app, command.common);
  add_step(command.app, command.step, command.model->rounding != nullptr, further_policies);
}

void add_training(Command& command, const char* time_help, const Check& time) {
  add_checked(command.app, "--steps", command.steps, "Training steps", at_least(0));
  add_checked(command.app, "--time", command.seconds, time_help, time);
}

// --- compare ---

constexpr const char* kTimeHelp = "Seconds of timed steps after the training";

void add_compare(Command& command) {
  add_shared(command, {"all"});
  add_training(command, kTimeHelp, number_from(0, 3600));
  if (command.model->doubled) {
    command.app->add_flag("--double-batch", command.double_batch,
                          "Time each mode at twice the batch as well, as a check of its regime");
  }
  command.app->add_flag("--quick", command.quick,
                        "Time the modes alone: try no other change of the step");
  command.app->add_flag("--verbose", command.verbose, "Print all that was measured and predicted");
  add_report(command.app, command.report);
}

std::string program_of(const Command& command) {
  const CLI::App* app = command.app;
  while (app->get_parent()) app = app->get_parent();
  return app->get_name();
}

// Prints the comparison, then fails if losses are not finite or differ.
int run_compare(const Command& command, const ModelRun& run) {
  const ReportFiles files(command.report);
  files.require_writable();
  const Interruptible interruptible;
  ProgressLine progress;
  const auto& variations = command.model->variations;
  Comparison result = compare(run.name, run.make,
                              {.steps = run.steps,
                               .seconds = run.seconds,
                               .seed = run.seed,
                               .remat = run.remat,
                               .all_policies = command.step.remat == "all",
                               .rounding = run.rounding,
                               .doubled = command.model->doubled,
                               .check_doubled = command.double_batch,
                               .variations = variations ? variations() : decltype(variations())(),
                               .tries = !command.quick,
                               .describes = run.describes,
                               .facts = run.facts,
                               .progress = [&](const std::string& what) { progress.show(what); },
                               .stop = [&] { return interruptible.signal() != 0; }});
  progress.clear();
  result.describes = with_device(run, result.device);
  const Machine machine = describe_machine();
  std::optional<Report> report;
  if (files.wanted()) {
    report = compare_report(result, machine, run.command);
    files.write(*report, to_json(result, machine, &*report));
  }
  const std::string more =
      command.verbose
          ? "\n" + details_text(result)
          : fmt::format("more     --verbose, --json, --report F.html; {} explain, trace, profile\n",
                        program_of(command));
  print(command.common.json
            ? to_json(result, machine, report ? &*report : nullptr)
            : to_text(result, prints_colors()) + more + (report ? written_text(files) : ""));
  if (!result.interrupted.empty()) return 128 + interruptible.signal();
  if (const std::string problem = result.problem(); !problem.empty()) fail("{}", problem);
  return 0;
}

// --- explain ---

void add_explain(Command& command) {
  CLI::App* const app = command.app;
  command.step.mode = "graph";
  add_shared(command);
  add_checked(app, "--time", command.seconds,
              "Seconds of timed steps under a policy of rematerialization; 0: none",
              number_from(0, 3600));
  add_checked(app, "--mode", command.step.mode, "How the step is replayed",
              one_of({"graph", "fused"}));
  app->add_flag("--dot", command.dot, "Print the graph in the dot language")->excludes("--json");
  app->add_flag("--source", command.source, "Print the source of generated kernels")
      ->excludes("--json", "--dot");
  app->add_flag("--svg", command.svg, "Draw the memory of the step, before and after --remat")
      ->excludes("--json", "--dot", "--source");
  add_checked(app, "--entry", command.entry,
              "Which of the compiled steps that a step replays --json, --dot and --svg are of",
              whole_number(0, 1'000'000));
}

int run_explain(const Command& command, const ModelRun& run) {
  print(explain(run, {.format = command.common.json ? ExplainFormat::json
                                : command.dot       ? ExplainFormat::dot
                                : command.svg       ? ExplainFormat::svg
                                                    : ExplainFormat::text,
                      .source = command.source,
                      .entry = command.entry}));
  return 0;
}

// --- trace and profile ---

void add_trace(Command& command) {
  add_shared(command);
  add_training(command, kTimeHelp, number_from(0, 3600));
  add_mode(command.app, command.step);
  command.app->add_option("--out", command.out, "Write the trace to a file")
      ->check(validator(file_name()))
      ->required();
  add_checked(command.app, "--record", command.record, "Steps to record, after the training",
              whole_number(1, 1000));
}

int run_trace(const Command& command, const ModelRun& run) {
  const TraceResult result = trace(run, command.record, command.out);
  print(command.common.json ? to_json(result) : to_text(result));
  return 0;
}

void add_profile(Command& command) {
  command.seconds = 3;
  add_shared(command);
  add_training(command, kTimeHelp, number_from(0, 3600));
  add_mode(command.app, command.step);
  command.app->add_option("--svg", command.svg_file, "Draw a flame graph of the samples to a file")
      ->check(validator(file_name()));
}

int run_profile(const Command& command, const ModelRun& run) {
  if (!command.svg_file.empty()) require_writable("svg", command.svg_file);
  const Profile result = profile(run);
  if (!command.svg_file.empty()) write_flame_graph(result, command.svg_file);
  print(command.common.json ? to_json(result) : to_text(result));
  return result.signal != 0 ? 128 + result.signal : 0;
}

// --- all commands ---

struct Kind {
  const char* name;
  const char* help;
  void (*add)(Command&);
  Command::Run run;
};
constexpr Kind kKinds[] = {
    {"compare", "Train in all modes, and compare", add_compare, run_compare},
    {"explain", "Print the traced step, call by call", add_explain, run_explain},
    {"trace", "Record host and device timelines for Perfetto", add_trace, run_trace},
    {"profile", "Sample where the host's time of a step goes", add_profile, run_profile},
};

void require_consistent(const Command& command) {
  const auto refuse = [](const std::string& why) { throw CLI::ValidationError(why); };
  if (command.model->complaint) {
    if (const std::string why = command.model->complaint(); !why.empty()) refuse(why);
  }
  command.step.require_consistent(command.has("--mode"));
  if (command.run == run_profile && command.seconds < 0.1)
    refuse(fmt::format("--time: expected 0.1 seconds or more, got {}", command.seconds));
  if (command.source && command.step.mode != "fused")
    refuse("--source: needs --mode fused, which generates kernels");
  if (command.svg && command.step.remat == "none")
    refuse("--svg: needs --remat min_cut, full or budget=F");
}

// Sets the process's device and precision, in which the model is made.
ModelRun run_of(const Command& command, const std::string& command_line) {
  const Model& model = *command.model;
  const Device device = command.common.chosen_device(command.app->get_name());
  set_default_device(device);
  command.step.set_precision();
  ModelRun run{.name = model.name,
               .describes = model.describes ? model.describes() : text_of(model.options),
               .names_device = model.describes != nullptr,
               .facts = facts_of(model.options),
               .make = model.make,
               .device = device,
               .mode = command.step.chosen_mode(),
               .remat = command.step.chosen_remat(),
               .rounding = command.step.chosen_rounding(),
               .seed = command.common.seed,
               .steps = command.steps,
               .seconds = command.seconds,
               .command = command_line};
  run.facts.emplace_back("tf32", command.step.tf32);
  run.facts.emplace_back("seed", command.common.seed);
  if (model.rounding) *model.rounding = run.rounding;
  return run;
}

// A name that a command line can have.
std::string argument_of(std::string name) {
  std::ranges::replace(name, ' ', '-');
  return name;
}

}  // namespace

struct ModelCommands::State {
  std::vector<Model> models;
  std::list<Command> commands;  // whose addresses CLI11 has
};

ModelCommands::ModelCommands(CLI::App& app, std::vector<Model> models)
    : state_(std::make_unique<State>()) {
  state_->models = std::move(models);
  for (const Kind& kind : kKinds) {
    CLI::App* const parent = app.add_subcommand(kind.name, kind.help);
    const bool named = state_->models.size() > 1;
    if (named) parent->require_subcommand(1);
    for (const Model& model : state_->models) {
      if (!model.make) fail("[main] expected {} to have a function that makes a step", model.name);
      Command& command = state_->commands.emplace_back(Command{.model = &model, .run = kind.run});
      command.app = named ? parent->add_subcommand(argument_of(model.name), model.help) : parent;
      kind.add(command);
      add_options(command.app, model.options);
    }
  }
}

ModelCommands::~ModelCommands() = default;

void ModelCommands::require_consistent() const {
  for (const Command& command : state_->commands) {
    if (command.app->parsed()) measure::require_consistent(command);
  }
}

std::optional<int> ModelCommands::run(const std::string& command_line) const {
  for (const Command& command : state_->commands) {
    if (command.app->parsed()) return command.run(command, run_of(command, command_line));
  }
  return std::nullopt;
}

int main(int argc, const char* const* argv, std::vector<Model> models) {
  const std::string path = argc > 0 ? argv[0] : "";
  const std::string program = path.substr(path.rfind('/') + 1);
  const char* const kCompare = "compare";
  std::vector<const char*> arguments(argv, argv + argc);
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc < 2 || (first.starts_with('-') && first != "--help" && first != "-h"))
    arguments.insert(arguments.begin() + std::min(argc, 1), kCompare);
  try {
    if (models.empty()) fail("[main] expected at least one model, got none");
    CLI::App app("What bounds a training step, and what makes it faster", program);
    app.require_subcommand(1);
    const ModelCommands commands(app, std::move(models));
    return run_command_line(
        app, static_cast<int>(arguments.size()), arguments.data(),
        [&] { commands.require_consistent(); },
        [&](const std::string& line) { return commands.run(line).value_or(0); });
  } catch (const std::exception& problem) {
    const bool json = std::ranges::any_of(
        arguments, [](const char* each) { return std::string_view(each) == "--json"; });
    return failed_command_line(program, problem, json);
  }
}

}  // namespace brrr::measure
