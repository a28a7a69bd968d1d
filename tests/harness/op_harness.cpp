#include "tests/harness/op_harness.h"

#include <algorithm>
#include <cmath>

#include "brrr/ops/functions.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::test {

namespace {

// What the walk over a pointwise row's cells needs of one operand.
struct Input {
  Sample sample;
  std::optional<double> number;
  Typed type;
};

std::string describe(const Input& input, Layout layout) {
  if (input.number) return "number";
  return input.sample.tensor.describe() +
         (layout == Layout::contiguous ? "" : std::string(" ") + name_of(layout));
}

Scalar scalar_of(DType dtype, double value) {
  if (dtype == boolean) return Scalar(value != 0);
  if (!is_floating(dtype)) return Scalar(static_cast<std::int64_t>(value));
  return Scalar(value);
}

Dims broadcast(const std::vector<Dims>& shapes) {
  int rank = 0;
  for (const Dims& shape : shapes) rank = std::max(rank, shape.size());
  Dims result = Dims::filled(rank, 1);
  for (const Dims& shape : shapes) {
    for (int d = 0; d < shape.size(); ++d) {
      std::int64_t& size = result[rank - shape.size() + d];
      if (shape[d] != 1) size = shape[d];
    }
  }
  return result;
}

// Where element `i` of `shape`, row-major, is read from in an operand of shape `from`.
std::size_t source_of(std::int64_t i, const Dims& shape, std::span<const std::int64_t> from) {
  std::int64_t place = 0, step = 1;
  const int lead = shape.size() - static_cast<int>(from.size());
  for (int d = shape.size() - 1; d >= 0; --d) {
    const std::int64_t at = i % shape[d];
    i /= shape[d];
    if (d < lead) continue;
    const std::int64_t size = from[static_cast<std::size_t>(d - lead)];
    if (size != 1) place += at * step;
    step *= size;
  }
  return static_cast<std::size_t>(place);
}

std::vector<Input> make_inputs(const Cell& cell, const OpInfo& info, Device device) {
  std::string key = info.name;
  std::vector<Input> inputs;
  for (std::size_t i = 0; i < cell.slots.size(); ++i) {
    const Slot& slot = cell.slots[i];
    Random random(hash_text(key + std::to_string(i) + std::string(name_of(slot.dtype)) +
                            to_string(slot.shape)));
    Input input;
    if (slot.number) {
      input.number = round_to(bf16, draw(random, slot.dtype, info.low, info.high));
      const DType kind = slot.dtype == boolean ? boolean : is_floating(slot.dtype) ? f64 : i64;
      input.type = {kind, Rank::number};
    } else {
      Values values = cell.values.empty()
                          ? draw_many(random, slot.dtype, numel_of(slot.shape), info.low, info.high)
                          : cell.values[i];
      input.sample = make_sample(std::move(values), slot.shape, slot.dtype, slot.layout, device);
      input.type = {slot.dtype, slot.shape.empty() ? Rank::zero_d : Rank::dimensions};
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::string shape_problem(const Tensor& got, DType dtype, const Dims& shape) {
  if (got.dtype() == dtype && Dims(got.shape()) == shape) return "";
  return "meta gives " + got.describe() + ", expected " + std::string(name_of(dtype)) +
         to_string(shape);
}

// What the in-place form must leave: the result converted to the first operand's dtype, and every
// other byte of the buffer as it was.
std::string in_place_problem(const Pointwise& row, std::vector<Input>& inputs,
                             const Values& expected, Match match) {
  std::vector<Operand> rest;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    rest.push_back({inputs[i].sample.tensor, {}});
    if (inputs[i].number) rest.back().number = scalar_of(inputs[i].type.dtype, *inputs[i].number);
  }
  Sample& first = inputs[0].sample;
  Tensor handle = first.tensor;
  const std::uint32_t version = handle.version();
  Tensor& returned = row.call_in_place(handle, rest);
  if (&returned != &handle || !handle.same_view_as(first.tensor))
    return "the in-place form returns another tensor";
  if (handle.version() == version) return "the in-place form does not count a version";
  Values after = first.base_values;
  std::vector<bool> excused(after.size());
  for (std::size_t i = 0; i < first.places.size(); ++i) {
    const auto place = static_cast<std::size_t>(first.places[i]);
    after[place] = expected[i];
    excused[place] = match.excused && (*match.excused)[i];
  }
  match.excused = &excused;
  const std::string problem = difference(
      first.base, handle.dtype(), Dims{static_cast<std::int64_t>(after.size())}, after, match);
  return problem.empty() ? "" : "in place, whole buffer: " + problem;
}

// Inputs must be as they were.
std::string unchanged_problem(const std::vector<Input>& inputs) {
  for (const Input& input : inputs) {
    if (input.number) continue;
    const Sample& s = input.sample;
    if (read(s.base).size() != s.base_values.size()) return "an input's buffer changed";
    const std::string problem =
        difference(s.base, s.tensor.dtype(), Dims{static_cast<std::int64_t>(s.base_values.size())},
                   s.base_values, {0, true});
    if (!problem.empty()) return "an input changed: " + problem;
  }
  return "";
}

Tensor as_meta(const Tensor& tensor) {
  return make_meta_tensor(tensor.dtype(), tensor.shape(), tensor.device());
}

// Of operands that the op does not compute in.
std::string refusal_problem(const Cell& cell, const OpInfo& info, std::vector<Input>& inputs,
                            std::vector<Operand>& operands) {
  try {
    if (cell.in_place) {
      Tensor handle = inputs[0].sample.tensor;
      cell.row->call_in_place(handle, std::span(operands).subspan(1));
    } else {
      cell.row->call(operands);
    }
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string name = std::string("[") + info.name;
    return text.starts_with(name) ? unchanged_problem(inputs) : "refused without its name: " + text;
  }
  return "took types that it does not compute in";
}

std::string run_cell(const Cell& cell, const OpInfo& info, std::vector<Input>& inputs) {
  std::vector<Typed> typed;
  std::vector<Dims> shapes;
  std::vector<Operand> operands, metas;
  for (const Input& input : inputs) {
    typed.push_back(input.type);
    if (input.number) {
      operands.push_back({{}, scalar_of(input.type.dtype, *input.number)});
      metas.push_back(operands.back());
    } else {
      shapes.push_back(Dims(input.sample.tensor.shape()));
      operands.push_back({input.sample.tensor, {}});
      metas.push_back({as_meta(input.sample.tensor), {}});
    }
  }
  const Types types = types_of(info, typed);
  // An in-place form must not lower the category: a float result does not fit into integers.
  const bool fits = !cell.in_place || category_of(types.output) <= category_of(cell.slots[0].dtype);
  if (!types.accepted || !fits) return refusal_problem(cell, info, inputs, operands);

  const Dims shape = broadcast(shapes);
  const auto reference = pointwise_reference(info.name);
  if (!reference) return "no reference";
  const Computing computing{types.computing};
  Values expected;
  std::vector<bool> excused;
  double scratch[3];
  const std::int64_t count = numel_of(shape);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const Input& input = inputs[k];
      const double value =
          input.number ? *input.number
                       : input.sample.values[source_of(i, shape, input.sample.tensor.shape())];
      const bool condition = info.rule == DTypeRule::select && k == 0;
      scratch[k] = condition      ? value
                   : input.number ? computing(value)
                                  : round_to(types.computing, value);
    }
    expected.push_back(reference(scratch, computing));
    excused.push_back(cell.excused && cell.excused(scratch));
  }
  const Match match{0, cell.signs, cell.exact, cell.excused ? &excused : nullptr};
  if (cell.in_place) return in_place_problem(*cell.row, inputs, expected, match);

  const Tensor result = cell.row->call(operands);
  std::string problem = difference(result, types.output, shape, expected, match);
  if (problem.empty()) problem = unchanged_problem(inputs);
  if (problem.empty()) problem = shape_problem(cell.row->call(metas), types.output, shape);
  return problem;
}

const std::vector<Dims> kShapes = {{},           {0},
                                   {1},          {2},
                                   {7},          {13},
                                   {31},         {33},
                                   {127},        {129},
                                   {255},        {257},
                                   {1023},       {2, 3},
                                   {5, 7},       {1, 1, 1},
                                   {17, 33},     {64, 65},
                                   {3, 1, 4},    {2, 0, 3},
                                   {2, 3, 4, 5}, {1, 2, 1, 3, 1, 2, 1, 2}};

const std::vector<std::pair<Dims, Dims>> kPairs = {{{}, {}},
                                                   {{2, 1}, {1, 2}},
                                                   {{5, 7}, {7}},
                                                   {{5, 7}, {5, 1}},
                                                   {{}, {3, 4}},
                                                   {{3, 4}, {}},
                                                   {{0}, {1}},
                                                   {{2, 0, 3}, {3}},
                                                   {{1}, {13}},
                                                   {{3, 1, 5}, {4, 1}},
                                                   {{129}, {129}},
                                                   {{255, 3}, {255, 3}},
                                                   {{31}, {1}},
                                                   {{4, 5}, {4, 5}},
                                                   {{1, 257}, {3, 1}},
                                                   {{2, 3, 4}, {2, 1, 4}},
                                                   {{2, 2, 2, 2}, {2, 1, 2}}};

const std::vector<std::pair<Layout, Layout>> kLayoutPairs = {
    {Layout::contiguous, Layout::contiguous}, {Layout::transposed, Layout::contiguous},
    {Layout::contiguous, Layout::transposed}, {Layout::strided, Layout::offset},
    {Layout::offset, Layout::expanded},       {Layout::expanded, Layout::strided},
    {Layout::transposed, Layout::strided}};

bool writes_fit(const Slot& first, const std::vector<Slot>& slots) {
  if (first.layout == Layout::expanded && applies(Layout::expanded, first.shape)) return false;
  std::vector<Dims> shapes;
  for (const Slot& slot : slots) {
    if (!slot.number) shapes.push_back(slot.shape);
  }
  return broadcast(shapes) == first.shape;
}

void run_both(Report& report, const Pointwise& row, const std::vector<Slot>& slots, Device device) {
  run(report, {&row, slots, false}, device);
  if (!slots[0].number && writes_fit(slots[0], slots)) run(report, {&row, slots, true}, device);
}

bool is_where(const Pointwise& row) { return op_info(row.op).rule == DTypeRule::select; }

}  // namespace

