// Values that depend on the number of steps done, evaluated on the device from a counter that lives
// there. Names and values are optax's.
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
  // From the steps done, a 0-d tensor, to the value, over public functions.
  explicit Schedule(std::function<Tensor(const Tensor& count)> value);
  // In the language of ops.def, `a` being the steps done: Schedule("0.1 / sqrt(a + 1)"). The CPU
  // compiles it at the first step.
  explicit Schedule(const std::string& expression);

  // The value counted from `begin` on, and `before` until then: what schedules are joined of.
  using Piece = std::function<Tensor(const Tensor& count, double begin, const Tensor& before)>;
  explicit Schedule(Piece piece) : piece_(std::move(piece)) {}

  Tensor operator()(const Tensor& count) const { return piece_(count, 0, count); }
  const Piece& piece() const { return piece_; }

 private:
  Piece piece_;
};

Schedule constant_schedule(double value);
// From `init` to `end` in `steps` steps that start after `begin` steps; constant before and after.
Schedule linear_schedule(double init, double end, std::int64_t steps, std::int64_t begin = 0);
// Half a cosine from `init` to alpha * init in `steps` steps, constant after.
Schedule cosine_decay_schedule(double init, std::int64_t steps, double alpha = 0);
// Linear from `init` to `peak` in `warmup` steps, then a cosine that reaches `end` after `steps`
// steps in all.
Schedule warmup_cosine_decay_schedule(double init, double peak, std::int64_t warmup,
                                      std::int64_t steps, double end = 0);

// Places (a number of steps done, a factor), in rising order. From each place on, the value is
// multiplied by its factor.
using Places = std::vector<std::pair<std::int64_t, double>>;
Schedule piecewise_constant_schedule(double init, const Places& places);
// The same values at the places, and straight lines between them.
Schedule piecewise_linear_schedule(double init, const Places& places);

// schedules[0], from boundaries[0] on schedules[1], and so on; each counts from its boundary. Lines
// and cosines take a launch each, other schedules three more.
Schedule join_schedules(const std::vector<Schedule>& schedules,
                        const std::vector<std::int64_t>& boundaries);

// A counter of steps done: f32, which counts to 2^24 and stays there.
Tensor step_counter(Device device);

}  // namespace brrr::optim
