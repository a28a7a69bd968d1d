#include "brrr/measure/model_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/measure/replays.h"
#include "brrr/measure/text.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {

Step ModelRun::trained() {
  manual_seed(seed);
  Step step = make(mode, remat);
  if (!step) fail("[{}] expected a step, got none", name);
  Losses losses;
  for (std::int64_t i = 0; i < std::max<std::int64_t>(steps, 2); ++i) {
    Tensor loss;
    if (i == 0) {
      device = device_of([&] { loss = step(); });
    } else {
      loss = step();
    }
    if (loss.defined()) losses.add(std::move(loss));
  }
  return step;
}

std::string ModelRun::title() const {
  return fmt::format("{}, {}, {}", name, with_device(*this, device), name_of(mode));
}

std::string with_device(const ModelRun& run, Device device) {
  if (run.names_device) return run.describes;
  return fmt::format("{}{}on {}", run.describes, run.describes.empty() ? "" : " ",
                     to_string(device));
}

std::string heading_text(const ModelRun& run) {
  std::string text;
  line(text, run.name,
       fmt::format("{}, {}{}", with_device(run, run.device), name_of(run.mode),
                   run.rounding == Rounding::fast ? " (fast rounding)" : ""));
  return text;
}

}  // namespace brrr::measure
