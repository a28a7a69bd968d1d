// The interpreter of random programs: arrays of doubles, and views as lists of indices into them.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/harness/op_references.h"
#include "tests/harness/op_structured.h"
#include "tests/harness/random_programs.h"

namespace brrr::test {

Values Model::values() const {
  Values all;
  for (std::int64_t place : places) all.push_back((*buffer)[static_cast<std::size_t>(place)]);
  return all;
}

namespace {

Model fresh(Values values, const Dims& shape) {
  Model model{std::make_shared<Values>(std::move(values)), {}, shape};
  model.places.resize(model.buffer->size());
  std::iota(model.places.begin(), model.places.end(), 0);
  return model;
}

// The view whose element at an index is x's at `source(index)`.
template <class F>
Model view_of(const Model& x, const Dims& shape, F source) {
  Model model{x.buffer, {}, shape};
  for (std::int64_t i = 0; i < numel_of(shape); ++i) {
    model.places.push_back(
        x.places[static_cast<std::size_t>(number_of(source(index_of(i, shape)), x.shape))]);
  }
  return model;
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims result = a.size() < b.size() ? b : a;
  for (int i = 1; i <= result.size(); ++i) {
    const std::int64_t da = i <= a.size() ? a[a.size() - i] : 1,
                       db = i <= b.size() ? b[b.size() - i] : 1;
    result[result.size() - i] = da == 1 ? db : da;
  }
  return result;
}

Values spread(const Model& x, const Dims& shape) {
  Values result;
  const int lead = shape.size() - x.shape.size();
  const Values values = x.values();
  for (std::int64_t i = 0; i < numel_of(shape); ++i) {
    Index index = index_of(i, shape);
    index.erase(index.begin(), index.begin() + lead);
    for (int d = 0; d < x.shape.size(); ++d) {
      if (x.shape[d] == 1) index[static_cast<std::size_t>(d)] = 0;
    }
    result.push_back(values[static_cast<std::size_t>(number_of(index, x.shape))]);
  }
  return result;
}

Model pointwise(const std::string& op, const std::vector<const Model*>& operands, const Step& step,
                bool numbered) {
  Dims shape = operands[0]->shape;
  for (const Model* operand : operands) shape = broadcast(shape, operand->shape);
  std::vector<Values> inputs;
  for (const Model* operand : operands) inputs.push_back(spread(*operand, shape));
  if (numbered) inputs.emplace_back(static_cast<std::size_t>(numel_of(shape)), step.number);
  const auto f = pointwise_reference(op);
  Values result;
  double scratch[3];
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    for (std::size_t k = 0; k < inputs.size(); ++k) scratch[k] = inputs[k][i];
    result.push_back(f(scratch, Computing{f64}));
  }
  return fresh(std::move(result), shape);
}

Model reduce(const std::string& op, const Model& x, int dim, bool keepdim) {
  Dims shape = x.shape, rest = x.shape;
  keepdim ? (rest[dim] = 1) : (rest.erase(dim), 0);
  const Values values = x.values();
  Values result;
  for (std::int64_t i = 0; i < numel_of(rest); ++i) {
    Index index = index_of(i, rest);
    if (!keepdim) index.insert(index.begin() + dim, 0);
    Values group;
    for (std::int64_t k = 0; k < shape[dim]; ++k) {
      index[static_cast<std::size_t>(dim)] = k;
      group.push_back(values[static_cast<std::size_t>(number_of(index, shape))]);
    }
    result.push_back(reduction_reference(op)(group));
  }
  return fresh(std::move(result), rest);
}

// Along a dimension, each line replaced by f of it.
template <class F>
Model lines(const Model& x, int dim, F f) {
  Values values = x.values();
  Dims rest = x.shape;
  rest[dim] = 1;
  for (std::int64_t i = 0; i < numel_of(rest); ++i) {
    Index index = index_of(i, rest);
    std::vector<std::size_t> at;
    Values line;
    for (std::int64_t k = 0; k < x.shape[dim]; ++k) {
      index[static_cast<std::size_t>(dim)] = k;
      at.push_back(static_cast<std::size_t>(number_of(index, x.shape)));
      line.push_back(values[at.back()]);
    }
    f(line);
    for (std::size_t k = 0; k < at.size(); ++k) values[at[k]] = line[k];
  }
  return fresh(std::move(values), x.shape);
}

Model product(const Model& a, const Model& b) {
  const Values x = a.values(), y = b.values();
  const std::int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  Values result(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m * n; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      result[static_cast<std::size_t>(i)] +=
          x[static_cast<std::size_t>(i / n * k + l)] * y[static_cast<std::size_t>(l * n + i % n)];
    }
  }
  return fresh(std::move(result), {m, n});
}

Dims shape_from(const std::vector<std::int64_t>& counts) {
  return Dims(std::span<const std::int64_t>(counts));
}