void run(Report& report, const Cell& cell, Device device) {
  const OpInfo& info = op_info(cell.row->op);
  std::vector<Input> inputs = make_inputs(cell, info, device);
  std::string name = std::string(info.name) + (cell.in_place ? "_(" : "(");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    name += (i ? ", " : "") + describe(inputs[i], cell.slots[i].layout);
  }
  std::string problem;
  try {
    problem = run_cell(cell, info, inputs);
  } catch (const std::exception& error) {
    problem = std::string("threw ") + error.what();
  }
  report.count(name + ")", problem);
}

Tensor run_with_meta(const TensorCall& call, std::span<const Tensor> inputs, std::string& problem) {
  Tensor result = call(inputs);
  std::vector<Tensor> metas;
  for (const Tensor& input : inputs) metas.push_back(input.defined() ? as_meta(input) : Tensor());
  const Tensor shadow = call(metas);
  if (!shadow.is_meta()) {
    problem = "is not a meta tensor for meta inputs";
  } else {
    problem = shape_problem(shadow, result.dtype(), Dims(result.shape()));
  }
  return result;
}

void check_references(Report& report) {
  for (const Pointwise& row : pointwise_ops()) {
    const char* name = op_info(row.op).name;
    report.count(name, pointwise_reference(name) ? "" : "has no reference in op_references.cpp");
  }
  for (const Reduction& row : reduction_ops()) {
    const char* name = op_info(row.op).name;
    report.count(name, reduction_reference(name) ? "" : "has no reference in op_references.cpp");
  }
}

