#include "brrr/measure/step.h"

#include <vector>

#include <fmt/format.h>

#include <cmath>

#include "brrr/ops/functions.h"

namespace brrr::measure {

const char* name_of(Mode mode) {
  return mode == Mode::fused ? "fused" : mode == Mode::graph ? "graph" : "eager";
}

const char* name_of(Rounding rounding) { return rounding == Rounding::fast ? "fast" : "eager"; }

std::string name_of(Remat remat) {
  switch (remat.kind()) {
    case Remat::Kind::none: break;
    case Remat::Kind::min_cut: return "min_cut";
    case Remat::Kind::full: return "full";
    case Remat::Kind::budget: {
      const double percent = 100 * remat.fraction();
      return percent == std::round(percent) ? fmt::format("budget={:.2f}", remat.fraction())
                                            : fmt::format("budget={:g}", remat.fraction());
    }
  }
  return "none";
}

void Losses::add(Tensor loss) {
  constexpr std::size_t kMost = 1024;
  unread_.push_back(std::move(loss));
  if (unread_.size() == kMost) values();
}

std::vector<double>& Losses::values() {
  if (unread_.empty()) return values_;
  const std::vector<float> read = to_vector<float>(to(stack(unread_), f32));
  values_.insert(values_.end(), read.begin(), read.end());
  unread_.clear();
  return values_;
}

}  // namespace brrr::measure
