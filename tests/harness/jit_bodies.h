// Bodies of several ops, with operands and an f64 reference each, for tests of generated kernels on
// the CPU and on CUDA. Eager renders bodies of one op only.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/jit_rows.h"
#include <brrr/ops/functions.h>
#include <brrr/ops/jit/cpu_compiler.h>
#include <brrr/ops/jit/cpu_kernel.h>
#include <brrr/tensor/tensor_impl.h>

namespace brrr::testing {

struct Case {
  Body body;
  Dims dims;
  unsigned reduced = 0;         // dimensions that rows consist of, as bits
  std::vector<Tensor> inputs;   // on the CPU; shapes broadcast to `dims`, unless they are read
  std::map<int, Dims> strides;  // by address: of such inputs
  std::vector<Dims> outputs;    // shapes; reduced dimensions are 1 in those of rows
  std::vector<std::uint64_t> scalars;
  std::vector<Dims> coordinates;  // strides of each, over `dims`
  // Of output `output`, the element numbered `i` in the shape that it has.
  std::function<double(int output, std::int64_t i)> reference;
  double tolerance = 1e-6;
};

inline std::uint64_t bits_of(double value, DType dtype) {
  if (dtype == f64) return std::bit_cast<std::uint64_t>(value);
  if (dtype == f32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

// The dimensions of a case with all operands, in the order of a kernel's spaces.
inline StridedSpace space_of(const Case& c, const std::vector<Tensor>& inputs,
                             const std::vector<Tensor>& outputs) {
  StridedSpace space = brrr::space_of(c.dims);
  const auto add_outputs = [&] {
    for (const Tensor& t : outputs) add_operand(space, t);
  };
  if (!c.body.reduces()) add_outputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (const auto given = c.strides.find(static_cast<int>(i)); given != c.strides.end()) {
      add_operand(space, c.dims, given->second);
    } else {
      add_operand(space, inputs[i]);
    }
  }
  for (const Dims& strides : c.coordinates) add_operand(space, c.dims, strides);
  if (c.body.reduces()) add_outputs();
  return space;
}

inline std::vector<Tensor> outputs_of(const Case& c, Device device) {
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    outputs.push_back(make_tensor(c.body.outputs[i].dtype, c.outputs[i], device));
  return outputs;
}

// How a kernel on the CPU walks through a case.
struct CpuSpaces {
  StridedSpace space, reduced;
  CpuOrder order;
  CpuWalk walk;

  CpuSpaces(const Case& c, const std::vector<Tensor>& outputs) {
    const StridedSpace all = space_of(c, c.inputs, outputs);
    space = choose_dims(all, ~c.reduced);
    reduced = choose_dims(all, c.reduced);
    sort_dims(space);
    coalesce(space);
    coalesce(reduced);
    if (c.body.reduces()) order = cpu_order(space, reduced, 0);
    walk = cpu_walk(c.body, space, reduced, order);
  }
};

// Runs the body's function, which was rendered for `walk`.
inline void run_function_on_cpu(const Case& c, const std::vector<Tensor>& outputs, CpuFault* fault,
                                const CpuSpaces& spaces, const CpuWalk& walk,
                                CpuFunction function) {
  std::vector<void*> out;
  std::vector<const void*> in;
  for (const Tensor& t : outputs) out.push_back(t.data());
  for (const Tensor& t : c.inputs) in.push_back(t.data());
  CpuArguments arguments;
  arguments.outputs = out.data();
  arguments.inputs = in.data();
  arguments.scalars = c.scalars.data();
  arguments.space = &spaces.space;
  arguments.reduced = &spaces.reduced;
  arguments.run = spaces.order.run;
  arguments.piece = spaces.order.piece;
  arguments.block = spaces.order.block;
  arguments.fault = fault;
  std::vector<std::uint64_t> parts;
  if (walk.splits) {
    const std::int64_t width = walk.by_columns ? walk.tile : 1,
                       tiles = (spaces.space.count() - 1) / width + 1,
                       blocks = tiles * ((spaces.reduced.count() - 1) / spaces.order.block + 1);
    parts.resize(static_cast<std::size_t>(blocks * width) * c.body.values.size());
    arguments.parts = parts.data();
    for (std::int64_t block = blocks; block-- > 0;) function(arguments, block, block + 1);
    function(arguments, 0, 0);
    return;
  }
  // In ranges, as a pool of threads splits them.
  constexpr int ranges = 3;
  const std::int64_t unit = walk.by_columns ? std::max<std::int64_t>(1, walk.tile) : 1,
                     rows = spaces.space.count(), count = (rows - 1) / unit + 1;
  for (int r = 0; r < ranges; ++r)
    function(arguments, count * r / ranges * unit, std::min(rows, count * (r + 1) / ranges * unit));
}
inline void run_text_on_cpu(const Case& c, const std::vector<Tensor>& outputs, CpuFault* fault,
                            const CpuSpaces& spaces, const CpuWalk& walk, const std::string& text) {
  run_function_on_cpu(c, outputs, fault, spaces, walk,
                      reinterpret_cast<CpuFunction>(load_cpu_function(c.body.name.c_str(), text)));
}
// `texts` have the body's by rows and by columns, where several were rendered together for any
// layout; without them the body is rendered for its own.
inline void run_on_cpu(const Case& c, const std::vector<Tensor>& outputs, CpuFault* fault,
                       const std::string* texts) {
  const CpuSpaces spaces(c, outputs);
  if (texts) {
    run_text_on_cpu(c, outputs, fault, spaces, {}, texts[spaces.order.by_columns]);
  } else {
    run_text_on_cpu(c, outputs, fault, spaces, spaces.walk, render_cpu(c.body, spaces.walk));
  }
}
// Each case rendered for its own layout, all of them together.
inline std::vector<std::vector<Tensor>> run_all_on_cpu(std::vector<Case> cases) {
  std::string text;
  std::vector<std::vector<Tensor>> outputs;
  std::vector<CpuSpaces> spaces;
  for (Case& c : cases) {
    c.body.name += "_" + std::to_string(outputs.size());
    outputs.push_back(outputs_of(c, cpu));
    spaces.emplace_back(c, outputs.back());
    text += render_cpu(c.body, spaces.back().walk);
  }
  for (std::size_t i = 0; i < cases.size(); ++i)
    run_text_on_cpu(cases[i], outputs[i], nullptr, spaces[i], spaces[i].walk, text);
  return outputs;
}
inline std::vector<Tensor> run_on_cpu(const Case& c, CpuFault* fault = nullptr,
                                      const std::string* texts = nullptr) {
  std::vector<Tensor> outputs = outputs_of(c, cpu);
  run_on_cpu(c, outputs, fault, texts);
  return outputs;
}

// The largest difference from the reference, relative to values above 1.
inline double error_of(const Case& c, const std::vector<Tensor>& outputs) {
  double most = 0;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const Tensor values = cast(outputs[o], f64);
    const double* at = values.data<double>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const double wanted = c.reference(static_cast<int>(o), i);
      const double error = std::abs(at[i] - wanted) / std::max(1.0, std::abs(wanted));
      most = std::isnan(error) ? INFINITY : std::max(most, error);
    }
  }
  return most;
}

