#include "cli/train_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/measure/timing.h"
#include "cli/text_output.h"

namespace brrr::cli {
namespace {

// The step whose loss is in line `line`: lines are spread evenly over the steps.
std::int64_t step_of_line(std::int64_t line, std::int64_t steps) {
  const std::int64_t lines = std::min<std::int64_t>(steps, 10);
  if (lines == 1) return 0;
  // line * (steps - 1) / (lines - 1), without overflow for any number of steps.
  const std::int64_t most = steps - 1, parts = lines - 1;
  return line * (most / parts) + line * (most % parts) / parts;
}

}  // namespace

TrainLines::TrainLines(const TrainOptions& options, bool losses)
    : options_(options), losses_(losses), start_(measure::host_seconds()) {}

void TrainLines::print_loss(std::int64_t step, double loss) {
  line_.clear();
  measure::print((printed_ == 0 ? heading_text(options_) : "") +
                 loss_text(step, loss, printed_ == 0));
  ++printed_;
  last_ = step;
}

void TrainLines::show(const TrainProgress& at) {
  if (losses_ && at.done - 1 == step_of_line(printed_, options_.steps))
    print_loss(at.before + at.done - 1, at.loss());
  show_progress(at);
}

// At most ten times a second, since reading a loss waits for the device.
void TrainLines::show_progress(const TrainProgress& at) {
  if (!line_.shown() || measure::host_seconds() < next_) return;
  const double value = at.loss(), now = measure::host_seconds();
  next_ = now + 0.1;
  line_.show(fmt::format("step {} of {}  loss {:.6g}  {:.1f} us a step", at.done, options_.steps,
                         value, (now - start_) / static_cast<double>(at.done) * 1e6));
}

void TrainLines::finish(const TrainResult& result) {
  line_.clear();
  if (!losses_) return;
  if (!result.losses.empty() && last_ != result.steps_done - 1)  // the training was interrupted
    print_loss(result.steps_done - 1, result.losses.back());
  measure::print((printed_ == 0 ? heading_text(options_) : "") + to_text(result));
}

}  // namespace brrr::cli
