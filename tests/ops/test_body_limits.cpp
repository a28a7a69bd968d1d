// Bodies at the limits of what a kernel takes: at each limit - 1 and limit they give, in every walk
// of generated CPU kernels, what their values give one by one; at limit + 1 they are refused by
// name. tests/kernels/sanitize also runs them with kernels that check their accesses.
#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "brrr/ops/body_kernel.h"
#include "tests/harness/catch.h"
#include "tests/harness/environment.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/jit_bodies.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

namespace {

using Kind = BodyValue::Kind;
using Numbers = std::vector<double>;
using std::int64_t;

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

// --- A body, value by value --------------------------------------------------------------------

// The coordinates of each element in row-major order.
std::vector<Dims> places_of(const Dims& dims) {
  std::vector<Dims> places(1, Dims(std::vector<int64_t>(at(dims.size()), 0)));
  for (int d = 0; d < dims.size(); ++d) {
    std::vector<Dims> longer;
    for (const Dims& place : places) {
      for (int64_t i = 0; i < dims[d]; ++i) {
        longer.push_back(place);
        longer.back()[d] = i;
      }
    }
    places = std::move(longer);
  }
  return places;
}
int64_t dot(const Dims& place, const Dims& strides) {
  return std::inner_product(place.begin(), place.end(), strides.begin(), int64_t{0});
}
// The number of an element among those of a tensor of this shape, which is broadcast.
int64_t number_in(const Dims& shape, const Dims& place) {
  int64_t number = 0;
  for (int d = 0; d < shape.size(); ++d) {
    const int64_t i = place[place.size() - shape.size() + d];
    number = number * shape[d] + (shape[d] == 1 ? 0 : i);
  }
  return number;
}

double value_of(const BodyValue& value, const std::vector<double>& x) {
  if (value.expression == "exp(a)") return std::exp(x[0]);
  if (value.expression == "a - b") return x[0] - x[1];
  if (value.expression == "maximum(a, b)") return std::max(x[0], x[1]);
  double sum = 0;
  for (const double each : x) sum += each;
  return value.expression == "a * b" ? x[0] * x[1] : sum;
}

// A reduction's value at every element: that of its row, whose first element `row_of` names.
Numbers reduced(const BodyValue& value, const Numbers& x, const std::vector<std::size_t>& row_of) {
  const bool sums = value.combine == "x + y";
  Numbers of(x.size());
  std::vector<bool> begun(x.size());
  for (std::size_t e = 0; e < x.size(); ++e) {
    double& row = of[row_of[e]];
    row = !begun[row_of[e]] ? x[e] : sums ? row + x[e] : std::max(row, x[e]);
    begun[row_of[e]] = true;
  }
  for (std::size_t e = 0; e < x.size(); ++e) of[e] = of[row_of[e]];
  return of;
}

// Values of outputs from those of every element.
void set_reference(Case& c, const std::vector<Dims>& places, const std::vector<Numbers>& values) {
  std::vector<Numbers> outputs;
  for (std::size_t o = 0; o < c.outputs.size(); ++o) {
    const Numbers& value = values[at(c.body.outputs[o].value)];
    Numbers of(at(std::accumulate(c.outputs[o].begin(), c.outputs[o].end(), int64_t{1},
                                  std::multiplies<>())));
    for (std::size_t e = places.size(); e-- > 0;)
      of[at(number_in(c.outputs[o], places[e]))] = value[e];
    outputs.push_back(std::move(of));
  }
  c.reference = [outputs](int output, int64_t i) { return outputs[at(output)][at(i)]; };
  c.tolerance = 0;
}

// Sets the reference of a case: every value at every element, and what rows reduce to.
void evaluate(Case& c) {
  const std::vector<Dims> places = places_of(c.dims);
  std::vector<std::size_t> row_of;  // its first element
  for (const Dims& place : places) {
    Dims first = place;
    for (int d = 0; d < c.dims.size(); ++d) {
      if (c.reduced >> d & 1) first[d] = 0;
    }
    row_of.push_back(at(number_in(c.dims, first)));
  }
  std::vector<Numbers> inputs;
  for (const Tensor& input : c.inputs) inputs.push_back(values_of(input));
  std::vector<Numbers> values;
  std::vector<std::size_t> last(c.body.values.size(), 0);  // use of each value
  for (std::size_t i = 0; i < last.size(); ++i) {
    for (const int operand : c.body.values[i].operands) last[at(operand)] = i;
  }
  for (const Body::TensorOperand& output : c.body.outputs) last[at(output.value)] = last.size();
  std::vector<double> operands;
  for (const BodyValue& value : c.body.values) {
    Numbers of(places.size());
    const auto input = at(value.number);
    if (value.kind == Kind::reduction) of = reduced(value, values[at(value.operands[0])], row_of);
    for (std::size_t e = 0; e < places.size(); ++e) {
      operands.clear();
      for (const int operand : value.operands) operands.push_back(values[at(operand)][e]);
      switch (value.kind) {
        case Kind::input: {
          of[e] = inputs[input][at(number_in(c.inputs[input].shape(), places[e]))];
          for (const Body::Bound& bound : c.body.inputs[input].bounds) {
            const int64_t place = dot(places[e], c.coordinates[at(bound.index)]);
            if (place < static_cast<int64_t>(c.scalars[at(bound.low)]) ||
                place >= static_cast<int64_t>(c.scalars[at(bound.high)]))
              of[e] = 0;
          }
          break;
        }
        case Kind::scalar:
          of[e] = c.body.scalars[input] == f32
                      ? std::bit_cast<float>(static_cast<std::uint32_t>(c.scalars[input]))
                      : static_cast<double>(static_cast<int64_t>(c.scalars[input]));
          break;
        case Kind::index: of[e] = static_cast<double>(dot(places[e], c.coordinates[input])); break;
        case Kind::expression: of[e] = value_of(value, operands); break;
        case Kind::gathered:
          of[e] = inputs[input][at(dot(places[e], c.strides.at(value.number))) +
                                static_cast<std::size_t>(operands[0])];
          break;
        case Kind::index_check: of[e] = std::clamp(operands[0], 0.0, operands[1] - 1); break;
        case Kind::reduction: break;
        default: throw Error("no evaluation of such a value");
      }
    }
    for (const int operand : value.operands) {
      if (last[at(operand)] == values.size()) Numbers().swap(values[at(operand)]);
    }
    values.push_back(std::move(of));
  }
  set_reference(c, places, values);
}

// --- Walks and shapes --------------------------------------------------------------------------

struct Shape {
  const char* walk;
  Dims dims;
  unsigned reduced;
};
const Shape kShapes[] = {{"pointwise", {5, 103}, 0},        {"whole_rows", {5, 300}, 2},
                         {"lines_of_rows", {11, 43}, 2},    {"rows", {2, 131100}, 2},
                         {"whole_columns", {19, 48}, 1},    {"columns", {19, 43}, 1},
                         {"blocks_of_row", {1, 131100}, 2}, {"blocks_of_columns", {43700, 3}, 1},
                         {"chunks_of_row", {3, 1031}, 2},   {"chunks_of_columns", {9, 600}, 1}};
const char* name_of(const Body& body, const CpuWalk& walk) {
  if (!body.reduces()) return "pointwise";
  if (walk.splits) return walk.by_columns ? "blocks_of_columns" : "blocks_of_row";
  if (walk.in_chunks) return walk.by_columns ? "chunks_of_columns" : "chunks_of_row";
  if (walk.by_columns) return walk.tile > 0 ? "whole_columns" : "columns";
  return walk.tile == 0 ? "rows" : walk.lines > 1 ? "lines_of_rows" : "whole_rows";
}

// Small integers, whose sums are exact in any order.
Tensor integers(DType dtype, const Dims& shape, std::size_t seed) {
  const Tensor values = make_tensor(f64, shape, cpu);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data<double>()[i] =
        static_cast<double>((i * 7 + static_cast<int64_t>(seed) * 3) % 5 - 2);
  return cast(values, dtype);
}

// A body under construction, with its operands.
struct Made {
  Case c;
  std::size_t seed = 0;