// --- Bodies -------------------------------------------------------------------------------------

// Values of a body by the names of rows.
struct Builder {
  Body body;
  DType type;

  Builder(const std::string& name, DType t) : type(t) { body.name = name; }
  int op(std::string_view name, std::vector<int> operands) {
    return add_pointwise(body, row_named(name), type, type, operands);
  }
  int reduce(std::string_view name, int operand) {
    return add_reduction(body, row_named(name), type, operand);
  }
};

inline Tensor sample(DType dtype, const Dims& shape, int seed) {
  const Tensor values = make_tensor(f64, shape, cpu);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const auto mixed = static_cast<std::uint32_t>((i + 1) * 2654435761u + seed * 40503u);
    values.data<double>()[i] = (mixed >> 8) % 4096 / 1024.0 - 2;
  }
  return cast(values, dtype);
}
inline double at(const Tensor& t, std::int64_t i) { return cast(t, f64).data<double>()[i]; }
inline std::vector<double> values_of(const Tensor& t) {
  const Tensor wide = contiguous(cast(t, f64));
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

// Softmax of the rows of a matrix, or of its columns.
inline Case softmax_case(DType dtype, std::int64_t rows, std::int64_t cols,
                         bool of_columns = false) {
  Builder b(of_columns ? "softmax_columns" : "softmax_rows", dtype);
  const int x = b.body.add_input(dtype);
  const int shifted = b.op("exp", {b.op("sub", {x, b.reduce("max", x)})});
  b.body.add_output(b.op("div", {shifted, b.reduce("sum", shifted)}), dtype);
  Case c{b.body,
         {rows, cols},
         of_columns ? 1u : 2u,
         {sample(dtype, {rows, cols}, 1)},
         {},
         {{rows, cols}},
         {},
         {},
         {},
         1e-6};
  const auto values = values_of(c.inputs[0]);
  const std::int64_t lines = of_columns ? cols : rows, length = of_columns ? rows : cols;
  const std::int64_t step = of_columns ? cols : 1;
  std::vector<double> result(values.size());
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::int64_t first = of_columns ? line : line * cols;
    double most = -INFINITY, sum = 0;
    const auto v = [&](std::int64_t j) {
      return values[static_cast<std::size_t>(first + j * step)];
    };
    for (std::int64_t j = 0; j < length; ++j) most = std::max(most, v(j));
    for (std::int64_t j = 0; j < length; ++j) sum += std::exp(v(j) - most);
    for (std::int64_t j = 0; j < length; ++j)
      result[static_cast<std::size_t>(first + j * step)] = std::exp(v(j) - most) / sum;
  }
  c.reference = [result](int, std::int64_t i) { return result[static_cast<std::size_t>(i)]; };
  return c;
}

