#include "brrr/nn/optim/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <mutex>

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::optim {
namespace {

// Schedules of equal text share an op. Its name is a hash of the text, so that later processes find
// the kernel in the disk cache.
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

void require_finite(const char* function, std::initializer_list<double> values) {
  for (const double value : values) {
    if (!std::isfinite(value)) fail("[{}] expected finite values, got {}", function, value);
  }
}

void require_steps(const char* function, const char* name, std::int64_t steps,
                   std::int64_t least = 1) {
  if (steps < least) fail("[{}] expected {} of at least {}, got {}", function, name, least, steps);
}

void require_ascending(const char* function, const std::vector<std::int64_t>& boundaries) {
  for (std::size_t i = 0; i < boundaries.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : boundaries[i - 1];
    if (boundaries[i] <= before) {
      fail("[{}] expected positive boundaries in ascending order, got {} after {}", function,
           boundaries[i], before);
    }
  }
}

std::vector<std::int64_t> boundaries_of(const Factors& factors) {
  std::vector<std::int64_t> boundaries;
  for (const auto& each : factors) boundaries.push_back(each.first);
  return boundaries;
}

}  // namespace

Schedule::Schedule(std::function<Tensor(const Tensor& count)> value)
    : piece_([value = std::move(value)](const Tensor& count, double begin, const Tensor& before) {
        if (begin == 0) return value(count);
        return where(lt(count, begin), before, value(sub(count, begin)));
      }) {}

Schedule::Schedule(const std::string& expression)
    : Schedule([op = op_of(expression)](const Tensor& count) { return call_op(op, {count}); }) {}

Schedule constant_schedule(double value) {
  require_finite("constant_schedule", {value});
  return linear_schedule(value, value, 1);
}

Schedule linear_schedule(double init, double end, std::int64_t steps, std::int64_t begin) {
  constexpr const char* kName = "linear_schedule";
  require_steps(kName, "steps", steps);
  require_steps(kName, "begin", begin, 0);
  require_finite(kName, {init, end});
  return Schedule([=, delay = begin](const Tensor& count, double from, const Tensor& before) {
    return linear_rate({count, before, from, init, end, delay, steps})[0];
  });
}

Schedule cosine_decay_schedule(double init, std::int64_t steps, double alpha) {
  constexpr const char* kName = "cosine_decay_schedule";
  require_steps(kName, "steps", steps);
  require_finite(kName, {init, alpha});
  return Schedule([=](const Tensor& count, double begin, const Tensor& before) {
    return cosine_rate({count, before, begin, init, steps, alpha})[0];
  });
}

Schedule warmup_cosine_decay_schedule(double init, double peak, std::int64_t warmup,
                                      std::int64_t steps, double end) {
  constexpr const char* kName = "warmup_cosine_decay_schedule";
  require_steps(kName, "warmup", warmup);
  require_steps(kName, "steps", steps, warmup + 1);
  require_finite(kName, {init, peak, end});
  const double alpha = peak == 0 ? 0 : end / peak;
  return Schedule([=](const Tensor& count) {
    return warmup_cosine_rate({count, init, peak, warmup, steps - warmup, alpha})[0];
  });
}

Schedule piecewise_constant_schedule(double init, const Factors& factors) {
  require_ascending("piecewise_constant_schedule", boundaries_of(factors));
  std::vector<Schedule> values{constant_schedule(init)};
  for (const auto& each : factors) values.push_back(constant_schedule(init *= each.second));
  return join_schedules(values, boundaries_of(factors));
}

Schedule piecewise_linear_schedule(double init, const Factors& factors) {
  require_ascending("piecewise_linear_schedule", boundaries_of(factors));
  std::vector<Schedule> lines;
  std::int64_t from = 0;
  for (const auto& [boundary, factor] : factors) {
    lines.push_back(linear_schedule(init, init * factor, boundary - from));
    init *= factor;
    from = boundary;
  }
  lines.push_back(constant_schedule(init));
  return join_schedules(lines, boundaries_of(factors));
}

Schedule join_schedules(const std::vector<Schedule>& schedules,
                        const std::vector<std::int64_t>& boundaries) {
  if (schedules.size() != boundaries.size() + 1) {
    fail("[join_schedules] expected one schedule more than boundaries, got {} and {}",
         schedules.size(), boundaries.size());
  }
  require_ascending("join_schedules", boundaries);
  return Schedule([=](const Tensor& count, double begin, const Tensor& before) {
    Tensor value = schedules[0].piece()(count, begin, before);
    for (std::size_t i = 0; i < boundaries.size(); ++i) {
      value = schedules[i + 1].piece()(count, begin + static_cast<double>(boundaries[i]), value);
    }
    return value;
  });
}

Tensor step_counter(Device device) { return zeros({}, {.dtype = f32, .device = device}); }

}  // namespace brrr::optim
