// Transformations that multiply the updates, or add a multiple of the parameters.
#pragma once

#include <variant>

#include <brrr/nn/optim/coefficient.h>
#include <brrr/nn/optim/schedule.h>
#include <brrr/nn/optim/transformation.h>

namespace brrr::optim {

// A number, a 0-d tensor or a schedule.
using LearningRate = std::variant<Coefficient, Schedule>;

// This step's rate. A schedule counts the step, in a state that scale_by_learning_rate made.
Coefficient next_rate(const LearningRate& rate, State& state);

Transformation scale(const Coefficient& factor);

// By the schedule's value at the number of steps done, 0 at the first. State: count.
Transformation scale_by_schedule(const Schedule& schedule);

// By the negative rate: updates that go down. At the end of a chain it takes one launch to multiply
// and to add to the parameters.
Transformation scale_by_learning_rate(const LearningRate& rate);

// updates + rate * params.
Transformation add_decayed_weights(const Coefficient& rate);

}  // namespace brrr::optim