// Layer norm with a weight and a bias for each column; also gives mean and 1 / deviation.
inline Case layer_norm_case(DType dtype, std::int64_t rows, std::int64_t cols) {
  Builder b("layer_norm", dtype);
  const int x = b.body.add_input(dtype), weight = b.body.add_input(dtype, Body::Scope::column),
            bias = b.body.add_input(dtype, Body::Scope::column), eps = b.body.add_scalar(dtype);
  const int mean = b.reduce("mean", x);
  const int centered = b.op("sub", {x, mean});
  const int variance = b.reduce("mean", b.op("square", {centered}));
  const int inverse = b.op("rsqrt", {b.op("add", {variance, eps})});
  b.body.add_output(b.op("addcmul", {bias, b.op("mul", {centered, inverse}), weight}), dtype);
  b.body.add_output(mean, dtype);
  b.body.add_output(inverse, dtype);
  Case c{b.body,
         {rows, cols},
         2u,
         {sample(dtype, {rows, cols}, 2), sample(dtype, {cols}, 3), sample(dtype, {cols}, 4)},
         {},
         {{rows, cols}, {rows, 1}, {rows, 1}},
         {bits_of(1e-5, register_dtype(dtype))},
         {},
         {},
         1e-5};
  const auto v = values_of(c.inputs[0]), w = values_of(c.inputs[1]), d = values_of(c.inputs[2]);
  c.reference = [=](int output, std::int64_t i) {
    const std::int64_t row = output == 0 ? i / cols : i;
    double m = 0, s = 0;
    for (std::int64_t j = 0; j < cols; ++j) m += v[static_cast<std::size_t>(row * cols + j)];
    m /= static_cast<double>(cols);
    for (std::int64_t j = 0; j < cols; ++j)
      s += std::pow(v[static_cast<std::size_t>(row * cols + j)] - m, 2);
    const double r = 1 / std::sqrt(s / static_cast<double>(cols) + 1e-5);
    if (output == 1) return m;
    if (output == 2) return r;
    const auto j = static_cast<std::size_t>(i % cols);
    return d[j] + (v[static_cast<std::size_t>(i)] - m) * r * w[j];
  };
  return c;
}

