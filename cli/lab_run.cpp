#include "cli/lab_run.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "brrr/io/file_bytes.h"
#include "brrr/measure/interrupt.h"
#include "brrr/measure/machine.h"
#include "brrr/measure/report_file.h"
#include "brrr/measure/terminal.h"
#include "cli/json_output.h"
#include "cli/lab_report.h"
#include "cli/lab_text.h"

namespace brrr::cli {

int run_experiments(std::span<const measure::Experiment> chosen, LabRun run) {
  measure::ProgressLine progress;
  measure::LabOptions& options = run.options;
  const measure::ReportFiles files(run.report);
  files.require_writable();
  if (!run.svg_file.empty()) require_writable("svg", run.svg_file);
  std::vector<ExperimentRun> found;
  const int status = measure::run_interruptibly([&](const measure::Interruptible& interruptible) {
    for (const measure::Experiment& experiment : chosen) {
      options.progress = [&](const std::string& what) {
        progress.show(fmt::format("{} of {}: {}: {}", found.size() + 1, chosen.size(),
                                  experiment.name, what));
        interruptible.stop_if_asked();
      };
      options.progress("");
      const double start = measure::host_seconds();
      measure::Finding finding = measure::run_experiment(experiment, options);
      found.push_back({&experiment, std::move(finding), measure::host_seconds() - start});
      progress.clear();
      if (!run.json) measure::print(to_text(found.back()));
    }
  });
  progress.clear();
  const measure::Machine machine = measure::describe_machine();
  std::optional<measure::Report> report;
  if (files.wanted()) {
    report = lab_report(found, options, machine, run.command);
    files.write(*report, to_json(found, options, machine, &*report));
  }
  if (!run.svg_file.empty() && !found.empty()) {
    const std::string& svg = found.front().finding.svg;
    write_file("svg", run.svg_file, [&](const ByteSink& sink) { sink(svg.data(), svg.size()); });
  }
  measure::print(run.json
                     ? to_json(found, options, machine, report ? &*report : nullptr)
                     : summary_text(found, options, machine) +
                           (status == 0 ? ""
                                        : fmt::format("interrupted after {} of {} experiments\n",
                                                      found.size(), chosen.size())) +
                           (report ? written_text(files) : ""));
  return status;
}

}  // namespace brrr::cli
