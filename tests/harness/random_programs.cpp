// How random programs are drawn, run on brrr and printed.
#include "tests/harness/random_programs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "brrr/ops/functions.h"
#include "tests/harness/op_harness.h"

namespace brrr::test {

const char* name_of(Numbers numbers) {
  switch (numbers) {
    case Numbers::exact_f32: return "exact f32";
    case Numbers::exact_i32: return "exact i32";
    case Numbers::exact_i64: return "exact i64";
    case Numbers::smooth_f64: return "smooth f64";
  }
  return "";
}

DType dtype_of_numbers(Numbers numbers) {
  switch (numbers) {
    case Numbers::exact_f32: return f32;
    case Numbers::exact_i32: return i32;
    case Numbers::exact_i64: return i64;
    default: return f64;
  }
}

namespace {

// A name with # takes a number as its last operand.
const std::vector<std::string> kExactUnary = {"neg", "abs", "relu", "sign"};
const std::vector<std::string> kExactBinary = {"add",  "sub",  "mul",  "maximum", "minimum",
                                               "add#", "sub#", "mul#", "maximum#"};
const std::vector<std::string> kSmoothUnary = {"neg",     "abs",      "relu", "exp", "tanh",
                                               "sigmoid", "gelu",     "silu", "sin", "cos",
                                               "square",  "softplus", "erf"};
const std::vector<std::string> kReduce = {"sum", "max", "min"};
const std::vector<std::string> kViews = {"permute",   "slice",  "select",
                                         "unsqueeze", "expand", "reshape"};

class Drawing {
 public:
  Drawing(std::uint64_t seed, Numbers numbers)
      : random_(seed * 4 + static_cast<std::uint64_t>(numbers)) {
    program_.seed = seed;
    program_.numbers = numbers;
    const int count = 2 + static_cast<int>(random_.below(3));
    for (int i = 0; i < count; ++i) {
      Dims shape;
      for (std::int64_t d = random_.below(4); d > 0; --d) shape.push_back(1 + random_.below(5));
      Values values(static_cast<std::size_t>(numel_of(shape)));
      for (double& v : values)
        v = smooth() ? random_.uniform(-2, 2) : static_cast<double>(random_.below(7) - 3);
      program_.input_shapes.push_back(shape);
      program_.inputs.push_back(values);
    }
    values_ = interpret(program_);
  }

  Program draw(int steps) {
    for (int tries = 0; static_cast<int>(program_.steps.size()) < steps && tries < 60 * steps;
         ++tries) {
      Step step;
      if (!propose(step)) continue;
      program_.steps.push_back(step);
      std::vector<Model> values = interpret(program_);
      if (small(values)) {
        values_ = std::move(values);
      } else {
        program_.steps.pop_back();
      }
    }
    return program_;
  }

 private:
  bool smooth() const { return program_.numbers == Numbers::smooth_f64; }
  int any() { return static_cast<int>(random_.below(static_cast<std::int64_t>(values_.size()))); }
  const Model& at(int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::string pick(const std::vector<std::string>& names) {
    return names[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(names.size())))];
  }

  // Exact values must stay so small that no sum of them rounds in f32; smooth ones so small that no
  // error grows.
  bool small(const std::vector<Model>& values) const {
    const double most = smooth() ? 30 : 500;
    std::size_t elements = 0;
    for (const Model& model : values) {
      elements += model.places.size();
      if (model.places.size() > 600) return false;
      for (double v : model.values()) {
        if (!(std::fabs(v) <= most)) return false;
      }
    }
    return elements < 20000;
  }

  static bool broadcasts(const Dims& a, const Dims& b, Dims* result = nullptr) {
    Dims shape = a.size() < b.size() ? b : a;
    for (int i = 1; i <= shape.size(); ++i) {
      const std::int64_t da = i <= a.size() ? a[a.size() - i] : 1,
                         db = i <= b.size() ? b[b.size() - i] : 1;
      if (da != db && da != 1 && db != 1) return false;
      shape[shape.size() - i] = da == 1 ? db : da;
    }
    if (result) *result = shape;
    return true;
  }