void check_unary(Report& report, Device device) {
  for (const Pointwise& row : pointwise_ops()) {
    if (row.arity != 1) continue;
    for (DType dtype : kAllDTypes) {
      if (!in_this_part(op_info(row.op).name, dtype)) continue;
      for (const Dims& shape : kShapes) {
        for (Layout layout : kLayouts) {
          if (applies(layout, shape)) run_both(report, row, {{dtype, shape, layout}}, device);
        }
      }
    }
  }
}

void check_binary(Report& report, Device device) {
  for (const Pointwise& row : pointwise_ops()) {
    if (row.arity != 2) continue;
    for (DType dtype : kAllDTypes) {
      if (!in_this_part(op_info(row.op).name, dtype)) continue;
      for (const auto& [a, b] : kPairs) {
        for (const auto& [la, lb] : kLayoutPairs) {
          if (!applies(la, a) || !applies(lb, b)) continue;
          run_both(report, row, {{dtype, a, la}, {dtype, b, lb}}, device);
        }
      }
      for (const Dims& shape : kShapes) {
        for (Layout layout : kLayouts) {
          if (!applies(layout, shape)) continue;
          run_both(report, row, {{dtype, shape, layout}, {dtype, {}, Layout::contiguous, true}},
                   device);
        }
        run(report, {&row, {{dtype, {}, Layout::contiguous, true}, {dtype, shape}}}, device);
      }
    }
  }
}

