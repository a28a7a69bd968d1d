// Every experiment of the lab, in its short form.
#include "tests/gpu/delay.h"
#include "tests/harness/lab_findings.h"

using namespace brrr;

TEST_CASE("every experiment of the lab has its readings on a GPU", "[lab]") {
  for (const measure::Experiment& experiment : measure::experiments()) {
    INFO(experiment.name);
    testing::check_exact_readings(experiment.name,
                                  testing::run_experiment(experiment, testing::kGpu));
  }
}
