// The program brrr: parses arguments, runs one subcommand and prints its result.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/calibrate.h"
#include "brrr/measure/compare_report.h"
#include "brrr/measure/compare_text.h"
#include "brrr/measure/lab.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/report_file.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"
#include "cli/bench_steps.h"
#include "cli/compare.h"
#include "cli/explain.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/lab_run.h"
#include "cli/parse_error.h"
#include "cli/profile.h"
#include "cli/sweep.h"
#include "cli/terminal.h"
#include "cli/text_output.h"
#include "cli/trace.h"
#include "cli/train.h"
#include "cli/train_lines.h"
#include "cli/training.h"
#include "cli/validators.h"

namespace brrr::cli {
namespace {

struct Common {
  bool json = false;
  std::string device;  // empty: the GPU if there is one
  std::uint64_t seed = 0;
  bool quick = false;
  std::string report;   // the page of --report; empty: none
  std::string command;  // the command line

  Device chosen_device() const {
    if (device.empty()) return cuda_is_available() ? cuda() : cpu;
    const Device parsed = Device::parse(device);
    require_device(parsed, name().c_str());
    return parsed;
  }
  // The command, without its arguments: "train".
  std::string name() const {
    const std::size_t start = std::min(command.find(' ') + 1, command.size());
    return command.substr(start, command.find(' ', start) - start);
  }
};

void add_common(CLI::App* command, Common& common) {
  command->add_flag("--json", common.json, "Print one JSON document and nothing else");
  command->add_option("--device", common.device, "cpu or cuda (default: cuda if available)")
      ->check(one_of({"cpu", "cuda"}));
  command->add_option("--seed", common.seed, "Random seed")->check(seed())->capture_default_str();
}

void add_report(CLI::App* command, Common& common) {
  command
      ->add_option("--report", common.report,
                   "Write a page with tables and plots to F.html, and its numbers to F.json")
      ->check(html_file_name());
}

struct Bench {
  const char* name;
  const char* help;
  measure::Results (*run)(const measure::BenchOptions&);
};
constexpr Bench kBenches[] = {
    {"overhead", "Overhead of small ops", measure::bench_overhead},
    {"pointwise", "Pointwise ops, relative to memory bandwidth", measure::bench_pointwise},
    {"matmul", "Matrix products, relative to direct BLAS calls", measure::bench_matmul},
    {"reduce", "Reductions, relative to memory bandwidth", measure::bench_reduce},
    {"fused", "Fused kernels, relative to memory bandwidth", measure::bench_fused},
    {"remat", "Policies of rematerialization, relative to keeping every value",
     measure::bench_remat},
    {"steps", "Training steps, eager, replayed and fused; overhead of replays", bench_steps},
};

void run_info(const Common& common) {
  if (!common.device.empty()) common.chosen_device();  // throws if it is not available
  const measure::Machine machine = measure::describe_machine();
  print(common.json ? to_json(machine) : to_text(machine));
}

measure::BenchOptions bench_options(const Common& common, ProgressLine& progress) {
  measure::BenchOptions options;
  options.device = common.chosen_device();
  options.seed = common.seed;
  options.quick = common.quick;
  options.progress = [&progress](const std::string& name) { progress.show(name); };
  return options;
}

void run_bench(const Bench& bench, const Common& common) {
  ProgressLine progress;
  const measure::BenchOptions options = bench_options(common, progress);
  const measure::Results results = bench.run(options);
  progress.clear();
  const measure::Machine machine = measure::describe_machine();
  print(common.json ? to_json(results, machine) : to_text(results, machine));
}

// Prints the measured ceilings, then saves them, or fails if something disturbed the measurement.
void run_calibrate(const Common& common) {
  ProgressLine progress;
  const measure::BenchOptions options = bench_options(common, progress);
  if (!common.quick) graph::require_ceilings_path(options.device);
  const measure::Calibration result = measure::calibrate(options);
  progress.clear();
  const std::vector<std::string> disturbances = measure::disturbances(result);
  std::string file;
  if (disturbances.empty()) {
    graph::write_ceilings(result.ceilings, options.device);
    file = graph::ceilings_path(options.device);
  }
  print(common.json ? to_json(result, file, measure::describe_machine()) : to_text(result, file));
  if (file.empty() && !common.quick) {
    fail("[calibrate] expected readings to keep, got disturbed ones: {}; nothing was kept",
         fmt::join(disturbances, "; "));
  }
}

struct LabArguments {
  Common common;
  double link = measure::LabOptions().link * 1e-9;
  std::string svg_file;
};

// --- train, compare, explain ---

struct TrainArguments {
  Common common;
  TrainOptions options;
  std::string dtype = "f32", matmul = "measured", mode = "eager", activation = "gelu_tanh",
              remat = "none", rounding = "eager";
  bool dot = false, source = false, svg = false;  // explain only
  CompareArguments further;                       // compare only
  int record = 3;                                 // trace only
  std::string out;
  std::string svg_file;  // profile only
};

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const nn::Activation each : nn::kActivations) names.emplace_back(nn::name_of(each));
  return names;
}

