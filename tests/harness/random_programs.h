// Random programs: a few steps over tensors, with views, writes through views, broadcasting and
// reductions. A program runs on brrr and, for the truth, in an interpreter that knows only arrays
// of doubles and lists of places. Its seed makes it again on any machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/samples.h"

namespace brrr::test {

// What numbers a program works on. Exact ones are small whole numbers, where every honest order of
// summation gives the same result, so they are compared bit for bit; smooth ones go through exp,
// tanh and softmax in f64.
enum class Numbers { exact_f32, exact_i32, exact_i64, smooth_f64 };
const char* name_of(Numbers numbers);
DType dtype_of_numbers(Numbers numbers);

struct Step {
  std::string op;                    // "add", "add_", "slice", ...
  std::vector<int> arguments;        // values by number: inputs first, then one for each step
  std::vector<std::int64_t> counts;  // dims, ranges, shapes
  double number = 0;                 // the number operand of steps that have one
};

struct Program {
  std::uint64_t seed = 0;
  Numbers numbers = Numbers::exact_f32;
  std::vector<Dims> input_shapes;
  std::vector<Values> inputs;
  std::vector<Step> steps;

  std::string text() const;
};

// A value of the interpreter: places in a buffer that views share.
struct Model {
  std::shared_ptr<Values> buffer;
  std::vector<std::int64_t> places;
  Dims shape;

  Values values() const;
};

// Draws a program of `steps` steps whose values all stay finite and small.
Program draw_program(std::uint64_t seed, Numbers numbers, int steps);

// Every value that the program makes, inputs included, as they are at the end: a step that writes
// gives its target again.
std::vector<Model> interpret(const Program& program);
std::vector<Tensor> inputs_of(const Program& program, Device device);
std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs);
// The same, where `change` may put another tensor of its shape in the place of what a step gave.
using ChangeValue = std::function<Tensor(std::size_t step, const Tensor& value)>;
std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs,
                            const ChangeValue& change);

// The program without one of its steps and all that needs it; what a step writes to stays there.
Program without_step(const Program& program, std::size_t step);
// As few steps as still fail, found by leaving out one after another.
Program shrink(Program program, const std::function<bool(const Program&)>& fails);

// "" when the tensors are what the interpreter says, else which one is not.
std::string program_difference(const Program& program, const std::vector<Tensor>& got);

}  // namespace brrr::test