// The gradient of a bias under relu: columns of (g where y > 0) are summed, which `stores` keeps.
inline Case bias_gradient_case(DType dtype, std::int64_t rows, std::int64_t cols,
                               bool stores = false) {
  Builder b("bias_gradient", dtype);
  const int g = b.body.add_input(dtype), y = b.body.add_input(dtype);
  const int element = b.op("relu_gradient", {g, y});
  b.body.add_output(b.reduce("sum", element), dtype);
  if (stores) b.body.add_output(element, dtype);
  Case c{b.body, {rows, cols}, 1u, {sample(dtype, {rows, cols}, 5), sample(dtype, {rows, cols}, 6)},
         {},     {{1, cols}},  {}, {},
         {},     1e-5};
  if (stores) c.outputs.push_back({rows, cols});
  const auto gs = values_of(c.inputs[0]), ys = values_of(c.inputs[1]);
  const auto at = [=](std::int64_t k) {
    const auto index = static_cast<std::size_t>(k);
    return ys[index] <= 0 ? 0 : gs[index];
  };
  c.reference = [=](int output, std::int64_t j) {
    if (output == 1) return at(j);
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) sum += at(i * cols + j);
    return sum;
  };
  return c;
}

// x * row + column - one, and whether that is positive.
inline Case broadcast_case(DType dtype, std::int64_t rows, std::int64_t cols) {
  Builder b("broadcast", dtype);
  const int x = b.body.add_input(dtype), row = b.body.add_input(dtype, Body::Scope::row),
            column = b.body.add_input(dtype, Body::Scope::column),
            one = b.body.add_input(dtype, Body::Scope::one);
  const int y = b.op("sub", {b.op("addcmul", {column, x, row}), one});
  b.body.add_output(y, dtype);
  b.body.add_output(b.op("gt", {y, one}), boolean);
  Case c{b.body,
         {rows, cols},
         0,
         {sample(dtype, {rows, cols}, 7), sample(dtype, {rows, 1}, 8), sample(dtype, {1, cols}, 9),
          sample(dtype, {}, 10)},
         {},
         {{rows, cols}, {rows, cols}},
         {},
         {},
         {},
         1e-6};
  const auto v = values_of(c.inputs[0]), r = values_of(c.inputs[1]), d = values_of(c.inputs[2]),
             o = values_of(c.inputs[3]);
  c.reference = [=](int output, std::int64_t i) {
    const auto k = static_cast<std::size_t>(i);
    const double value =
        d[k % static_cast<std::size_t>(cols)] + v[k] * r[k / static_cast<std::size_t>(cols)] - o[0];
    return output == 0 ? value : value > o[0] ? 1.0 : 0.0;
  };
  return c;
}

// Rows of a table by checked indices, times 2.
inline Case gather_case(DType dtype, std::int64_t rows, std::int64_t cols, bool in_range = true) {
  Builder b("gather", dtype);
  const int index = b.body.add_input(i64, Body::Scope::row);
  b.body.inputs.push_back({dtype, Body::Scope::column, 0});  // the table, read by address
  const int bound = b.body.add_scalar(i64), stride = b.body.add_scalar(i64),
            place = b.body.add_index();
  BodyValue check;
  check.kind = BodyValue::Kind::index_check;
  check.dtype = check.type = i64;
  check.operands = {index, bound, place};
  b.body.checks = {"gather"};
  const int checked = b.body.add(check);
  BodyValue gathered;
  gathered.kind = BodyValue::Kind::gathered;
  gathered.dtype = gathered.type = dtype;
  gathered.number = 1;
  gathered.operands = {b.body.add_expression("a * b", i64, i64, {checked, stride})};
  b.body.add_output(b.body.add_expression("a + a", dtype, dtype, {b.body.add(gathered)}), dtype);
  const std::int64_t table_rows = 11;
  Tensor indices = make_tensor(i64, Dims{rows, 1}, cpu);
  for (std::int64_t i = 0; i < rows; ++i)
    indices.data<std::int64_t>()[i] = in_range ? i * 7 % table_rows
                                      : i == 3 ? table_rows
                                      : i == 5 ? -1
                                               : 0;
  // The position that a report names is the place of the index: a coordinate along rows.
  Case c{b.body,
         {rows, cols},
         0,
         {indices, sample(dtype, {table_rows, cols}, 11)},
         {{1, {0, 1}}},
         {{rows, cols}},
         {bits_of(static_cast<double>(table_rows), i64), bits_of(static_cast<double>(cols), i64)},
         {{1, 0}},
         {},
         0};
  const auto table = values_of(sample(dtype, {table_rows, cols}, 11)), at_rows = values_of(indices);
  c.reference = [=](int, std::int64_t i) {
    const auto row = static_cast<std::int64_t>(at_rows[static_cast<std::size_t>(i / cols)]);
    const std::int64_t clamped = std::clamp<std::int64_t>(row, 0, table_rows - 1);
    return 2 * table[static_cast<std::size_t>(clamped * cols + i % cols)];
  };
  return c;
}