  Made(std::string name, const Shape& shape) {
    c.body.name = std::move(name);
    c.dims = shape.dims;
    c.reduced = shape.reduced;
  }
  Dims kept() const {
    Dims dims = c.dims;
    for (int d = 0; d < dims.size(); ++d) {
      if (c.reduced >> d & 1) dims[d] = 1;
    }
    return dims;
  }
  // Elements, or a value of each row or column, in any type.
  int input(Body::Scope scope = Body::Scope::element, DType dtype = f32) {
    Dims dims = scope == Body::Scope::row ? kept() : c.dims;
    for (int d = 0; scope == Body::Scope::column && d < dims.size(); ++d) {
      if (!(c.reduced >> d & 1)) dims[d] = 1;
    }
    c.inputs.push_back(integers(dtype, dims, seed++));
    return c.body.add_input(dtype, scope);
  }
  int scalar(double value, DType dtype = f32) {
    c.scalars.push_back(bits_of(value, dtype));
    return c.body.add_scalar(dtype);
  }
  // Of one dimension.
  int index(int dim) {
    Dims strides(std::vector<int64_t>(at(c.dims.size()), 0));
    strides[dim] = 1;
    c.coordinates.push_back(strides);
    const bool of_rows = c.reduced != 0 && !(c.reduced >> dim & 1);
    return c.body.add_index(c.reduced == 0 ? Body::Scope::element
                            : of_rows      ? Body::Scope::row
                                           : Body::Scope::column);
  }
  int op(const char* text, std::vector<int> operands, DType dtype = f32) {
    return c.body.add_expression(text, dtype, dtype, std::move(operands));
  }
  int reduce(const char* name, int value) {
    return add_reduction(c.body, row_named(name), f32, value);
  }
  void output(int value, DType dtype = f32) {
    c.body.add_output(value, dtype);
    c.outputs.push_back(c.body.outputs.back().scope == Body::Scope::row ? kept() : c.dims);
  }
  // The result of rows, or the elements.
  int finish(int value) { return c.reduced ? reduce("sum", value) : value; }
  Case done() {
    evaluate(c);
    return std::move(c);
  }
};

// --- Families of bodies ------------------------------------------------------------------------

// So many operands and coordinates, `outputs` of them written. With rows every second output is of
// elements, from the second on, in another pass.
Case of_operands(const Shape& shape, std::size_t operands, std::size_t outputs,
                 std::size_t coordinates) {
  Made made("operands", shape);
  const std::size_t inputs = operands - outputs - coordinates;
  constexpr std::array kScopes = {Body::Scope::element, Body::Scope::row, Body::Scope::column,
                                  Body::Scope::element};
  std::vector<int> read;
  for (std::size_t i = 0; i < inputs; ++i) {
    const bool rows = made.c.reduced != 0;
    read.push_back(made.input(rows ? kScopes[i % 4] : Body::Scope::element, i % 5 == 3   ? bf16
                                                                            : i % 5 == 4 ? i32
                                                                                         : f32));
  }
  int sum = read[0];
  for (std::size_t i = 1; i < inputs; ++i) sum = made.op("a + b", {sum, read[i]});
  for (std::size_t i = 0; i < coordinates; ++i) {
    const int dim = static_cast<int>(i / 2) % made.c.dims.size();
    sum = made.op(i % 2 ? "a - b" : "a + b", {sum, made.index(dim)});  // stays small
  }
  const int result = made.finish(sum);
  const bool splits = shape.walk == std::string_view("blocks_of_row");
  for (std::size_t o = 0; o < outputs; ++o) {
    const bool of_elements = made.c.reduced != 0 && o % 2 == 1 && !splits;
    const int by = read[o % inputs];
    made.output(o == 0        ? result
                : of_elements ? made.op("a - b", {by, o % 4 == 1 ? result : sum})
                              : made.op("a + b", {result, result}),
                o % 3 == 2 && !made.c.reduced ? i32 : f32);
  }
  return made.done();
}

// So many numbers, each added.
Case of_scalars(const Shape& shape, std::size_t scalars) {
  Made made("scalars", shape);
  int sum = made.input();
  for (std::size_t i = 0; i < scalars; ++i)
    sum = made.op("a + b", {sum, made.scalar(static_cast<double>(i % 3) - 1)});
  made.output(made.finish(sum));
  return made.done();
}

// So many checks and numbers: indices, some of which are out of range.
Case of_checks(const Shape& shape, std::size_t numbers) {
  Made made("checks", shape);
  const int x = made.input(), bound = made.scalar(5, i64), place = made.index(0);
  const int low = made.input(Body::Scope::element, i64);
  int sum = x;
  for (std::size_t i = 0; i + 1 < numbers; ++i) {
    BodyValue check;
    check.kind = Kind::index_check;
    check.dtype = check.type = i64;
    check.number = static_cast<int>(i);
    check.operands = {low, bound, place};
    made.c.body.checks.push_back("limits");
    sum = made.op("a + b", {sum, made.c.body.add(check)});
  }
  made.output(made.finish(sum));
  return made.done();
}

// So many values, in some stages of functions and of arithmetic.
Case of_values(const Shape& shape, std::size_t values) {
  Made made("values", shape);
  const int x = made.input();
  int last = made.op("maximum(a, b)", {x, x});
  const std::size_t after = made.c.reduced ? 1 : 0;
  while (made.c.body.values.size() + 60 + after <= values) {
    const int zero = made.op("a - b", {last, last});
    last = made.op("a - b", {made.op("exp(a)", {zero}), last});  // 1 less it
    for (int i = 0; i < 50; ++i) last = made.op("a - b", {x, last});
  }
  while (made.c.body.values.size() + after < values) last = made.op("a - b", {x, last});
  made.output(made.finish(last));
  return made.done();
}

// An expression of so many operands.
Case of_expression(const Shape& shape, std::size_t operands) {
  Made made("expression", shape);
  const std::array read = {made.input(), made.input(), made.input()};
  std::string text;
  std::vector<int> of;
  for (std::size_t i = 0; i < operands; ++i) {
    // A further one has no letter.
    if (i < 26) text += (i ? " + " : "") + std::string(1, static_cast<char>('a' + i));
    of.push_back(read[i % 3]);
  }
  made.output(made.finish(made.op(text.c_str(), of)));
  return made.done();
}

// Reductions one after the other, each of what the one before it leaves of the elements.
Case of_levels(const Shape& shape, std::size_t levels) {
  Made made("levels", shape);
  const int x = made.input();
  int last = made.reduce("max", x);
  for (std::size_t i = 1; i < levels; ++i) last = made.reduce("max", made.op("a - b", {x, last}));
  made.output(last);
  made.output(made.op("a + b", {x, last}));
  return made.done();
}

// Dimensions that do not join: an operand broadcasts along each of them.
Case of_dims(const Dims& dims, unsigned reduced) {
  Made made("dims", {"", dims, reduced});
  const unsigned all = (1u << dims.size()) - 1;
  int sum = made.input();
  for (int d = 0; d < dims.size(); ++d) {
    Dims shape = dims;
    shape[d] = 1;
    made.c.inputs.push_back(integers(f32, shape, made.seed++));
    const Body::Scope scope = reduced == (1u << d)         ? Body::Scope::row
                              : reduced == all - (1u << d) ? Body::Scope::column
                                                           : Body::Scope::element;
    sum = made.op("a + b", {sum, made.c.body.add_input(f32, scope)});
  }
  made.output(made.finish(sum));
  made.output(made.op("a + b", {sum, sum}));
  return made.done();
}

// An input that is 0 from a coordinate on, and a table that is read at indices from memory.
Case of_places(const Shape& shape, int64_t inside) {
  Made made("places", shape);
  const int low = made.scalar(0, i64), high = made.scalar(static_cast<double>(inside), i64);
  const int along = made.index(made.c.dims.size() - 1);
  made.c.body.indices[0] = Body::Scope::element;
  const int bounded = made.input();
  made.c.body.inputs[0].bounds = {{made.c.body.value(along).number, made.c.body.value(low).number,
                                   made.c.body.value(high).number}};
  const int chosen = made.input(Body::Scope::element, i64);
  made.c.body.inputs.push_back({f32, Body::Scope::element, 0});
  made.c.inputs.push_back(integers(f32, {5}, made.seed++));
  made.c.strides[2] = Dims(std::vector<int64_t>(at(made.c.dims.size()), 0));
  BodyValue gathered;
  gathered.kind = Kind::gathered;
  gathered.number = 2;
  gathered.operands = {made.op("a + b", {chosen, made.scalar(2, i64)}, i64)};
  const int element = made.c.body.add(gathered);
  made.output(made.finish(made.op("a + b", {bounded, element})));
  return made.done();
}

// --- Running -----------------------------------------------------------------------------------

struct Kernel {
  const Case* c;
  std::vector<Tensor> outputs;
  CpuSpaces spaces;
  CpuWalk walk;
  std::string text;

