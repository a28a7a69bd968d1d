// Random programs: a few steps over tensors, with views, writes through views, broadcasting and
// reductions. A program runs on brrr and, as a reference, in an interpreter with arrays of doubles
// and lists of indices. Its seed reproduces it on any machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/samples.h"

namespace brrr::test {

// The numbers of a program. Exact ones are small integers, which every order of summation adds
// exactly, so they are compared bit for bit; smooth ones go through exp, tanh and softmax
// in f64.
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

// A value of the interpreter: indices into a buffer that views share.
struct Model {
  std::shared_ptr<Values> buffer;
  std::vector<std::int64_t> places;
  Dims shape;

  Values values() const;
};

// Draws a program of `steps` steps whose values all stay finite and small.
Program draw_program(std::uint64_t seed, Numbers numbers, int steps);

// Every value of the program, inputs included, as it is at the end: a step that writes has its
// target as value.
std::vector<Model> interpret(const Program& program);
std::vector<Tensor> inputs_of(const Program& program, Device device);
std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs);
// The same, where `change` may replace the result of a step by another tensor of its shape.
using ChangeValue = std::function<Tensor(std::size_t step, const Tensor& value)>;
std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs,
                            const ChangeValue& change);

// The program without one of its steps and the steps that depend on it; targets of writes are kept.
Program without_step(const Program& program, std::size_t step);
// A minimal failing program, found by removing one step at a time.
Program shrink(Program program, const std::function<bool(const Program&)>& fails);

// "" if the tensors agree with the interpreter, else the first one that differs.
std::string program_difference(const Program& program, const std::vector<Tensor>& got);

}  // namespace brrr::test
