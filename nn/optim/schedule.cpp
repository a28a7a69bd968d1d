#include "brrr/nn/optim/schedule.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <map>
#include <mutex>

#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/error.h"

namespace brrr::optim {
namespace {

// Two schedules of one text are one op. The name comes of the text, so that a kernel kept on disk
// is found again.
Op op_of(const std::string& expression) {
  const CompositeScope scope("Schedule");
  static std::mutex mutex;
  static std::map<std::string, Op> ops;
  const std::lock_guard lock(mutex);
  const auto found = ops.find(expression);
  if (found != ops.end()) return found->second;
  const Op op = register_op(
      PointwiseOp{.name = fmt::format("schedule_{:016x}", std::hash<std::string>()(expression)),
                  .expression = expression});
  return ops.emplace(expression, op).first->second;
}

std::string text_of(const char* function, double value) {
  if (!std::isfinite(value))
    fail(fmt::format("[{}] expected finite values, got {}", function, value));
  return value < 0 ? fmt::format("(-{})", -value) : fmt::format("{}", value);
}

void require_steps(const char* function, const char* name, std::int64_t steps,
                   std::int64_t least = 1) {
  if (steps < least) {
    fail(fmt::format("[{}] expected {} of at least {}, got {}", function, name, least, steps));
  }
}

void require_rising(const char* function, const std::vector<std::int64_t>& boundaries) {
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : boundaries[i - 1];
    if (boundaries[i] <= before) {
      fail(fmt::format("[{}] expected boundaries that rise from above 0, got {} after {}", function,
                       boundaries[i], before));
    }
  }
}

std::vector<std::int64_t> boundaries_of(const Places& places) {
  std::vector<std::int64_t> boundaries;
  for (const auto& place : places) boundaries.push_back(place.first);
  return boundaries;
}

// The expression with a count that starts at `boundary`.
std::string counted_from(std::int64_t boundary, const std::string& expression) {
  const auto is_name = [&](std::size_t i) {
    return i < expression.size() &&
           (std::isalnum(static_cast<unsigned char>(expression[i])) || expression[i] == '_');
  };
  std::string shifted;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const bool count = expression[i] == 'a' && !is_name(i + 1) && (i == 0 || !is_name(i - 1));
    shifted += count ? fmt::format("(a - {})", boundary) : std::string(1, expression[i]);
  }
  return shifted;
}

}  // namespace

Schedule::Schedule(const std::string& expression)
    : expression_(expression), op_(op_of(expression)) {}

Tensor Schedule::operator()(const Tensor& count) const { return call_op(op_, {count}); }

Schedule constant_schedule(double value) { return Schedule(text_of("constant_schedule", value)); }

Schedule linear_schedule(double init, double end, std::int64_t steps, std::int64_t begin) {
  constexpr const char* kName = "linear_schedule";
  require_steps(kName, "steps", steps);
  require_steps(kName, "begin", begin, 0);
  return Schedule(fmt::format("{} + ({} - {}) * minimum(maximum((a - {}) / {}, 0), 1)",
                              text_of(kName, init), text_of(kName, end), text_of(kName, init),
                              begin, steps));
}

Schedule cosine_decay_schedule(double init, std::int64_t steps, double alpha) {
  constexpr const char* kName = "cosine_decay_schedule";
  require_steps(kName, "steps", steps);
  const std::string part = text_of(kName, alpha);
  return Schedule(fmt::format(
      "{} * ((1 - {}) * 0.5 * (1 + cos(3.14159265358979323846 * minimum(a / {}, 1))) + {})",
      text_of(kName, init), part, steps, part));
}

Schedule warmup_cosine_decay_schedule(double init, double peak, std::int64_t warmup,
                                      std::int64_t steps, double end) {
  constexpr const char* kName = "warmup_cosine_decay_schedule";
  require_steps(kName, "warmup", warmup);
  require_steps(kName, "steps", steps, warmup + 1);
  return join_schedules({linear_schedule(init, peak, warmup),
                         cosine_decay_schedule(peak, steps - warmup, peak == 0 ? 0 : end / peak)},
                        {warmup});
}

Schedule piecewise_constant_schedule(double init, const Places& places) {
  require_rising("piecewise_constant_schedule", boundaries_of(places));
  std::vector<Schedule> values{constant_schedule(init)};
  for (const auto& place : places) values.push_back(constant_schedule(init *= place.second));
  return join_schedules(values, boundaries_of(places));
}

Schedule piecewise_linear_schedule(double init, const Places& places) {
  require_rising("piecewise_linear_schedule", boundaries_of(places));
  std::vector<Schedule> lines;
  std::int64_t from = 0;
  for (const auto& [place, factor] : places) {
    lines.push_back(linear_schedule(init, init * factor, place - from));
    init *= factor;
    from = place;
  }
  lines.push_back(constant_schedule(init));
  return join_schedules(lines, boundaries_of(places));
}

Schedule join_schedules(const std::vector<Schedule>& schedules,
                        const std::vector<std::int64_t>& boundaries) {
  if (schedules.size() != boundaries.size() + 1) {
    fail(fmt::format("[join_schedules] expected one schedule more than boundaries, got {} and {}",
                     schedules.size(), boundaries.size()));
  }
  require_rising("join_schedules", boundaries);
  std::string joined = schedules[0].expression();
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    joined = fmt::format("where(a < {}, {}, {})", boundaries[i], joined,
                         counted_from(boundaries[i], schedules[i + 1].expression()));
  }
  return Schedule(joined);
}

Tensor step_counter(Device device) { return zeros({}, {.dtype = f32, .device = device}); }

}  // namespace brrr::optim