  Kernel(const Case& of, bool any_layout)
      : c(&of), outputs(outputs_of(of, cpu)), spaces(of, outputs), walk(spaces.walk) {
    if (any_layout) walk = {.by_columns = walk.by_columns};
    Body body = of.body;
    body.name = kKernelName;
    text = render_cpu(body, walk);
  }
};

class Limits {
 public:
  void add(Case c, std::string about) {
    cases_.push_back(std::move(c));
    about_.push_back(std::move(about));
  }

  // Each body in the walk of its layout, and in the one for any layout.
  void check(const char* title, std::size_t kinds) {
    std::vector<Kernel> kernels;
    std::vector<std::string> texts;
    std::map<std::string, int> walks;
    for (const Case& c : cases_) {
      for (const bool any_layout : {false, true}) {
        Kernel& kernel = kernels.emplace_back(c, any_layout);
        if (any_layout && kernel.text == kernels[kernels.size() - 2].text) {
          kernels.pop_back();
          continue;
        }
        ++walks[name_of(c.body, kernel.walk)];
        if (std::ranges::find(texts, kernel.text) == texts.end()) texts.push_back(kernel.text);
      }
    }
    std::vector<std::string> all;
    for (const Kernel& kernel : kernels) all.push_back(kernel.text);
    const std::vector<void*> functions = load_cpu_kernels(all);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const Kernel& kernel = kernels[i];
      INFO(about_[at(kernel.c - cases_.data())] << ": " << name_of(kernel.c->body, kernel.walk));
      CpuFault fault;
      run_function_on_cpu(*kernel.c, kernel.outputs, &fault, kernel.spaces, kernel.walk,
                          reinterpret_cast<CpuFunction>(functions[i]));
      CHECK(error_of(*kernel.c, kernel.outputs) <= kernel.c->tolerance);
      CHECK((fault.position >= 0) == !kernel.c->body.checks.empty());
    }
    CHECK(walks.size() >= kinds);
    std::printf("bodies at limits: %zu of %s in %zu kernels\n", kernels.size(), title,
                texts.size());
    for (const auto& [walk, count] : walks) std::printf("  %d by %s\n", count, walk.c_str());
  }