  // Each place once: what may be written through.
  static bool writable(const Model& x) {
    return std::set<std::int64_t>(x.places.begin(), x.places.end()).size() == x.places.size();
  }
  // An operand of a write must be elsewhere, or be the very same view.
  static bool are_disjoint(const Model& target, const Model& x) {
    return target.buffer != x.buffer || (target.places == x.places && target.shape == x.shape);
  }
  static bool consecutive(const Model& x) {
    for (std::size_t i = 1; i < x.places.size(); ++i) {
      if (x.places[i] != x.places[i - 1] + 1) return false;
    }
    return true;
  }

  double draw_number() {
    return smooth() ? random_.uniform(-1.5, 1.5) : static_cast<double>(random_.below(5) - 2);
  }

  bool propose(Step& step) {
    switch (random_.below(12)) {
      case 0:
      case 1: step = {pick(smooth() ? kSmoothUnary : kExactUnary), {any()}, {}}; return true;
      case 2:
      case 3: return propose_binary(step);
      case 4:
      case 5: return propose_write(step);
      case 6:
      case 7:
      case 8: return propose_view(step);
      case 9: return propose_reduction(step);
      case 10: return propose_ternary(step);
      default: return propose_structured(step);
    }
  }

  bool propose_binary(Step& step) {
    step.op = pick(kExactBinary);
    step.arguments = {any()};
    if (step.op.back() == '#') {
      step.number = draw_number();
      return true;
    }
    step.arguments.push_back(any());
    return broadcasts(at(step.arguments[0]).shape, at(step.arguments[1]).shape);
  }

  bool propose_ternary(Step& step) {
    step = {"addcmul", {any(), any(), any()}, {}};
    Dims shape;
    return broadcasts(at(step.arguments[0]).shape, at(step.arguments[1]).shape, &shape) &&
           broadcasts(shape, at(step.arguments[2]).shape);
  }

  bool propose_write(Step& step) {
    const int target = any();
    if (!writable(at(target))) return false;
    step.arguments = {target};
    const std::int64_t kind = random_.below(5);
    if (kind == 0) {
      step.op = "fill_";
      step.number = draw_number();
      return true;
    }
    if (kind == 1) {
      step.op = smooth() ? "tanh_" : "relu_";
      return true;
    }
    if (kind == 2) {
      step.op = "mul#_";
      step.number = draw_number();
      return true;
    }
    const int other = any();
    step.op = kind == 3 ? "add_" : random_.below(2) ? "copy_" : "mul_";
    step.arguments.push_back(other);
    Dims shape;
    return are_disjoint(at(target), at(other)) &&
           broadcasts(at(target).shape, at(other).shape, &shape) && shape == at(target).shape;
  }

  bool propose_view(Step& step) {
    step = {pick(kViews), {any()}, {}};
    const Model& x = at(step.arguments[0]);
    const int rank = x.shape.size();
    if (step.op == "permute") {
      for (int d = 0; d < rank; ++d) step.counts.push_back(d);
      for (int d = rank - 1; d > 0; --d) {
        std::swap(step.counts[static_cast<std::size_t>(d)],
                  step.counts[static_cast<std::size_t>(random_.below(d + 1))]);
      }
      return rank >= 2;
    }
    if (step.op == "unsqueeze") {
      step.counts = {random_.below(rank + 1)};
      return rank < 5;
    }
    if (step.op == "expand") {
      for (std::int64_t d : x.shape) step.counts.push_back(d == 1 ? 1 + random_.below(4) : d);
      if (random_.below(2)) step.counts.insert(step.counts.begin(), 1 + random_.below(3));
      return step.counts.size() <= 5;
    }
    if (step.op == "reshape") {
      if (!consecutive(x)) return false;
      std::int64_t left = static_cast<std::int64_t>(x.places.size());
      while (left > 1 && step.counts.size() < 4) {
        const std::int64_t factor = 1 + random_.below(left);
        if (left % factor) continue;
        step.counts.push_back(factor);
        left /= factor;
      }
      if (left > 1) step.counts.push_back(left);
      return true;
    }
    if (rank == 0) return false;
    const std::int64_t dim = random_.below(rank), size = x.shape[static_cast<int>(dim)];
    if (step.op == "select") {
      step.counts = {dim, random_.below(size)};
    } else {
      const std::int64_t start = random_.below(size);
      step.counts = {dim, start, start + 1 + random_.below(size - start), 1 + random_.below(3)};
    }
    return true;
  }