void check_ternary(Report& report, Device device) {
  const std::vector<std::vector<Dims>> triples = {{{}, {}, {}},
                                                  {{5}, {5}, {5}},
                                                  {{2, 1, 3}, {1, 4, 1}, {3}},
                                                  {{0}, {1}, {0}},
                                                  {{3, 4}, {4}, {}},
                                                  {{}, {129}, {129}},
                                                  {{257}, {257}, {1}},
                                                  {{33, 3}, {33, 1}, {33, 3}}};
  const std::vector<std::vector<Layout>> layouts = {
      {Layout::contiguous, Layout::contiguous, Layout::contiguous},
      {Layout::transposed, Layout::strided, Layout::offset},
      {Layout::offset, Layout::expanded, Layout::strided},
      {Layout::strided, Layout::contiguous, Layout::transposed}};
  for (const Pointwise& row : pointwise_ops()) {
    if (row.arity != 3) continue;
    for (DType dtype : kAllDTypes) {
      if (!in_this_part(op_info(row.op).name, dtype)) continue;
      const DType first = is_where(row) ? boolean : dtype;
      for (const auto& shapes : triples) {
        for (const auto& l : layouts) {
          for (int numbers = 0; numbers < 4; ++numbers) {  // which of the last two are numbers
            std::vector<Slot> slots = {
                {first, shapes[0], l[0]}, {dtype, shapes[1], l[1]}, {dtype, shapes[2], l[2]}};
            for (std::size_t i = 1; i < 3; ++i) {
              if (numbers >> (i - 1) & 1) slots[i] = {dtype, {}, Layout::contiguous, true};
            }
            run_both(report, row, slots, device);
          }
        }
      }
    }
    if (is_where(row)) run(report, {&row, {{f32, {3}}, {f32, {3}}, {f32, {3}}}}, device);
  }
}

void check_mixed_types(Report& report, Device device) {
  const std::vector<std::pair<Dims, Dims>> ranks = {
      {{4, 3}, {3}}, {{4, 3}, {}}, {{}, {4, 3}}, {{}, {}}};
  for (const Pointwise& row : pointwise_ops()) {
    if (row.arity == 1) continue;
    for (DType a : kAllDTypes) {
      if (!in_this_part(op_info(row.op).name, a)) continue;
      for (DType b : kAllDTypes) {
        if (a == b) continue;
        for (const auto& [sa, sb] : ranks) {
          std::vector<Slot> slots = {{a, sa}, {b, sb}};
          if (row.arity == 3 && is_where(row)) {
            slots.insert(slots.begin(), {boolean, {4, 3}});
            run(report, {&row, slots}, device);
          } else if (row.arity == 3) {
            slots.push_back({a, sa});
            run_both(report, row, slots, device);
          } else {
            run_both(report, row, slots, device);
          }
        }
        run_both(report, row,
                 row.arity == 2 ? std::vector<Slot>{{a, {4, 3}}, {b, {}, Layout::contiguous, true}}
                                : std::vector<Slot>{{is_where(row) ? boolean : a, {4, 3}},
                                                    {b, {}, Layout::contiguous, true},
                                                    {a, {3}}},
                 device);
      }
    }
  }
}

}  // namespace brrr::test
