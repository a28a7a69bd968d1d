#include "cli/lab_run.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/report_file.h"
#include "cli/json_output.h"
#include "cli/lab_report.h"
#include "cli/lab_text.h"
#include "cli/terminal.h"

namespace brrr::cli {

void run_experiments(std::span<const measure::Experiment> chosen, LabRun run) {
  ProgressLine progress;
  measure::LabOptions& options = run.options;
  const measure::ReportFiles files(run.report);
  files.require_writable();
  if (!run.svg_file.empty()) require_writable("svg", run.svg_file);
  std::vector<ExperimentRun> found;
  for (const measure::Experiment& experiment : chosen) {
    options.progress = [&](const std::string& what) {
      progress.show(fmt::format("{}: {}", experiment.name, what));
    };
    options.progress("");
    const double start = measure::host_seconds();
    measure::Finding finding = measure::run_experiment(experiment, options);
    found.push_back({&experiment, std::move(finding), measure::host_seconds() - start});
    progress.clear();
    if (!run.json) print(to_text(found.back()));
  }
  const measure::Machine machine = measure::describe_machine();
  std::optional<measure::Report> report;
  if (files.wanted()) {
    report = lab_report(found, options, machine, run.command);
    files.write(*report, to_json(found, options, machine, &*report));
  }
  if (!run.svg_file.empty()) {
    const std::string& svg = found.front().finding.svg;
    write_file("svg", run.svg_file, [&](const ByteSink& sink) { sink(svg.data(), svg.size()); });
  }
  if (run.json) return print(to_json(found, options, machine, report ? &*report : nullptr));
  print(summary_text(found, options, machine) + (report ? written_text(files) : ""));
}

}  // namespace brrr::cli