 private:
  std::vector<Case> cases_;
  std::vector<std::string> about_;
};

std::string about(const Shape& shape, const char* what, std::size_t count) {
  return std::string(shape.walk) + ", " + std::to_string(count) + " " + what;
}

// The body as fusion describes it.
BodySpec spec_of(const Case& c) {
  BodySpec spec;
  spec.body = c.body;
  spec.dims = c.dims;
  spec.reduced = c.reduced;
  spec.scalars = c.scalars;
  spec.coordinates = c.coordinates;
  return spec;
}
std::string refusal_of(const Case& c) {
  const BodyOperands operands{std::make_shared<BodySpec>(spec_of(c)), c.inputs, outputs_of(c, cpu)};
  return test::error_of([&] { make_body_kernels(cpu, {&operands, 1}); });
}

}  // namespace

TEST_CASE("bodies of as many operands as a kernel takes", "[jit][limits][sanitized]") {
  Limits limits;
  for (const Shape& shape : kShapes) {
    const bool splits = std::string_view(shape.walk).starts_with("blocks");  // too long for f32
    for (const std::size_t operands :
         {std::size_t{16}, Body::kMostOperands - 1, Body::kMostOperands}) {
      for (const std::size_t outputs : {std::size_t{1}, operands - 1}) {
        limits.add(of_operands(shape, operands, outputs, 0), about(shape, "operands", operands));
        if (splits) continue;
        limits.add(of_operands(shape, operands, 1, operands - 2),
                   about(shape, "operands, most of them coordinates", operands));
      }
    }
    CHECK(refusal_of(of_operands(shape, Body::kMostOperands + 1, 1, 0)) ==
          "[operands] expected a body of at most 19 operands and coordinates, got 20");
    CHECK(refusal_of(of_operands(shape, Body::kMostOperands + 1, Body::kMostOperands, 0)) ==
          "[operands] expected a body of at most 19 operands and coordinates, got 20");
    CHECK(refusal_of(of_operands(shape, Body::kMostOperands + 1, 1, 4)) ==
          "[operands] expected a body of at most 19 operands and coordinates, got 20");
  }
  limits.check("operands", std::size(kShapes));
}