  bool propose_reduction(Step& step) {
    step = {smooth() && random_.below(2) ? "mean" : pick(kReduce), {any()}, {}};
    const int rank = at(step.arguments[0]).shape.size();
    if (rank == 0) return false;
    step.counts = {random_.below(rank), random_.below(2)};
    return true;
  }

  bool propose_structured(Step& step) {
    step.arguments = {any()};
    const Dims& shape = at(step.arguments[0]).shape;
    const int rank = shape.size();
    const bool whole =
        program_.numbers == Numbers::exact_i32 || program_.numbers == Numbers::exact_i64;
    switch (random_.below(6)) {
      case 0: step.op = "clone"; return true;
      case 1: {
        step.op = "matmul";
        const int other = any();
        step.arguments.push_back(other);
        return !whole && rank == 2 && at(other).shape.size() == 2 && shape[1] == at(other).shape[0];
      }
      case 2: step.op = "tril"; return rank >= 2;
      case 3: step.op = smooth() ? "softmax" : "cumsum"; break;
      case 4: step.op = "cumsum"; break;
      default: {
        step.op = "cat";
        const int other = any();
        step.arguments.push_back(other);
        if (rank == 0 || at(other).shape.size() != rank) return false;
        step.counts = {random_.below(rank)};
        for (int d = 0; d < rank; ++d) {
          if (d != step.counts[0] && shape[d] != at(other).shape[d]) return false;
        }
        return true;
      }
    }
    if (rank == 0) return false;
    step.counts = {random_.below(rank)};
    return true;
  }

  Random random_;
  Program program_;
  std::vector<Model> values_;
};

Scalar number_of(const Step& step, Numbers numbers) {
  if (numbers == Numbers::exact_i32 || numbers == Numbers::exact_i64)
    return Scalar(static_cast<std::int64_t>(step.number));
  return Scalar(step.number);
}

const Pointwise* find_pointwise(const std::string& name) {
  for (const Pointwise& row : pointwise_ops()) {
    if (name == op_info(row.op).name) return &row;
  }
  return nullptr;
}

Tensor run_pointwise(const std::string& op, const std::vector<Tensor>& in, const Step& step,
                     Numbers numbers, bool write) {
  const bool numbered = op.ends_with("#");
  const Pointwise* row = find_pointwise(numbered ? op.substr(0, op.size() - 1) : op);
  std::vector<Operand> operands;
  for (const Tensor& t : in) operands.push_back({t, {}});
  if (numbered) operands.push_back({{}, number_of(step, numbers)});
  if (!write) return row->call(operands);
  Tensor target = in[0];
  row->call_in_place(target, std::span(operands).subspan(1));
  return target;
}

Tensor run_on_brrr(const Step& step, const std::vector<Tensor>& in, Numbers numbers) {
  const std::string& op = step.op;
  const auto& c = step.counts;
  const int dim = c.empty() ? 0 : static_cast<int>(c[0]);
  const Dims list{std::span<const std::int64_t>(
      c.data(), op == "permute" || op == "expand" || op == "reshape" ? c.size() : 0)};
  if (op == "permute") return permute(in[0], list);
  if (op == "expand") return expand(in[0], list);
  if (op == "reshape") return reshape(in[0], list);
  if (op == "slice") return slice(in[0], dim, c[1], c[2], c[3]);
  if (op == "select") return select(in[0], dim, c[1]);
  if (op == "unsqueeze") return unsqueeze(in[0], dim);
  if (op == "clone") return clone(in[0]);
  if (op == "matmul") return matmul(in[0], in[1]);
  if (op == "softmax") return softmax(in[0], dim);
  if (op == "cumsum") return cumsum(in[0], dim);
  if (op == "tril") return tril(in[0]);
  if (op == "cat") return cat({in[0], in[1]}, dim);
  Tensor target = in[0];
  if (op == "copy_") return copy_(target, in[1]);
  if (op == "fill_") return fill_(target, number_of(step, numbers));
  for (const Reduction& row : reduction_ops()) {
    if (op == op_info(row.op).name) return row.over(in[0], {c[0]}, c[1]);
  }
  const bool write = op.back() == '_';
  return run_pointwise(write ? op.substr(0, op.size() - 1) : op, in, step, numbers, write);
}

}  // namespace

