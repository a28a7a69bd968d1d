// Schedules: functions of the number of completed steps, evaluated on the device from a counter in
// the state. Names and values are optax's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::optim {

class Schedule {
 public:
  // A function of `count`, the completed steps as a 0-d tensor.
  explicit Schedule(std::function<Tensor(const Tensor& count)> value);
  // A scalar expression over `a`, the completed steps: Schedule("0.1 / sqrt(a + 1)"). It is
  // compiled at the first step.
  explicit Schedule(const std::string& expression);

  // The value, counted from `begin`; `before` until then. join_schedules chains pieces.
  using Piece = std::function<Tensor(const Tensor& count, double begin, const Tensor& before)>;
  explicit Schedule(Piece piece) : piece_(std::move(piece)) {}

  Tensor operator()(const Tensor& count) const { return piece_(count, 0, count); }
  const Piece& piece() const { return piece_; }

 private:
  Piece piece_;
};

Schedule constant_schedule(double value);
// Linear from `init` to `end` over `steps` steps after the first `begin`; constant outside.
Schedule linear_schedule(double init, double end, std::int64_t steps, std::int64_t begin = 0);
// Half a cosine from `init` to alpha * init over `steps` steps; constant afterwards.
Schedule cosine_decay_schedule(double init, std::int64_t steps, double alpha = 0);
// Linear from `init` to `peak` over `warmup` steps, then a cosine that reaches `end` after `steps`
// steps in total.
Schedule warmup_cosine_decay_schedule(double init, double peak, std::int64_t warmup,
                                      std::int64_t steps, double end = 0);

// Pairs (boundary, factor), boundaries ascending: from each boundary on, the value is multiplied by
// its factor.
using Factors = std::vector<std::pair<std::int64_t, double>>;
Schedule piecewise_constant_schedule(double init, const Factors& factors);
// The same values at the boundaries, interpolated linearly between them.
Schedule piecewise_linear_schedule(double init, const Factors& factors);

// schedules[0], from boundaries[0] on schedules[1], and so on; each counts from its boundary. A
// linear or cosine schedule takes one launch, any other three more.
Schedule join_schedules(const std::vector<Schedule>& schedules,
                        const std::vector<std::int64_t>& boundaries);

// A counter of completed steps: f32, which saturates at 2^24.
Tensor step_counter(Device device);

}  // namespace brrr::optim