TEST_CASE("bodies of as many numbers and checks as a kernel takes", "[jit][limits][sanitized]") {
  Limits limits;
  for (const Shape& shape : kShapes) {
    for (const std::size_t numbers : {Body::kMostNumbers - 1, Body::kMostNumbers}) {
      limits.add(of_scalars(shape, numbers), about(shape, "scalars", numbers));
      limits.add(of_checks(shape, numbers), about(shape, "checks", numbers));
    }
    CHECK(refusal_of(of_scalars(shape, Body::kMostNumbers + 1)) ==
          "[scalars] expected a body of at most 64 scalars and checks, got 65");
    CHECK(refusal_of(of_checks(shape, Body::kMostNumbers + 1)) ==
          "[checks] expected a body of at most 64 scalars and checks, got 65");
  }
  limits.check("numbers", std::size(kShapes) - 1);  // not whole_rows, for their arrays
}

TEST_CASE("bodies of as many values and operands of a value as a kernel takes",
          "[jit][limits][sanitized]") {
  constexpr std::size_t letters = 26;
  Limits limits;
  for (const Shape& shape : kShapes) {
    for (const std::size_t values : {Body::kMostValues - 1, Body::kMostValues})
      limits.add(of_values(shape, values), about(shape, "values", values));
    for (const std::size_t operands : {letters - 1, letters})
      limits.add(of_expression(shape, operands), about(shape, "operands of a value", operands));
    CHECK(refusal_of(of_values(shape, Body::kMostValues + 1)) ==
          "[values] expected a body of at most 256 values, got 257");
    CHECK(refusal_of(of_expression(shape, letters + 1)) ==
          "[expression] expected a body with expressions of at most 26 operands");
  }
  limits.check("values", std::size(kShapes));
}