// Cross entropy of rows: log of the sum of exponentials, less the element at the target.
inline Case cross_entropy_case(DType dtype, std::int64_t rows, std::int64_t cols) {
  Builder b("cross_entropy", dtype);
  const int x = b.body.add_input(dtype), target = b.body.add_input(i64, Body::Scope::row);
  b.body.inputs.push_back({dtype, Body::Scope::row, 0});  // x again, read at the target
  const int most = b.reduce("max", x);
  const int sum = b.reduce("sum", b.op("exp", {b.op("sub", {x, most})}));
  BodyValue gathered;
  gathered.kind = BodyValue::Kind::gathered;
  gathered.dtype = gathered.type = dtype;
  gathered.number = 2;
  gathered.operands = {target};
  const int chosen = b.body.add(gathered);
  b.body.add_output(b.op("sub", {b.op("add", {b.op("log", {sum}), most}), chosen}), dtype);
  Tensor targets = make_tensor(i64, Dims{rows, 1}, cpu);
  for (std::int64_t i = 0; i < rows; ++i) targets.data<std::int64_t>()[i] = i * 5 % cols;
  const Tensor values = sample(dtype, {rows, cols}, 12);
  Case c{b.body, {rows, cols}, 2u,  {values, targets, values}, {{2, {cols, 0}}}, {{rows, 1}}, {},
         {},     {},           1e-5};
  const auto v = values_of(values);
  c.reference = [=](int, std::int64_t row) {
    double most_of = -INFINITY, total = 0;
    const auto e = [&](std::int64_t j) { return v[static_cast<std::size_t>(row * cols + j)]; };
    for (std::int64_t j = 0; j < cols; ++j) most_of = std::max(most_of, e(j));
    for (std::int64_t j = 0; j < cols; ++j) total += std::exp(e(j) - most_of);
    return std::log(total) + most_of - e(row * 5 % cols);
  };
  return c;
}

enum class Bounded { elements, transposed, rows, columns };

// A matrix whose left half is one input and whose upper half another, plus a third one, and sums of
// its rows or columns.
inline Case bounded_case(DType dtype, std::int64_t rows, std::int64_t cols, Bounded kind) {
  constexpr const char* kNames[] = {"bounded", "bounded_transposed", "bounded_rows",
                                    "bounded_columns"};
  Builder b(kNames[static_cast<int>(kind)], dtype);
  const int left = b.body.add_input(dtype), upper = b.body.add_input(dtype),
            whole = b.body.add_input(dtype);
  for (int k = 0; k < 3; ++k) b.body.add_scalar(i64);
  b.body.indices.assign(2, Body::Scope::element);
  b.body.inputs[0].bounds = {{1, 0, 1}};
  b.body.inputs[1].bounds = {{0, 0, 2}};
  const int y = b.op("add", {b.op("add", {left, upper}), whole});
  const bool by_rows = kind == Bounded::rows, by_columns = kind == Bounded::columns;
  b.body.add_output(by_rows || by_columns ? b.reduce("sum", y) : y, dtype);
  const std::int64_t wide = cols / 2, high = rows / 2;
  const bool transposed = kind == Bounded::transposed;
  Case c{b.body,
         {rows, cols},
         by_rows      ? 2u
         : by_columns ? 1u
                      : 0u,
         {sample(dtype, transposed ? Dims{wide, rows} : Dims{rows, wide}, 15),
          sample(dtype, {high, cols}, 16), sample(dtype, {rows, cols}, 17)},
         {{0, transposed ? Dims{1, rows} : Dims{wide, 1}}, {1, {cols, 1}}},
         {{by_columns ? 1 : rows, by_rows ? 1 : cols}},
         {0, static_cast<std::uint64_t>(wide), static_cast<std::uint64_t>(high)},
         {{1, 0}, {0, 1}},
         {},
         1e-5};
  const auto l = values_of(c.inputs[0]), u = values_of(c.inputs[1]), w = values_of(c.inputs[2]);
  const auto element = [=](std::int64_t i, std::int64_t j) {
    const auto of = [](const std::vector<double>& values, std::int64_t k) {
      return values[static_cast<std::size_t>(k)];
    };
    return of(w, i * cols + j) + (j < wide ? of(l, transposed ? j * rows + i : i * wide + j) : 0) +
           (i < high ? of(u, i * cols + j) : 0);
  };
  c.reference = [=](int, std::int64_t place) {
    if (!by_rows && !by_columns) return element(place / cols, place % cols);
    double sum = 0;
    for (std::int64_t k = 0; k < (by_rows ? cols : rows); ++k)
      sum += by_rows ? element(place, k) : element(k, place);
    return sum;
  };
  return c;
}

