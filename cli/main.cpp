// The program brrr: reads arguments, runs one subcommand, prints. The work is done in measure/.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "cli/text_output.h"
#include "measure/bench.h"
#include "measure/machine.h"
#include "tensor/error.h"
#include "tensor/runtime.h"

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
  command->add_option("--seed", common.seed, "Seed of the random inputs")->capture_default_str();
}

// One line on stderr that shows where a long run is, when somebody is looking.
class Progress {
 public:
  void show(const std::string& what) noexcept {
    if (!shown_) return;
    std::fprintf(stderr, "\r\x1b[K%s", what.c_str());
    std::fflush(stderr);
  }
  ~Progress() { show({}); }

 private:
  bool shown_ = isatty(STDERR_FILENO);
};

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
};

void run_info(const Common& common) {
  const measure::Machine machine = measure::describe_machine();
  fmt::print("{}", common.json ? to_json(machine) : to_text(machine));
}

void run_bench(const Bench& bench, const Common& common) {
  Progress progress;
  measure::BenchOptions options;
  options.device = common.chosen();
  options.seed = common.seed;
  options.quick = common.quick;
  options.progress = [&](const std::string& name) { progress.show(name); };
  const measure::Results results = bench.run(options);
  progress.show("");
  const measure::Machine machine = measure::describe_machine();
  fmt::print("{}", common.json ? to_json(results, machine) : to_text(results, machine));
}

void print_problem(std::string text) noexcept {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "brrr: %s\n", text.c_str());
}

int run(int argc, char** argv) {
  CLI::App app("brrr: where does a step's time go?", "brrr");
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

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& problem) {
    // What stands where a subcommand should says more than that a subcommand is missing.
    const std::vector<std::string> unknown = app.remaining(true);
    print_problem(
        fmt::format("{}; see brrr --help",
                    unknown.empty() ? problem.what() : "unexpected argument: " + unknown.front()));
    return 2;
  }
  if (info->parsed()) run_info(common);
  for (const Bench& one : kBenches) {
    if (bench->got_subcommand(one.name)) run_bench(one, common);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
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