TEST_CASE("bodies of many levels", "[jit][limits][sanitized]") {
  Limits limits;
  for (const Shape& shape : kShapes) {
    if (shape.reduced == 0) continue;
    for (const std::size_t levels : {1u, 2u, 3u, 16u})
      limits.add(of_levels(shape, levels), about(shape, "levels", levels));
  }
  limits.check("levels", 5);
}

TEST_CASE("bodies of as many dimensions as a space has", "[jit][limits][sanitized]") {
  Limits limits;
  for (const int rank : {kMaxDims - 1, kMaxDims}) {
    std::vector<int64_t> sizes(at(rank), 2);
    sizes.front() = sizes.back() = 3;
    const unsigned all = (1u << rank) - 1;
    for (const unsigned reduced :
         {0u, all, 1u, all - 1, all >> 1, 1u << (rank - 1), 0b0101u, 0b1010101u, 0b0101010u}) {
      limits.add(of_dims(Dims(sizes), reduced),
                 std::to_string(rank) + " dimensions, " + std::to_string(reduced) + " reduced");
    }
  }
  CHECK(test::error_of([] { Dims(std::vector<int64_t>(kMaxDims + 1, 2)); }) ==
        "[shape] expected at most 8 dimensions, got 9");
  limits.check("dimensions", 4);
}

// One below, at and above what tiles, groups, lanes, rows in one tile, blocks and pieces have.
TEST_CASE("bodies of rows and columns around the sizes of tiles", "[jit][limits][sanitized]") {
  Limits limits;
  const auto around = [&](int64_t size, const auto& shape_of) {
    for (const int64_t n : {size - 1, size, size + 1}) {
      const Shape shape = shape_of(n);
      const std::string name = std::to_string(n) + " elements";
      limits.add(of_operands(shape, 4, 1, 0), name);
      limits.add(of_places(shape, size), name + " by bounds and indices");
    }
  };
  for (const int64_t size : {8, 32, 64, 512, 1024})
    around(size, [](int64_t n) { return Shape{"pointwise", {n}, 0}; });
  for (const int64_t size : {8, 32, 512, 43690, 65536})
    around(size, [](int64_t n) { return Shape{"rows", {2, n}, 2}; });
  for (const int64_t size : {8, 64, 128, 512, 1024})
    around(size, [](int64_t n) { return Shape{"columns", {5, n}, 1}; });
  for (const int64_t size : {1 << 17, 1 << 18})
    around(size, [](int64_t n) { return Shape{"blocks_of_row", {1, n}, 2}; });
  for (const int64_t size : {170, 1 << 14, (1 << 17) / 8})
    around(size, [](int64_t n) { return Shape{"blocks_of_columns", {n, 8}, 1}; });
  limits.check("sizes", std::size(kShapes));
}