// Dropout by draws, uniform ones or (of half the words) bernoulli, and the upper triangle by
// coordinates.
inline Case dropout_case(DType dtype, std::int64_t rows, std::int64_t cols,
                         bool by_halves = false) {
  Builder b("dropout", dtype);
  const int x = b.body.add_input(dtype);
  b.body.inputs.push_back({i64, Body::Scope::one, 0});  // the generator
  const int number = b.body.add_scalar(i64), rate = b.body.add_scalar(dtype),
            place = b.body.add_index(), row = b.body.add_index(), column = b.body.add_index();
  BodyValue draw;
  draw.kind = BodyValue::Kind::draw;
  draw.dtype = draw.type = by_halves ? boolean : dtype;
  draw.number = 1;
  draw.draw = by_halves ? Algebra::bernoulli_draw : Algebra::uniform_draw;
  draw.operands = {number, place, b.body.add_scalar(i64)};
  if (by_halves) draw.operands.push_back(b.body.add_scalar(i64));
  const int drawn = b.body.add(draw);
  const int kept = by_halves ? drawn : b.op("lt", {drawn, rate});
  const int above = b.body.add_expression("a >= b", i64, boolean, {column, row});
  const int both = add_pointwise(b.body, row_named("logical_and"), boolean, boolean, {kept, above});
  b.body.add_output(both, boolean);
  const int zero = b.op("mul", {x, rate});
  b.body.add_output(b.op("where", {both, x, zero}), dtype);
  Tensor state = make_tensor(i64, Dims{3}, cpu);
  for (int i = 0; i < 3; ++i) state.data<std::int64_t>()[i] = 100 + i;
  Case c{b.body,
         {rows, cols},
         0,
         {sample(dtype, {rows, cols}, 13), state},
         {{1, {0, 0}}},
         {{rows, cols}, {rows, cols}},
         {bits_of(5, i64), bits_of(0.5, register_dtype(dtype)), 0},
         {{cols, 1}, {1, 0}, {0, 1}},
         {},
         0};
  if (by_halves) c.scalars.push_back(bits_of(1 << 15, i64));
  return c;
}

inline std::vector<Case> cases_with_references(DType dtype) {
  std::vector<Case> cases;
  for (const auto& [rows, cols] :
       {std::pair{7, 5}, {3, 300}, {33, 64}, {2, 20000}, {300, 33}, {5000, 12}}) {
    cases.push_back(softmax_case(dtype, rows, cols));
    cases.push_back(softmax_case(dtype, rows, cols, true));
    cases.push_back(layer_norm_case(dtype, rows, cols));
    cases.push_back(bias_gradient_case(dtype, rows, cols));
    cases.push_back(broadcast_case(dtype, rows, cols));
    cases.push_back(gather_case(dtype, rows, cols));
    cases.push_back(cross_entropy_case(dtype, rows, cols));
    for (const Bounded kind :
         {Bounded::elements, Bounded::transposed, Bounded::rows, Bounded::columns})
      cases.push_back(bounded_case(dtype, rows, cols, kind));
  }
  return cases;
}

}  // namespace brrr::testing