Model run_view(const Step& step, const Model& x) {
  const auto& c = step.counts;
  Dims shape = x.shape;
  if (step.op == "permute") {
    for (std::size_t d = 0; d < c.size(); ++d)
      shape[static_cast<int>(d)] = x.shape[static_cast<int>(c[d])];
    return view_of(x, shape, [&](const Index& i) {
      Index from(i.size());
      for (std::size_t d = 0; d < c.size(); ++d) from[static_cast<std::size_t>(c[d])] = i[d];
      return from;
    });
  }
  if (step.op == "slice") {  // dim start end step
    const auto dim = static_cast<std::size_t>(c[0]);
    shape[static_cast<int>(c[0])] = (c[2] - c[1] + c[3] - 1) / c[3];
    return view_of(x, shape, [&](Index i) {
      i[dim] = c[1] + i[dim] * c[3];
      return i;
    });
  }
  if (step.op == "select") {  // dim index
    shape.erase(static_cast<int>(c[0]));
    return view_of(x, shape, [&](Index i) {
      i.insert(i.begin() + c[0], c[1]);
      return i;
    });
  }
  if (step.op == "unsqueeze") {
    shape.insert(static_cast<int>(c[0]), 1);
    return view_of(x, shape, [&](Index i) {
      i.erase(i.begin() + c[0]);
      return i;
    });
  }
  if (step.op == "expand") {
    shape = shape_from(c);
    return view_of(x, shape, [&](Index i) {
      i.erase(i.begin(), i.begin() + (shape.size() - x.shape.size()));
      for (int d = 0; d < x.shape.size(); ++d) {
        if (x.shape[d] == 1) i[static_cast<std::size_t>(d)] = 0;
      }
      return i;
    });
  }
  Model model = x;  // reshape, where it is a view
  model.shape = shape_from(c);
  return model;
}

const std::vector<std::string> kViews = {"permute",   "slice",  "select",
                                         "unsqueeze", "expand", "reshape"};

// Writes the result into the first argument.
Model run_in_place(const Step& step, const std::vector<const Model*>& in) {
  const std::string& op = step.op;
  const std::string plain = op.substr(0, op.size() - 1);
  Values result;
  if (plain == "copy") {
    result = spread(*in[1], in[0]->shape);
  } else if (plain == "fill") {
    result.assign(in[0]->places.size(), step.number);
  } else {
    const bool numbered = plain.ends_with("#");
    result =
        spread(pointwise(numbered ? plain.substr(0, plain.size() - 1) : plain, in, step, numbered),
               in[0]->shape);
  }
  for (std::size_t i = 0; i < result.size(); ++i)
    (*in[0]->buffer)[static_cast<std::size_t>(in[0]->places[i])] = result[i];
  return *in[0];
}

Model run_step(const Step& step, std::vector<Model>& values) {
  std::vector<const Model*> in;
  for (int argument : step.arguments) in.push_back(&values[static_cast<std::size_t>(argument)]);
  const std::string& op = step.op;
  const auto& c = step.counts;
  if (std::find(kViews.begin(), kViews.end(), op) != kViews.end()) return run_view(step, *in[0]);
  if (op.back() == '_') return run_in_place(step, in);
  if (op == "clone") return fresh(in[0]->values(), in[0]->shape);
  if (op == "matmul") return product(*in[0], *in[1]);
  if (op == "softmax") {
    return lines(*in[0], static_cast<int>(c[0]), [](Values& line) {
      const double most = *std::max_element(line.begin(), line.end());
      double total = 0;
      for (double& v : line) total += v = std::exp(v - most);
      for (double& v : line) v /= total;
    });
  }
  if (op == "cumsum") {
    return lines(*in[0], static_cast<int>(c[0]), [](Values& line) {
      for (std::size_t i = 1; i < line.size(); ++i) line[i] += line[i - 1];
    });
  }
  if (op == "tril") {
    const int rank = in[0]->shape.size();
    Model result = fresh(in[0]->values(), in[0]->shape);
    for (std::size_t i = 0; i < result.places.size(); ++i) {
      const Index index = index_of(static_cast<std::int64_t>(i), in[0]->shape);
      if (index[static_cast<std::size_t>(rank - 1)] > index[static_cast<std::size_t>(rank - 2)])
        (*result.buffer)[i] = 0;
    }
    return result;
  }
  if (op == "cat") {
    const auto dim = static_cast<std::size_t>(c[0]);
    Dims shape = in[0]->shape;
    shape[static_cast<int>(dim)] += in[1]->shape[static_cast<int>(dim)];
    const Values a = in[0]->values(), b = in[1]->values();
    Values result;
    for (std::int64_t i = 0; i < numel_of(shape); ++i) {
      Index index = index_of(i, shape);
      const std::int64_t first = in[0]->shape[static_cast<int>(dim)];
      const bool second = index[dim] >= first;
      if (second) index[dim] -= first;
      result.push_back(
          (second ? b : a)[static_cast<std::size_t>(number_of(index, in[second]->shape))]);
    }
    return fresh(std::move(result), shape);
  }
  if (reduction_reference(op)) return reduce(op, *in[0], static_cast<int>(c[0]), c[1]);
  const bool numbered = op.ends_with("#");
  return pointwise(numbered ? op.substr(0, op.size() - 1) : op, in, step, numbered);
}

}  // namespace

std::vector<Model> interpret(const Program& program) {
  std::vector<Model> values;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    values.push_back(fresh(program.inputs[i], program.input_shapes[i]));
  }
  for (const Step& step : program.steps) values.push_back(run_step(step, values));
  return values;
}

}  // namespace brrr::test
