// What the command lines of brrr and of measure::main share: common options, checks of values, and
// how failures are printed. For programs with CLI11: no public header includes it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <brrr/measure/checks.h>
#include <brrr/measure/compare.h>
#include <brrr/measure/main.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

CLI::Validator validator(const Check& check);

struct CommonOptions {
  bool json = false;
  std::string device = {};  // empty: the GPU if there is one
  std::uint64_t seed = 0;

  Device chosen_device(const std::string& command) const;
};

void add_common(CLI::App* command, CommonOptions& common);
// How a step is made, as text.
struct StepArguments {
  std::string mode = "eager", remat = "none", rounding = "eager", matmul = "measured";
  bool tf32 = false;

  Mode chosen_mode() const;
  Remat chosen_remat() const;  // "all" is none
  Rounding chosen_rounding() const;
  void set_precision() const;  // of the process's products
  // Throws CLI::ValidationError if these exclude one another; `has_mode`: there is --mode.
  void require_consistent(bool has_mode) const;
};
// --tf32, --matmul, --remat with these further policies, and where there is a choice --rounding.
void add_step(CLI::App* command, StepArguments& step, bool rounding,
              const std::vector<std::string>& further_policies = {});
void add_mode(CLI::App* command, StepArguments& step);
template <class T>
void add_checked(CLI::App* command, const char* name, T& value, const char* help,
                 const Check& check) {
  command->add_option(name, value, help)->check(validator(check))->capture_default_str();
}
// --report F.html, with the file F.json beside it.
void add_report(CLI::App* command, std::string& file);
// The options of a model; throws if a name is taken.
void add_options(CLI::App* command, const std::vector<ModelOption>& options);
// The same as facts, and as a line: "batch 8, width 16".
std::vector<Fact> facts_of(const std::vector<ModelOption>& options);
std::string text_of(const std::vector<ModelOption>& options);

// Parses the arguments with `app`, then calls `check`, which throws CLI::ValidationError, and
// `run` with the command line as text. Prints what goes wrong, in one line on stderr and with
// --json as a document; returns the exit status.
int run_command_line(CLI::App& app, int argc, const char* const* argv,
                     const std::function<void()>& check,
                     const std::function<int(const std::string& command)>& run);
// The same where the app could not be made.
int failed_command_line(const std::string& program, const std::exception& problem, bool json);

}  // namespace brrr::measure
