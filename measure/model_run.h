// A model as a command line chose to run it. For the sources of measure/: no public header includes
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/compare.h>
#include <brrr/measure/main.h>

namespace brrr::measure {

struct ModelRun {
  std::string name = {}, describes = {};  // "mlp"; "batch 8, width 16"
  bool names_device = false;              // `describes` does: it is the model's own
  std::vector<Fact> facts = {};           // for documents: the options, precision, seed
  MakeStep make = {}, doubled = {};
  Device device = {};
  Mode mode = Mode::eager;
  Remat remat = Remat::none();
  bool all_policies = false;
  Rounding rounding = Rounding::eager;
  std::uint64_t seed = 0;
  std::int64_t steps = 20;   // of the training
  double seconds = 0.5;      // of timed steps after it
  std::string command = {};  // the command line

  // The step, made with the seed, after `steps` steps, at least two: the second one is captured.
  // `device` becomes that of its calls.
  Step trained();
  // "mlp, batch 8, width 16 on cpu, fused"
  std::string title() const;
};

// What is said beside a name: "batch 8, width 16 on cpu".
std::string with_device(const ModelRun& run, Device device);

// The name, what is run and how: the first line of a command's text.
std::string heading_text(const ModelRun& run);

}  // namespace brrr::measure
