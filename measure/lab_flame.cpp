// The experiment on where the time of one addition goes.
#include <fmt/format.h>

#include "brrr/measure/flame_graph.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/measure/ledger.h"
#include "brrr/ops/functions.h"

namespace brrr::measure::lab {

Finding one_addition(const LabOptions& options) {
  constexpr int kLoop = 4096;
  const Options here{.dtype = f32, .device = options.device};
  const Tensor a = rand({1}, here), b = rand({1}, here);
  const Ledger ledger =
      host_ledger(options.device, [&] { add(a, b); }, {.seconds = options.quick ? 0.2 : 2.0});
  const Timing bare = time(plain_add(kLoop, 1), options.sampling());
  const double addition = bare.median / kLoop / ledger.untraced.median;

  Finding finding;
  finding.readings = {{.name = "one eager addition",
                       .value = ledger.untraced.median * 1e9,
                       .unit = "ns",
                       .spread = ledger.untraced.spread},
                      {.name = "the addition itself, as in a bare loop",
                       .value = 100 * addition,
                       .unit = "%",
                       .claim = Interval{0, 10},
                       .spread = bare.spread,
                       .miss = fmt::format("an addition in a bare loop takes {} ns",
                                           number_text(bare.median / kLoop * 1e9))}};
  for (const LedgerLine& line : ledger.lines) {
    Reading reading{.name = name_of(line.of), .value = 100 * line.share, .unit = "%"};
    if (line.of == HostClass::kernels) {
      reading.claim = Interval{0, 50};
      reading.miss =
          fmt::format("{} of {} samples are in the kernel", line.samples, ledger.samples);
      reading.spread = ledger.untraced.spread;
    }
    finding.readings.push_back(std::move(reading));
  }
  const LedgerLine& kernels = ledger[HostClass::kernels];
  finding.why = fmt::format(
      "of {} ns the kernel has {} +- {:.1f} % and its result's memory {} %; {} samples, which add "
      "up to {:.1f} % of the untraced time and made it {:.1f} % longer",
      number_text(ledger.untraced.median * 1e9), number_text(100 * kernels.share),
      100 * kernels.standard_error, number_text(100 * ledger[HostClass::allocation].share),
      ledger.samples, 100 * (1 + ledger.closure()), 100 * ledger.perturbation());
  finding.incomplete = ledger.missing;
  finding.svg = flame_svg(ledger.profile, {.title = fmt::format("One addition of one element on {}",
                                                                to_string(options.device)),
                                           .step_ns = ledger.untraced.median * 1e9});
  return finding;
}

}  // namespace brrr::measure::lab
