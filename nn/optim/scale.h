// Transformations that multiply the updates, or add a multiple of the parameters.
#pragma once

#include <variant>

#include <brrr/nn/optim/coefficient.h>
#include <brrr/nn/optim/schedule.h>
#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// A number, a 0-d tensor or a schedule.
using LearningRate = std::variant<Coefficient, Schedule>;

// This step's rate. Advances a schedule's counter, in a state of scale_by_learning_rate.
Coefficient next_rate(const LearningRate& rate, State& state);

Transformation scale(const Coefficient& factor);

// Scales by the schedule's value at the number of completed steps, 0 in the first. State: count.
Transformation scale_by_schedule(const Schedule& schedule);

// Scales by the negative rate, for gradient descent. At the end of a chain one launch multiplies
// and adds to the parameters.
Transformation scale_by_learning_rate(const LearningRate& rate);

// updates + rate * params.
Transformation add_decayed_weights(const Coefficient& rate);

}  // namespace brrr::optim
