// The program brrr: parses arguments, runs one subcommand and prints its result.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/bench.h"
#include "brrr/measure/calibrate.h"
#include "brrr/measure/checks.h"
#include "brrr/measure/command_line.h"
#include "brrr/measure/commands.h"
#include "brrr/measure/completion.h"
#include "brrr/measure/diff.h"
#include "brrr/measure/interrupt.h"
#include "brrr/measure/lab.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/machine_card.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/terminal.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "cli/bench_steps.h"
#include "cli/json_output.h"
#include "cli/lab_run.h"
#include "cli/models.h"
#include "cli/sweep.h"
#include "cli/text_output.h"
#include "cli/train.h"
#include "cli/train_lines.h"

namespace brrr::cli {

using measure::add_common;
using measure::at_least;
using measure::file_name;
using measure::number_above;
using measure::number_from;
using measure::one_of;
using measure::print;
using measure::ProgressLine;
using measure::run_interruptibly;
using measure::validator;

namespace {

// Of all commands that run no model.
struct Common : measure::CommonOptions {
  bool quick = false;
  std::string report = {};   // the page of --report; empty: none
  std::string command = {};  // the command line

  Device chosen_device() const {  // in the name of the command
    const std::size_t start = std::min(command.find(' ') + 1, command.size());
    return CommonOptions::chosen_device(command.substr(start, command.find(' ', start) - start));
  }
};

struct Bench {
  const char* name;
  const char* help;
  void (*run)(const measure::BenchOptions&, measure::Results&);
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

// `card`: a file for the picture of the device; empty: none.
void run_info(const Common& common, const std::string& card) {
  if (!common.device.empty()) common.chosen_device();  // throws if it is not available
  if (!card.empty()) require_writable("card", card);
  const measure::Machine machine = measure::describe_machine();
  if (!card.empty()) {
    const Device device = common.chosen_device();
    const std::string svg = card_svg(machine, device, *graph::ceilings_of(device));
    write_file("card", card, [&](const ByteSink& sink) { sink(svg.data(), svg.size()); });
  }
  print(common.json ? to_json(machine) : to_text(machine));
}

measure::BenchOptions bench_options(const Common& common, ProgressLine& progress,
                                    const measure::Interruptible& interruptible) {
  measure::BenchOptions options;
  options.device = common.chosen_device();
  options.seed = common.seed;
  options.quick = common.quick;
  options.progress = [&](const std::string& name) {
    progress.show(name);
    interruptible.stop_if_asked();
  };
  return options;
}

int run_bench(const Bench& bench, const Common& common) {
  measure::Results results;
  const int status = run_interruptibly([&](const measure::Interruptible& interruptible) {
    ProgressLine progress;
    bench.run(bench_options(common, progress, interruptible), results);
  });
  const measure::Machine machine = measure::describe_machine();
  print(common.json ? to_json(results, machine) : to_text(results, machine));
  return status;
}

// Saves the measured ceilings, then prints them. Disturbed ones do not replace others: then it
// fails.
int run_calibrate(const Common& common) {
  measure::Calibration result;
  const int status = run_interruptibly([&](const measure::Interruptible& interruptible) {
    ProgressLine progress;
    const measure::BenchOptions options = bench_options(common, progress, interruptible);
    if (!common.quick) graph::require_ceilings_path(options.device);
    result = measure::calibrate(options);
  });
  if (status != 0) fail("[calibrate] interrupted; nothing was kept");
  std::string file;
  if (is_to_be_kept(result)) {
    graph::write_ceilings(result.ceilings, result.device);
    file = graph::ceilings_path(result.device);
  }
  print(common.json ? to_json(result, file, measure::describe_machine()) : to_text(result, file));
  if (file.empty() && !common.quick) {
    fail("[calibrate] expected readings to keep, got disturbed ones: {}; those of {} stay",
         fmt::join(measure::disturbances(result), "; "), graph::ceilings_of(result.device)->date);
  }
  return 0;
}

void add_sweep(CLI::App* command, measure::SweepOptions& options) {
  command->add_option("--count", options.count, "How many steps are drawn")
      ->check(validator(measure::whole_number(1, 1'000'000)))
      ->capture_default_str();
  command->add_option("--step", options.only, "Run this step of the seed alone, counted from 0")
      ->check(validator(at_least(0)));
  command->add_option("--time", options.seconds, "Seconds of timing for each mode of a step")
      ->check(validator(number_from(0.01, 60)))
      ->capture_default_str();
}

struct DiffArguments {
  std::string before, after, report;
  bool json = false;
};

void run_diff(const DiffArguments& a, const std::string& command) {
  const measure::ReportFiles files(a.report);
  files.require_writable();
  const measure::Difference found = measure::diff(a.before, a.after);
  if (files.wanted()) files.write(to_report(found, command), to_json(found));
  print(a.json ? to_json(found) : to_text(found) + (files.wanted() ? written_text(files) : ""));
}

struct LabArguments {
  Common common;
  double link = measure::LabOptions().link * 1e-9;
  std::string svg_file;
};

// --- train ---

struct TrainArguments {
  measure::CommonOptions common = {};
  ToyArguments toy;
  TrainOptions options = {};
  measure::StepArguments step = {};

