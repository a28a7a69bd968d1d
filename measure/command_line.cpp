#include "brrr/measure/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <string_view>

#include "brrr/measure/interrupt.h"
#include "brrr/measure/parse_error.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/terminal.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"

namespace brrr::measure {
namespace {

// Prints one line on stderr; with --json, if no document was printed, also an error document on
// stdout.
void print_problem(const std::string& program, std::string text, bool json) noexcept {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "%s: %s\n", program.c_str(), text.c_str());
  if (!json || has_printed()) return;
  try {
    print(error_json(text));
  } catch (const std::exception&) {
    // stdout cannot be written; the exit status and stderr report the failure
  }
}

// By the raw arguments, since parsing them may fail.
bool wants_json(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc,
                     [](const char* each) { return std::string_view(each) == "--json"; });
}

// Of a model's option that has none.
Check default_check(const ModelOption& option) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Whole = std::numeric_limits<std::int64_t>;
  using Int = std::numeric_limits<int>;
  if (std::holds_alternative<std::int64_t*>(option.value))
    return whole_number(Whole::min(), Whole::max());
  if (std::holds_alternative<int*>(option.value)) return whole_number(Int::min(), Int::max());
  if (std::holds_alternative<double*>(option.value)) return number_from(-kInfinity, kInfinity);
  return {};
}

}  // namespace

CLI::Validator validator(const Check& check) {
  return CLI::Validator([complaint = check.complaint](
                            std::string& given) { return complaint ? complaint(given) : ""; },
                        fmt::format("{}", fmt::join(check.choices, "|")));
}

Device CommonOptions::chosen_device(const std::string& command) const {
  if (device.empty()) return cuda_is_available() ? cuda() : cpu;
  const Device parsed = Device::parse(device);
  require_device(parsed, command.c_str());
  return parsed;
}

void add_common(CLI::App* command, CommonOptions& common) {
  command->add_flag("--json", common.json, "Print one JSON document and nothing else");
  command->add_option("--device", common.device, "cpu or cuda (default: cuda if available)")
      ->check(validator(device_name()));
  command->add_option("--seed", common.seed, "Random seed")
      ->check(validator(seed()))
      ->capture_default_str();
}

Mode StepArguments::chosen_mode() const {
  return mode == "fused" ? Mode::fused : mode == "graph" ? Mode::graph : Mode::eager;
}
Remat StepArguments::chosen_remat() const {
  return remat == "all" ? Remat::none() : remat_of(remat);
}
Rounding StepArguments::chosen_rounding() const {
  return rounding == "fast" ? Rounding::fast : Rounding::eager;
}

void StepArguments::set_precision() const {
  set_matmul_precision(tf32 ? Precision::tf32 : Precision::full);
  set_matmul_choice(matmul == "first" ? MatmulChoice::first : MatmulChoice::measured);
}

void StepArguments::require_consistent(bool has_mode) const {
  if (!has_mode) return;
  if (rounding == "fast" && mode != "fused")
    throw CLI::ValidationError("--rounding fast: needs --mode fused");
  if (remat != "none" && mode == "eager")
    throw CLI::ValidationError(fmt::format("--remat {}: needs --mode graph or fused", remat));
}

void add_step(CLI::App* command, StepArguments& step, bool rounding,
              const std::vector<std::string>& further_policies) {
  command->add_flag("--tf32", step.tf32, "Use TF32 for f32 matrix products on CUDA");
  add_checked(command, "--matmul", step.matmul,
              "cuBLASLt algorithm: the fastest measured, or the first offered",
              one_of({"measured", "first"}));
  add_checked(command, "--remat", step.remat,
              "What the backward pass computes again: nothing; what makes the step fastest; all "
              "but the inputs of segments; as little as keeps planned memory below a fraction",
              remat_policy(further_policies));
  if (!rounding) return;
  add_checked(command, "--rounding", step.rounding,
              "How fused kernels round: as eager calls do, or as few times as it goes",
              one_of({"eager", "fast"}));
}

void add_mode(CLI::App* command, StepArguments& step) {
  add_checked(
      command, "--mode", step.mode,
      "graph: trace the step once and replay it; fused: replay kernels of several calls each",
      one_of({"eager", "graph", "fused"}));
}

void add_report(CLI::App* command, std::string& file) {
  command
      ->add_option("--report", file,
                   "Write a page with tables and plots to F.html, and its numbers to F.json")
      ->check(validator(html_file_name()));
}

void add_options(CLI::App* command, const std::vector<ModelOption>& options) {
  for (const ModelOption& each : options) {
    const std::string name = "--" + each.name;
    if (command->get_option_no_throw(name))
      fail("[main] expected options that {} has not, got {} of a model", command->get_name(), name);
    std::visit(
        [&](auto* value) {
          if constexpr (std::is_same_v<decltype(value), bool*>) {
            command->add_flag(name, *value, each.help);
          } else {
            command->add_option(name, *value, each.help)
                ->check(validator(each.check.complaint ? each.check : default_check(each)))
                ->capture_default_str();
          }
        },
        each.value);
  }
}

std::vector<Fact> facts_of(const std::vector<ModelOption>& options) {
  std::vector<Fact> facts;
  for (const ModelOption& each : options) {
    std::visit(
        [&](const auto* value) {
          if constexpr (std::is_same_v<decltype(value), const int*>) {
            facts.emplace_back(each.name, std::int64_t{*value});
          } else {
            facts.emplace_back(each.name, *value);
          }
        },
        each.value);
  }
  return facts;
}

std::string text_of(const std::vector<ModelOption>& options) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : facts_of(options)) {
    if (const bool* const flag = std::get_if<bool>(&value)) {
      if (*flag) parts.push_back(name);
      continue;
    }
    std::visit([&](const auto& each) { parts.push_back(fmt::format("{} {}", name, each)); }, value);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

int run_command_line(CLI::App& app, int argc, const char* const* argv,
                     const std::function<void()>& check,
                     const std::function<int(const std::string& command)>& run) {
  const bool json = wants_json(argc, argv);
  try {
    app.parse(argc, argv);
    check();
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    const int status = app.exit(help_or_version, text, text);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& problem) {
    print_problem(app.get_name(), parse_error_text(app, problem), json);
    return 2;
  } catch (const std::exception& problem) {
    print_problem(app.get_name(), problem.what(), json);
    return 1;
  }
  try {
    return run(command_text(argc, argv));
  } catch (const std::exception& problem) {
    print_problem(app.get_name(), problem.what(), json);
    return failure_status();
  }
}

int failed_command_line(const std::string& program, const std::exception& problem, bool json) {
  print_problem(program, problem.what(), json);
  return 1;
}

}  // namespace brrr::measure