// The options that train, compare and explain share: the model, its sizes, the training.
CLI::App* add_training(CLI::App* parent, const char* model, TrainArguments& a) {
  const bool transformer = std::string_view(model) == "transformer";
  CLI::App* command =
      parent->add_subcommand(model, transformer ? "Causal pre-norm transformer blocks"
                                                : "Square linear layers with an activation");
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
  number("--batch", toy.batch, "Batch size", sizes);
  number("--width", toy.width, "Number of features", sizes);
  number("--layers", toy.layers, "Number of layers or blocks", whole_number(1, 100'000));
  if (!transformer) {
    number("--activation", a.activation, "Activation between layers; gelu_tanh approximates gelu",
           one_of(activation_names()));
    command->add_flag("--residual", toy.residual,
                      "Residual blocks x + mlp(norm(x)), with four times the width inside");
  } else {
    toy.heads = 4;
    toy.seq = 64;
    number("--heads", toy.heads, "Attention heads; must divide the width", sizes);
    number("--seq", toy.seq, "Sequence length", sizes);
  }
  number("--dtype", a.dtype, "Type of parameters and activations", one_of({"f32", "bf16"}));
  command->add_flag("--tf32", o.tf32, "Use TF32 for f32 matrix products on CUDA");
  number("--matmul", a.matmul, "cuBLASLt algorithm: the fastest measured, or the first offered",
         one_of({"measured", "first"}));
  const bool compares = parent->get_name() == "compare";
  number("--remat", a.remat,
         "What the backward pass computes again: nothing; what makes the step fastest; all but the "
         "inputs of segments; as little as keeps planned memory below a fraction",
         remat_policy(compares ? std::vector<std::string>{"all"} : std::vector<std::string>{}));
  number("--rounding", a.rounding,
         "How fused kernels round: as eager calls do, or as few times as it goes",
         one_of({"eager", "fast"}));
  number("--optimizer", o.optimizer, "Optimizer", one_of({"adam", "adamw", "sgd", "lion"}));
  number("--lr", o.rate, "Learning rate", number_above(0));
  number("--warmup", o.warmup, "Steps of linear warmup of the rate from 0", at_least(0));
  number("--clip", o.clip, "Maximum global norm of the gradients; 0: no clipping",
         number_from(0, std::numeric_limits<double>::infinity()));
  number("--steps", o.steps, "Training steps", at_least(0));
  const bool may_skip = parent->get_name() == "train" || parent->get_name() == "explain";
  number("--time", o.time_seconds,
         may_skip ? "Seconds of timed steps after the training; 0: none"
                  : "Seconds of timed steps after the training",
         number_from(0, 3600));
  add_common(command, a.common);
  return command;
}

void add_mode(CLI::App* command, TrainArguments& a) {
  command
      ->add_option(
          "--mode", a.mode,
          "graph: trace the step once and replay it; fused: replay kernels of several calls each")
      ->check(one_of({"eager", "graph", "fused"}))
      ->capture_default_str();
}

CLI::App* add_profile(CLI::App* profile, const char* model, TrainArguments& a) {
  a.options.time_seconds = 3;
  CLI::App* command = add_training(profile, model, a);
  add_mode(command, a);
  command->add_option("--svg", a.svg_file, "Draw a flame graph of the samples to a file")
      ->check(file_name());
  return command;
}

CLI::App* add_train(CLI::App* train, const char* model, TrainArguments& a) {
  CLI::App* command = add_training(train, model, a);
  TrainOptions& o = a.options;
  add_mode(command, a);
  command->add_flag("--check-finite", o.check_finite,
                    "Stop at the first value that is not finite and name the parameter; each step "
                    "waits for the device");
  command
      ->add_option(
          "--save", o.save,
          "Write parameters, optimizer state and step to a file at the end or on interrupt")
      ->check(file_name());
  command->add_option("--load", o.load, "Resume from a file of --save, with the same bits")
      ->check(file_name());
  return command;
}

CLI::App* add_compare(CLI::App* compare, const char* model, TrainArguments& a) {
  CLI::App* command = add_training(compare, model, a);
  command->add_flag("--double-batch", a.further.double_batch,
                    "Time each mode at twice the batch as well, as a check of its regime");
  command->add_flag("--timeline", a.further.timeline,
                    "Record steps of each mode, to name the causes of idle time, also if that "
                    "takes more than a second");
  command->add_flag("--verbose", a.further.verbose, "Print all that was measured and predicted");
  add_report(command, a.common);
  return command;
}

CLI::App* add_trace(CLI::App* trace, const char* model, TrainArguments& a) {
  CLI::App* command = add_training(trace, model, a);
  add_mode(command, a);
  command->add_option("--out", a.out, "Write the trace to a file")->check(file_name())->required();
  command->add_option("--record", a.record, "Steps to record, after the training")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  return command;
}

// Fills in the options that are derived from other arguments.
TrainOptions& resolve(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = a.options;
  o.toy.device = a.common.chosen_device();
  o.toy.dtype = a.dtype == "bf16" ? bf16 : f32;
  o.toy.activation = *std::ranges::find(nn::kActivations, a.activation, &nn::name_of);
  o.measured_matmul = a.matmul == "measured";
  o.mode = a.mode == "fused" ? Mode::fused : a.mode == "graph" ? Mode::graph : Mode::eager;
  o.remat = remat_of(a.remat);
  o.all_policies = a.remat == "all";
  o.rounding = a.rounding == "fast" ? Rounding::fast : Rounding::eager;
  o.seed = a.common.seed;
  o.seed_is_given = command.count("--seed") > 0;
  return o;
}

// An interrupted training prints its results so far, and exits with 128 plus the signal, as shells
// do.
int run_train(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = resolve(command, a);
  TrainLines lines(o, !a.common.json);
  const Interruptible interruptible;
  o.progress = [&](const TrainProgress& at) { lines.show(at); };
  o.stop = [&] { return interruptible.signal() != 0; };
  const TrainResult result = train(o);
  lines.finish(result);
  if (a.common.json) print(to_json(result));
  return result.interrupted ? 128 + interruptible.signal() : 0;
}

int run_explain(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = resolve(command, a);
  if (o.mode == Mode::eager) o.mode = Mode::graph;
  using Format = ExplainOptions::Format;
  print(explain({o,
                 a.common.json ? Format::json
                 : a.dot       ? Format::dot
                 : a.svg       ? Format::svg
                               : Format::text,
                 a.source}));
  return 0;
}

int run_trace(const CLI::App& command, TrainArguments& a) {
  TraceOptions options{resolve(command, a), a.record, a.out};
  const TraceResult result = trace(options);
  print(a.common.json ? to_json(result) : to_text(result));
  return 0;
}

int run_profile(const CLI::App& command, TrainArguments& a) {
  const TrainOptions& o = resolve(command, a);
  if (!a.svg_file.empty()) require_writable("svg", a.svg_file);
  const Profile result = profile(o);
  if (!a.svg_file.empty()) write_flame_graph(result, a.svg_file);
  print(a.common.json ? to_json(result) : to_text(result));
  return 0;
}

constexpr const char* kMore =
    "more     --verbose, --json, --report F.html; brrr explain, trace, profile\n";

// Prints the comparison, then fails if losses are not finite or differ.
int run_compare(const CLI::App& command, TrainArguments& a) {
  const TrainOptions& o = resolve(command, a);
  const measure::ReportFiles files(a.common.report);
  files.require_writable();
  ProgressLine progress;
  const measure::Comparison result =
      compare(o, a.further, [&](const std::string& what) { progress.show(what); });
  progress.clear();
  const measure::Machine machine = measure::describe_machine();
  std::optional<measure::Report> report;
  if (files.wanted()) {
    report = measure::compare_report(result, machine, a.common.command);
    files.write(*report, to_json(result, machine, &*report));
  }
  print(a.common.json ? to_json(result, machine, report ? &*report : nullptr)
                      : to_text(result, prints_colors()) +
                            (a.further.verbose ? "\n" + details_text(result) : std::string(kMore)) +
                            (report ? written_text(files) : ""));
  if (const std::string problem = result.problem(); !problem.empty()) fail("{}", problem);
  return 0;
}

// Prints one line on stderr; with --json, if no document was printed, also an error document on
// stdout.
void print_problem(std::string text, bool json) noexcept {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "brrr: %s\n", text.c_str());
  if (!json || has_printed()) return;
  try {
    print(error_json(text));
  } catch (const std::exception&) {
    // stdout cannot be written; the exit status and stderr report the failure
  }
}

// The command line: what it accepts, and where parsed values go.
class CommandLine {
 public:
  CommandLine() {
    app_.set_version_flag("--version", "brrr " BRRR_VERSION);
    app_.require_subcommand(1);
    info_ = app_.add_subcommand("info", "Show the build, devices and libraries");
    add_common(info_, common_);
    calibrate_ = app_.add_subcommand(
        "calibrate", "Measure the ceilings of a device, and keep them for predictions and fusion");
    add_common(calibrate_, common_);
    calibrate_->add_flag("--quick", common_.quick, "A smoke test, whose result is not kept");
    bench_ = add_group("bench", "Micro-benchmarks, each with a limit measured in the same run");
    for (const Bench& one : kBenches) {
      CLI::App* command = bench_->add_subcommand(one.name, one.help);
      add_common(command, common_);
      command->add_flag("--quick", common_.quick, "Small sizes and few samples: a smoke test");
    }
    CLI::App* sweep = bench_->add_subcommand(
        "sweep", "Training steps drawn at random, in all modes, with predictions");
    add_common(sweep, common_);
    sweep->add_flag("--quick", common_.quick, "Small steps and few samples: a smoke test");
    add_options(sweep, sweep_);
    add_lab();
    CLI::App* train = add_group("train", "Train a toy model and time its step");
    CLI::App* compare = add_group("compare", "Train in all modes, and compare");
    CLI::App* explain = add_group("explain", "Print the traced step, call by call");
    CLI::App* trace = add_group("trace", "Record host and device timelines for Perfetto");
    CLI::App* profile = add_group("profile", "Sample where the host's time of a step goes");
    for (const char* model : {"mlp", "transformer"}) {
      add_command(run_train, [&](TrainArguments& a) { return add_train(train, model, a); });
      add_command(run_compare, [&](TrainArguments& a) { return add_compare(compare, model, a); });
      add_command(run_trace, [&](TrainArguments& a) { return add_trace(trace, model, a); });
      add_command(run_profile, [&](TrainArguments& a) { return add_profile(profile, model, a); });
      add_command(run_explain, [&](TrainArguments& a) {
        CLI::App* command = add_training(explain, model, a);
        command->add_option("--mode", a.mode, "How the step is replayed: graph, fused")
            ->check(one_of({"graph", "fused"}))
            ->default_str("graph");
        command->add_flag("--dot", a.dot, "Print the graph in the dot language")
            ->excludes("--json");
        command->add_flag("--source", a.source, "Print the source of generated kernels")
            ->excludes("--json", "--dot");
        command->add_flag("--svg", a.svg, "Draw the memory of the step, before and after --remat")
            ->excludes("--json", "--dot", "--source");
        return command;
      });
    }
  }

  // Parses the arguments; returns the exit status if there is nothing to run.
  std::optional<int> parse(int argc, char** argv, bool json) {
    try {
      app_.parse(argc, argv);
      common_.command = lab_arguments_.common.command = measure::command_text(argc, argv);
      for (Command& command : commands_) {
        command.arguments.common.command = lab_arguments_.common.command;
        const ToyOptions& toy = command.arguments.options.toy;
        if (toy.heads > 0 && toy.width % toy.heads != 0) {
          throw CLI::ValidationError(fmt::format(
              "--heads: expected a divisor of the width, {}, got {}", toy.width, toy.heads));
        }
        const bool has_mode = command.app->get_option_no_throw("--mode") != nullptr;
        if (command.arguments.rounding == "fast" && has_mode && command.arguments.mode != "fused")
          throw CLI::ValidationError("--rounding fast: needs --mode fused");
        if (command.arguments.remat != "none" && has_mode && command.arguments.mode == "eager" &&
            command.run != run_explain) {
          throw CLI::ValidationError(
              fmt::format("--remat {}: needs --mode graph or fused", command.arguments.remat));
        }
        if (command.run == run_profile && command.arguments.options.time_seconds < 0.1)
          throw CLI::ValidationError(fmt::format("--time: expected 0.1 seconds or more, got {}",
                                                 command.arguments.options.time_seconds));
        if (command.arguments.source && command.arguments.mode != "fused")
          throw CLI::ValidationError("--source: needs --mode fused, which generates kernels");
        if (command.arguments.svg && command.arguments.remat == "none")
          throw CLI::ValidationError("--svg: needs --remat min_cut, full or budget=F");
      }
    } catch (const CLI::Success& help_or_version) {
      std::ostringstream text;
      const int status = app_.exit(help_or_version, text, text);
      print(text.str());
      return status;
    } catch (const CLI::ParseError& problem) {
      print_problem(parse_error_text(app_, problem), json);
      return 2;
    }
    return std::nullopt;
  }

  int run() {
    require_valid_environment();  // for commands that allocate no tensor as well
    if (info_->parsed()) run_info(common_);
    if (calibrate_->parsed()) run_calibrate(common_);
    for (const Bench& one : kBenches) {
      if (bench_->got_subcommand(one.name)) run_bench(one, common_);
    }
    if (bench_->got_subcommand("sweep")) run_sweep();
    if (lab_->parsed()) run_lab();
    for (Command& command : commands_) {
      if (command.app->parsed()) return command.run(*command.app, command.arguments);
    }
    return 0;
  }

 private:
  using Run = int (*)(const CLI::App&, TrainArguments&);
  struct Command {
    Run run;
    CLI::App* app = nullptr;
    TrainArguments arguments = {};
  };

  void add_lab() {
    lab_ =
        add_group("lab", "Experiments on overhead, bandwidth and compute, with what was claimed");
    add_common(lab_->add_subcommand("list", "List the experiments"), lab_arguments_.common);
    const auto add = [&](const char* name, const char* help) {
      CLI::App* command = lab_->add_subcommand(name, help);
      add_common(command, lab_arguments_.common);
      command->add_flag("--quick", lab_arguments_.common.quick, "Smaller sizes and few samples");
      command
          ->add_option("--link", lab_arguments_.link,
                       "GB/s between devices, for the calculator of parallel training")
          ->check(number_above(0))
          ->capture_default_str();
      add_report(command, lab_arguments_.common);
      return command;
    };
    add("all", "Run all experiments");
    for (const measure::Experiment& each : measure::experiments()) {
      CLI::App* command = add(each.name, each.title);
      if (!each.picture) continue;
      command
          ->add_option("--svg", lab_arguments_.svg_file,
                       fmt::format("Draw to a file: {}", each.picture))
          ->check(file_name());
    }
  }
  void run_lab() {
    const Common& common = lab_arguments_.common;
    if (lab_->got_subcommand("list"))
      return print(common.json ? to_json(measure::experiments()) : to_text(measure::experiments()));
    LabRun run{.options = {},
               .json = common.json,
               .report = common.report,
               .svg_file = lab_arguments_.svg_file,
               .command = common.command};
    run.options.device = common.chosen_device();
    run.options.seed = common.seed;
    run.options.quick = common.quick;
    run.options.link = lab_arguments_.link * 1e9;
    std::span<const measure::Experiment> chosen = measure::experiments();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!lab_->got_subcommand(chosen[i].name)) continue;
      chosen = chosen.subspan(i, 1);
      break;
    }
    run_experiments(chosen, run);
  }

  void run_sweep() {
    ProgressLine progress;
    static_cast<measure::BenchOptions&>(sweep_) = bench_options(common_, progress);
    const std::vector<measure::SweptStep> steps = measure::sweep(sweep_);
    progress.clear();
    const measure::Machine machine = measure::describe_machine();
    print(common_.json ? to_json(measure::results_of(steps, sweep_.device), machine)
                       : to_text(steps, sweep_.device, machine));
    require_agreement(steps);
  }

  CLI::App* add_group(const char* name, const char* help) {
    CLI::App* group = app_.add_subcommand(name, help);
    group->require_subcommand(1);
    return group;
  }
  // `add` binds the command's options to its arguments, whose addresses must not change.
  template <class Add>
  void add_command(Run run, Add add) {
    Command& command = commands_.emplace_back(Command{run});
    command.app = add(command.arguments);
  }

  CLI::App app_{BRRR_DESCRIPTION, "brrr"};
  Common common_;
  LabArguments lab_arguments_;
  measure::SweepOptions sweep_;
  CLI::App *info_, *calibrate_, *bench_, *lab_;
  std::list<Command> commands_;
};

}  // namespace
}  // namespace brrr::cli

int main(int argc, char** argv) {
  // Searches the raw arguments, since parsing them may fail.
  const bool json = std::any_of(
      argv, argv + argc, [](const char* each) { return std::string_view(each) == "--json"; });
  try {
    brrr::cli::CommandLine command_line;
    const std::optional<int> status = command_line.parse(argc, argv, json);
    return status ? *status : command_line.run();
  } catch (const std::exception& problem) {
    brrr::cli::print_problem(problem.what(), json);
    return 1;
  }
}