  explicit TrainArguments(const char* model) : toy(model) {}
};

CLI::App* add_train(CLI::App* train, TrainArguments& a) {
  const std::string& model = a.toy.options.toy.model;
  CLI::App* const command = train->add_subcommand(model, help_of(model));
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  measure::add_options(command, a.toy.command_line());
  TrainOptions& o = a.options;
  measure::add_step(command, a.step, true);
  measure::add_mode(command, a.step);
  measure::add_checked(command, "--steps", o.steps, "Training steps", at_least(0));
  measure::add_checked(command, "--time", o.time_seconds,
                       "Seconds of timed steps after the training; 0: none", number_from(0, 3600));
  add_common(command, a.common);
  command->add_flag("--check-finite", o.check_finite,
                    "Stop at the first value that is not finite and name the parameter; each step "
                    "waits for the device");
  command
      ->add_option(
          "--save", o.save,
          "Write parameters, optimizer state and step to a file at the end or on interrupt")
      ->check(validator(file_name()));
  command->add_option("--load", o.load, "Resume from a file of --save, with the same bits")
      ->check(validator(file_name()));
  return command;
}

void require_consistent(const TrainArguments& a) {
  if (const std::string why = a.toy.complaint(); !why.empty()) throw CLI::ValidationError(why);
  a.step.require_consistent(true);
}

// Fills in the options that are derived from other arguments, and sets what the process has of
// them.
TrainOptions& resolve(const CLI::App& command, TrainArguments& a) {
  set_default_device(a.common.chosen_device("train"));
  a.step.set_precision();
  TrainOptions& o = a.options;
  static_cast<TrainingOptions&>(o) = a.toy.resolved();
  o.mode = a.step.chosen_mode();
  o.remat = a.step.chosen_remat();
  o.rounding = a.step.chosen_rounding();
  o.seed = a.common.seed;
  o.seed_is_given = command.count("--seed") > 0;
  o.facts = measure::facts_of(a.toy.command_line());
  o.facts.emplace_back("tf32", a.step.tf32);
  return o;
}

// An interrupted training prints its results so far, and exits with 128 plus the signal, as shells
// do.
int run_train(const CLI::App& command, TrainArguments& a) {
  TrainOptions& o = resolve(command, a);
  TrainLines lines(o, !a.common.json);
  const measure::Interruptible interruptible;
  o.progress = [&](const TrainProgress& at) { lines.show(at); };
  o.stop = [&] { return interruptible.signal() != 0; };
  const TrainResult result = train(o);
  lines.finish(result);
  if (a.common.json) print(to_json(result));
  return result.interrupted ? 128 + interruptible.signal() : 0;
}

// The command line: what it accepts, and where parsed values go.
class CommandLine {
 public:
  CommandLine() {
    app_.set_version_flag("--version", "brrr " BRRR_VERSION);
    app_.require_subcommand(1);
    info_ = app_.add_subcommand("info", "Show the build, devices and libraries");
    add_common(info_, common_);
    info_
        ->add_option("--card", card_file_,
                     "Draw the ceilings of the device to a file, as a picture of one screen")
        ->check(validator(file_name()));
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
    add_sweep(sweep, sweep_);
    add_lab();
    CLI::App* train = add_group("train", "Train a toy model and time its step");
    std::vector<measure::Model> models;
    for (const char* model : {"mlp", "transformer"}) {
      TrainArguments& arguments = trainings_.emplace_back(model);
      train_commands_.push_back(add_train(train, arguments));
      models.push_back(model_of(toys_.emplace_back(model)));
    }
    model_commands_.emplace(app_, std::move(models));
    add_diff();
    completion_ = app_.add_subcommand("completion", "Print the completion of a shell");
    completion_->add_option("shell", shell_, "The shell")
        ->check(validator(one_of({"bash", "zsh"})))
        ->required();
  }

