#include "cli/compare.h"

#include <fmt/format.h>

#include <memory>

#include "cli/text_output.h"

namespace brrr::cli {
namespace {

// Steps are eager with `--remat`, too.
measure::MakeStep maker_of(TrainOptions options) {
  return [options](Mode mode, Remat remat) mutable {
    options.mode = mode;
    options.remat = remat;
    if (mode != Mode::fused) options.rounding = Rounding::eager;
    return [training = std::make_shared<Training>(options)] { return training->step(); };
  };
}

}  // namespace

measure::Comparison compare(const TrainOptions& o, const CompareArguments& further,
                            const std::function<void(const std::string& what)>& progress) {
  measure::CompareOptions options{
      .device = o.toy.device,
      .steps = o.steps,
      .seconds = o.time_seconds,
      .seed = o.seed,
      .remat = o.remat,
      .all_policies = o.all_policies,
      .rounding = o.rounding,
      .dtype = o.toy.dtype,
      .timeline = further.timeline,
      .describes = fmt::format("{}, {}", work_text(o), o.optimizer),
      .facts = facts_of(o),
      .progress = progress,
  };
  if (further.double_batch) {
    TrainOptions doubled = o;
    doubled.toy.batch *= 2;
    options.doubled = maker_of(doubled);
  }
  return measure::compare(o.toy.model, maker_of(o), options);
}

}  // namespace brrr::cli
