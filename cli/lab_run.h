// brrr lab: runs experiments, prints their findings, and writes what the options ask for.
#pragma once

#include <span>
#include <string>

#include <brrr/measure/lab.h>

namespace brrr::cli {

struct LabRun {
  measure::LabOptions options;
  bool json = false;
  std::string report;    // the page of --report; empty: none
  std::string svg_file;  // where the picture goes; empty: nowhere
  std::string command;   // the command line
};

// Prints each finding as soon as its experiment ends, or all of them as one JSON document. Ctrl-C
// ends the experiments: returns the exit status.
int run_experiments(std::span<const measure::Experiment> chosen, LabRun run);

}  // namespace brrr::cli