  int run(int argc, char** argv) {
    return measure::run_command_line(
        app_, argc, argv, [this] { require_consistent(); },
        [this](const std::string& command) { return run(command); });
  }

 private:
  void require_consistent() const {
    model_commands_->require_consistent();
    std::size_t i = 0;
    for (const TrainArguments& each : trainings_) {
      if (train_commands_[i++]->parsed()) cli::require_consistent(each);
    }
  }

  int run(const std::string& command) {
    common_.command = lab_arguments_.common.command = command;
    require_valid_environment();  // for commands that allocate no tensor as well
    if (info_->parsed()) run_info(common_, card_file_);
    if (calibrate_->parsed()) return run_calibrate(common_);
    for (const Bench& one : kBenches) {
      if (bench_->got_subcommand(one.name)) return run_bench(one, common_);
    }
    if (bench_->got_subcommand("sweep")) return run_sweep();
    if (lab_->parsed()) return run_lab();
    std::size_t i = 0;
    for (TrainArguments& each : trainings_) {
      const CLI::App* const app = train_commands_[i++];
      if (app->parsed()) return run_train(*app, each);
    }
    if (diff_->parsed()) return run_diff(diff_arguments_, command), 0;
    if (completion_->parsed()) return print(measure::completion_script(app_, shell_)), 0;
    return model_commands_->run(command).value_or(0);
  }

  void add_diff() {
    diff_ = app_.add_subcommand("diff", "Compare two documents of --json or of BRRR_REPORT");
    const auto add_file = [this](const char* name, std::string& file, const char* help) {
      diff_->add_option(name, file, help)->check(validator(file_name()))->required();
    };
    add_file("before", diff_arguments_.before, "The document of steps as they were");
    add_file("after", diff_arguments_.after, "The document of steps as they are");
    diff_->add_flag("--json", diff_arguments_.json, "Print one JSON document and nothing else");
    measure::add_report(diff_, diff_arguments_.report);
  }

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
          ->check(validator(number_above(0)))
          ->capture_default_str();
      measure::add_report(command, lab_arguments_.common.report);
      return command;
    };
    add("all", "Run all experiments");
    for (const measure::Experiment& each : measure::experiments()) {
      CLI::App* command = add(each.name, each.title);
      if (!each.picture) continue;
      command
          ->add_option("--svg", lab_arguments_.svg_file,
                       fmt::format("Draw to a file: {}", each.picture))
          ->check(validator(file_name()));
    }
  }
  int run_lab() {
    const Common& common = lab_arguments_.common;
    if (lab_->got_subcommand("list")) {
      print(common.json ? to_json(measure::experiments()) : to_text(measure::experiments()));
      return 0;
    }
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
    return run_experiments(chosen, run);
  }

  int run_sweep() {
    std::vector<measure::SweptStep> steps;
    const int status = run_interruptibly([&](const measure::Interruptible& interruptible) {
      ProgressLine progress;
      static_cast<measure::BenchOptions&>(sweep_) = bench_options(common_, progress, interruptible);
      measure::sweep(sweep_, steps);
    });
    const measure::Machine machine = measure::describe_machine();
    print(common_.json ? to_json(measure::results_of(steps, sweep_.device), machine)
                       : to_text(steps, sweep_.device, machine));
    require_agreement(steps);
    return status;
  }

  CLI::App* add_group(const char* name, const char* help) {
    CLI::App* group = app_.add_subcommand(name, help);
    group->require_subcommand(1);
    return group;
  }

  CLI::App app_{BRRR_DESCRIPTION, "brrr"};
  Common common_;
  LabArguments lab_arguments_;
  DiffArguments diff_arguments_;
  std::string shell_;      // whose completion is printed
  std::string card_file_;  // of info
  measure::SweepOptions sweep_;
  CLI::App *info_, *calibrate_, *bench_, *lab_, *diff_, *completion_;
  // Lists: CLI11 has the addresses of arguments.
  std::list<TrainArguments> trainings_;
  std::vector<CLI::App*> train_commands_;
  std::list<ToyArguments> toys_;
  std::optional<measure::ModelCommands> model_commands_;
};

}  // namespace
}  // namespace brrr::cli

int main(int argc, char** argv) {
  try {
    return brrr::cli::CommandLine().run(argc, argv);
  } catch (const std::exception& problem) {
    return brrr::measure::failed_command_line("brrr", problem, false);
  }
}