Program draw_program(std::uint64_t seed, Numbers numbers, int steps) {
  return Drawing(seed, numbers).draw(steps);
}

std::vector<Tensor> inputs_of(const Program& program, Device device) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    inputs.push_back(make_sample(program.inputs[i], program.input_shapes[i],
                                 dtype_of_numbers(program.numbers), Layout::contiguous, device)
                         .tensor);
  }
  return inputs;
}

std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs) {
  return execute(program, inputs, [](std::size_t, const Tensor& value) { return value; });
}

std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs,
                            const ChangeValue& change) {
  std::vector<Tensor> values = inputs;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    std::vector<Tensor> in;
    for (int argument : step.arguments) in.push_back(values[static_cast<std::size_t>(argument)]);
    values.push_back(change(i, run_on_brrr(step, in, program.numbers)));
  }
  return values;
}

Program without_step(const Program& program, std::size_t removed) {
  Program shorter = program;
  shorter.steps.clear();
  const int inputs = static_cast<int>(program.inputs.size());
  std::vector<int> now;  // the number of each value; -1: it is gone
  for (int i = 0; i < inputs; ++i) now.push_back(i);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    Step step = program.steps[i];
    const int target = now[static_cast<std::size_t>(step.arguments[0])];
    bool lost = false;
    for (int& argument : step.arguments) {
      argument = now[static_cast<std::size_t>(argument)];
      lost = lost || argument < 0;
    }
    if (i == removed || lost) {
      now.push_back(step.op.back() == '_' ? target : -1);
      continue;
    }
    now.push_back(inputs + static_cast<int>(shorter.steps.size()));
    shorter.steps.push_back(std::move(step));
  }
  return shorter;
}

Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  for (std::size_t i = program.steps.size(); i-- > 0;) {
    if (i >= program.steps.size()) continue;
    if (Program shorter = without_step(program, i); fails(shorter)) program = std::move(shorter);
  }
  return program;
}

std::string program_difference(const Program& program, const std::vector<Tensor>& got) {
  const std::vector<Model> expected = interpret(program);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    Match match;
    match.exact = program.numbers != Numbers::smooth_f64;
    const std::string problem =
        difference(got[i], got[i].dtype(), expected[i].shape, expected[i].values(), match);
    if (!problem.empty()) return "v" + std::to_string(i) + ": " + problem;
  }
  return "";
}

std::string Program::text() const {
  std::string text = "seed " + std::to_string(seed) + ", " + name_of(numbers) + "\n";
  for (std::size_t i = 0; i < input_shapes.size(); ++i) {
    text += "v" + std::to_string(i) + " = input" + to_string(input_shapes[i]) + "\n";
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    text += "v" + std::to_string(input_shapes.size() + i) + " = " + step.op + "(";
    for (std::size_t k = 0; k < step.arguments.size(); ++k)
      text += (k ? ", v" : "v") + std::to_string(step.arguments[k]);
    for (std::int64_t count : step.counts) text += ", " + std::to_string(count);
    if (step.op.find('#') != std::string::npos || step.op == "fill_")
      text += ", " + std::to_string(step.number);
    text += ")\n";
  }
  return text;
}

}  // namespace brrr::test
