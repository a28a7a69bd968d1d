// Modules: values against loops over doubles, gradients by differences, names, and errors.
#include <functional>
#include <map>

#include "tests/harness/catch.h"
#include "tests/harness/nn_reference.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// --- The same mathematics, by loops over rows of doubles.

using Values = std::vector<double>;

// The values of a module's tensors, by path.
class State {
 public:
  explicit State(const nn::Module& module) {
    for (const auto& [name, tensor] : nn::state_dict(module)) {
      values_[name] = to_vector<double>(tensor);
    }
  }
  const Values& at(const std::string& name) const { return values_.at(name); }
  bool has(const std::string& name) const { return values_.contains(name); }

 private:
  std::map<std::string, Values> values_;
};

Values linear_of(const State& s, const std::string& path, const Values& x, std::size_t in) {
  const Values& w = s.at(path + "weight");
  const std::size_t out = w.size() / in, rows = x.size() / in;
  Values y(rows * out);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = s.has(path + "bias") ? s.at(path + "bias")[o] : 0;
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
  }
  return y;
}

Values gelu_of(Values x) {
  for (double& v : x)
    v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  return x;
}

Values norm_of(const State& s, const std::string& path, Values x, bool centred) {
  const Values& w = s.at(path + "weight");
  const std::size_t n = w.size();
  for (std::size_t r = 0; r < x.size() / n; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; centred && i < n; ++i) mean += x[r * n + i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
      variance += (x[r * n + i] - mean) * (x[r * n + i] - mean) / static_cast<double>(n);
    }
    for (std::size_t i = 0; i < n; ++i) {
      double& v = x[r * n + i];
      v = (v - mean) / std::sqrt(variance + (centred ? 1e-5 : 1e-6)) * w[i];
      if (centred) v += s.at(path + "bias")[i];
    }
  }
  return x;
}

// Causal, for one sequence.
Values attention_of(const State& s, const std::string& path, const Values& x, std::size_t width,
                    std::size_t heads) {
  const std::size_t length = x.size() / width, each = width / heads;
  const Values qkv = linear_of(s, path + "qkv.", x, width);
  const auto part = [&](std::size_t which, std::size_t place, std::size_t head, std::size_t i) {
    return qkv[place * 3 * width + which * width + head * each + i];
  };
  Values mixed(x.size());
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t q = 0; q < length; ++q) {
      Values weights;
      double total = 0;
      for (std::size_t k = 0; k <= q; ++k) {
        double score = 0;
        for (std::size_t i = 0; i < each; ++i) score += part(0, q, h, i) * part(1, k, h, i);
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(each))));
        total += weights.back();
      }
      for (std::size_t k = 0; k <= q; ++k) {
        for (std::size_t i = 0; i < each; ++i) {
          mixed[q * width + h * each + i] += weights[k] / total * part(2, k, h, i);
        }
      }
    }
  }
  return linear_of(s, path + "out.", mixed, width);
}

Values sum_of(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Values block_of(const State& s, const std::string& path, const Values& x, std::size_t width,
                std::size_t heads) {
  const Values mixed = sum_of(
      x, attention_of(s, path + "attention.", norm_of(s, path + "norm1.", x, true), width, heads));
  const Values inner = gelu_of(
      linear_of(s, path + "mlp.layers.0.", norm_of(s, path + "norm2.", mixed, true), width));
  return sum_of(mixed, linear_of(s, path + "mlp.layers.1.", inner, 4 * width));
}

// Every sequence of a batch by itself.
Values each_of(std::size_t sequences, const Values& x, const std::function<Values(Values)>& f) {
  Values all;
  const std::size_t n = x.size() / sequences;
  for (std::size_t b = 0; b < sequences; ++b) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(b * n);
    const Values one = f(Values(begin, begin + static_cast<std::ptrdiff_t>(n)));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// --- Gradients

void check_gradients(nn::Module& module, const Tensor& x) {
  std::vector<Tensor*> places;
  std::vector<Tensor> inputs = {x};
  for (const auto& entry : module.named_tensors()) {
    places.push_back(entry.tensor);
    inputs.push_back(*entry.tensor);
  }
  // The module as a function of what it is given, parameters included.
  const auto function = [&](std::span<const Tensor> given) {
    for (std::size_t i = 0; i < places.size(); ++i) *places[i] = given[i + 1];
    return std::vector<Tensor>{module(given[0])};
  };
  for (const GradcheckOptions& options :
       {GradcheckOptions{}, GradcheckOptions{.second_order = true, .directional = true}}) {
    const GradcheckResult result = gradcheck(function, inputs, options);
    INFO(result.message);
    CHECK(result);
  }
}

Tensor leaf(const Dims& shape) { return requires_grad_(pattern(shape, 0.1)); }

}  // namespace

TEST_CASE("nn: Linear by hand", "[nn]") {
  nn::Linear layer(2, 3);
  {
    const NoGrad constant;
    copy_(layer.weight, tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2}));
    copy_(layer.bias, tensor({10, 20, 30}));
  }
  CHECK(to_vector<float>(layer(tensor(std::vector<float>{1, -1, 0, 2}, {2, 2}))) ==
        std::vector<float>{9, 19, 29, 14, 28, 42});
  nn::Linear without(2, 3, {}, false);
  CHECK(nn::state_dict(without).size() == 1);
}

TEST_CASE("nn: every module computes what loops compute", "[nn]") {
  SECTION("MLP") {
    nn::MLP mlp({3, 5, 4, 2}, kWide);
    fill_with_patterns(mlp);
    const State s(mlp);
    const Tensor x = pattern({6, 3}, 0.1);
    Values expected = gelu_of(linear_of(s, "layers.0.", to_vector<double>(x), 3));
    expected = linear_of(s, "layers.2.", gelu_of(linear_of(s, "layers.1.", expected, 5)), 4);
    CHECK(difference_from(mlp(x), {6, 2}, expected) == "");
  }
  SECTION("residual block") {
    nn::ResidualBlock block(4, kWide);
    fill_with_patterns(block);
    CHECK(block.mlp.layers[0].weight.size(0) == 16);
    const State s(block);
    const Tensor x = pattern({3, 4}, 0.1);
    Values expected = norm_of(s, "norm.", to_vector<double>(x), true);
    expected = gelu_of(linear_of(s, "mlp.layers.0.", expected, 4));
    expected = linear_of(s, "mlp.layers.1.", expected, 16);
    const Values at = to_vector<double>(x);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += at[i];
    CHECK(difference_from(block(x), {3, 4}, expected) == "");
  }
  SECTION("norms") {
    nn::LayerNorm layer_norm(6, kWide);
    nn::RMSNorm rms_norm(6, kWide);
    CHECK(to_vector<double>(layer_norm.weight) == Values(6, 1.0));
    CHECK(to_vector<double>(layer_norm.bias) == Values(6, 0.0));
    CHECK(to_vector<double>(rms_norm.weight) == Values(6, 1.0));
    fill_with_patterns(layer_norm);
    fill_with_patterns(rms_norm);
    const Tensor x = pattern({2, 3, 6}, 0.1);
    CHECK(difference_from(layer_norm(x), {2, 3, 6},
                          norm_of(State(layer_norm), "", to_vector<double>(x), true)) == "");
    CHECK(difference_from(rms_norm(x), {2, 3, 6},
                          norm_of(State(rms_norm), "", to_vector<double>(x), false)) == "");
  }
}

TEST_CASE("nn: attention and the transformer compute what loops compute", "[nn]") {
  SECTION("attention and block") {
    nn::MultiHeadAttention attention(8, 2, kWide);
    nn::TransformerBlock block(8, 2, kWide);
    fill_with_patterns(attention);
    fill_with_patterns(block);
    for (const std::int64_t length : {5, 3, 1}) {  // the mask follows the length
      const Tensor x = pattern({2, length, 8}, 0.1);
      const Values values = to_vector<double>(x);
      const State a(attention), b(block);
      CHECK(difference_from(attention(x), {2, length, 8}, each_of(2, values, [&](const Values& v) {
                              return attention_of(a, "", v, 8, 2);
                            })) == "");
      CHECK(difference_from(block(x), {2, length, 8}, each_of(2, values, [&](const Values& v) {
                              return block_of(b, "", v, 8, 2);
                            })) == "");
    }
  }
  SECTION("Transformer") {
    nn::Transformer model({.vocabulary = 7, .length = 5, .width = 8, .heads = 2, .layers = 2},
                          kWide);
    fill_with_patterns(model);
    const State s(model);
    const std::vector<std::int64_t> tokens = {0, 6, 2, 3};
    Values h;
    for (std::size_t place = 0; place < tokens.size(); ++place) {
      for (std::size_t i = 0; i < 8; ++i) {
        h.push_back(s.at("tokens.weight")[static_cast<std::size_t>(tokens[place]) * 8 + i] +
                    s.at("places.weight")[place * 8 + i]);
      }
    }
    h = block_of(s, "blocks.1.", block_of(s, "blocks.0.", h, 8, 2), 8, 2);
    const Values expected = linear_of(s, "head.", norm_of(s, "norm.", h, true), 8);
    CHECK(difference_from(model(tensor(tokens, {1, 4})), {1, 4, 7}, expected) == "");
  }
}

TEST_CASE("nn: an MLP has the activation that it is given", "[nn]") {
  const std::pair<nn::Activation, double (*)(double)> activations[] = {
      {nn::Activation::gelu_tanh,
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {nn::Activation::gelu, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2))); }},
      {nn::Activation::relu, [](double x) { return x > 0 ? x : 0; }},
      {nn::Activation::silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {nn::Activation::tanh, [](double x) { return std::tanh(x); }},
  };
  REQUIRE(std::size(activations) == std::size(nn::kActivations));
  const Tensor x = pattern({6, 3}, 0.1);
  for (const auto& [activation, function] : activations) {
    INFO(nn::name_of(activation));
    nn::MLP mlp({3, 5, 2}, {.dtype = f64, .activation = activation});
    nn::ResidualBlock block(3, {.dtype = f64, .activation = activation});
    for (nn::Module* each : std::initializer_list<nn::Module*>{&mlp, &block})
      fill_with_patterns(*each);
    const State s(mlp), b(block);
    Values expected = linear_of(s, "layers.0.", to_vector<double>(x), 3);
    for (double& value : expected) value = function(value);
    CHECK(difference_from(mlp(x), {6, 2}, linear_of(s, "layers.1.", expected, 5)) == "");
    expected = norm_of(b, "norm.", to_vector<double>(x), true);
    expected = linear_of(b, "mlp.layers.0.", expected, 3);
    for (double& value : expected) value = function(value);
    const Tensor added = block(x) - x;
    CHECK(difference_from(added, {6, 3}, linear_of(b, "mlp.layers.1.", expected, 12)) == "");
  }
  // Forms of the call.
  const Options here{.dtype = f64};
  CHECK(nn::MLP({2, 3}).layers[0].weight.dtype() == f32);
  CHECK(nn::MLP({2, 3}, {}).layers[0].weight.dtype() == f32);
  CHECK(nn::MLP({2, 3}, here).layers[0].weight.dtype() == f64);
  CHECK(nn::MLP({2, 3}, {.dtype = bf16, .device = cpu}).layers[0].weight.dtype() == bf16);
  CHECK(nn::MLP({2, 3}, {.activation = nn::Activation::relu}).layers[0].weight.dtype() == f32);
  CHECK(nn::ResidualBlock(2, here).norm.weight.dtype() == f64);
}

TEST_CASE("nn: Embedding picks rows and adds up their gradients", "[nn]") {
  nn::Embedding table(4, 2);
  const Tensor index = tensor(std::vector<std::int32_t>{3, 1, 3}, {3, 1});
  const Tensor rows = table(index);
  CHECK(Dims(rows.shape()) == Dims{3, 1, 2});
  const std::vector<float> w = to_vector<float>(table.weight);
  CHECK(to_vector<float>(rows) == std::vector<float>{w[6], w[7], w[2], w[3], w[6], w[7]});
  backward(sum(rows));
  CHECK(to_vector<float>(grad(table.weight)) == std::vector<float>{0, 0, 1, 1, 0, 0, 2, 2});
}

TEST_CASE("nn: gradients of every module agree with differences, first and second order", "[nn]") {
  SECTION("Linear") {
    nn::Linear layer(3, 2, kWide);
    check_gradients(layer, leaf({4, 3}));
  }
  SECTION("MLP") {
    nn::MLP mlp({3, 4, 2}, kWide);
    check_gradients(mlp, leaf({4, 3}));
  }
  SECTION("ResidualBlock") {
    nn::ResidualBlock block(3, {.dtype = f64, .activation = nn::Activation::silu});
    check_gradients(block, leaf({2, 3}));
  }
  SECTION("LayerNorm") {
    nn::LayerNorm norm(5, kWide);
    check_gradients(norm, leaf({3, 5}));
  }
  SECTION("RMSNorm") {
    nn::RMSNorm norm(5, kWide);
    check_gradients(norm, leaf({3, 5}));
  }
  SECTION("MultiHeadAttention") {
    nn::MultiHeadAttention attention(4, 2, kWide);
    fill_with_patterns(attention);
    check_gradients(attention, leaf({2, 3, 4}));
  }
  SECTION("TransformerBlock") {
    nn::TransformerBlock block(4, 2, kWide);
    check_gradients(block, leaf({1, 3, 4}));
  }
  SECTION("Dropout") {
    nn::Dropout dropout(0.4);
    check_gradients(dropout, leaf({4, 5}));
  }
  SECTION("Sequential") {
    nn::Sequential model;
    model.add<nn::Linear>(3, 4, kWide);
    model.add<nn::Function>(gelu_tanh);
    model.add<nn::RMSNorm>(4, kWide);
    check_gradients(model, leaf({2, 3}));
  }
  SECTION("Embedding and Transformer") {
    const Tensor tokens = tensor(std::vector<std::int64_t>{0, 2, 2}, {1, 3});
    nn::Embedding table(4, 2, kWide);
    check_gradients(table, tokens);
    nn::Transformer model({.vocabulary = 3, .length = 4, .width = 4, .heads = 2, .layers = 1},
                          kWide);
    fill_with_patterns(model);
    check_gradients(model, tokens);
  }
}

TEST_CASE("nn: attention as a function", "[nn]") {
  const Tensor query = pattern({2, 3, 4}, 0.1), key = pattern({2, 5, 4}, 0.2),
               value = pattern({2, 5, 6}, 0.4);
  SECTION("is a mean of values where all keys are alike") {
    const Tensor same = ones({2, 5, 4}, kWide);
    const Tensor expected = expand(mean(value, {1}, true), {2, 3, 6});
    CHECK(difference_between(nn::scaled_dot_product_attention(query, same, value), expected) == "");
  }
  SECTION("a query that sees one key gives its value") {
    const Tensor mask = eq(unsqueeze(arange(3), 1) + 1, arange(5));
    const Tensor expected = narrow(value, 1, 1, 3);
    const Tensor got = nn::scaled_dot_product_attention(query, key, value, {.mask = mask});
    CHECK(difference_between(got, expected) == "");
  }
  SECTION("causal is the mask of the keys up to the query") {
    const Tensor mask = ge(unsqueeze(arange(3), 1), arange(5));
    CHECK(difference_between(nn::scaled_dot_product_attention(query, key, value, {.causal = true}),
                             nn::scaled_dot_product_attention(query, key, value, {.mask = mask})) ==
          "");
  }
  SECTION("a scale of zero is a plain mean") {
    const Tensor expected = expand(mean(value, {1}, true), {2, 3, 6});
    CHECK(difference_between(nn::scaled_dot_product_attention(query, key, value, {.scale = 0}),
                             expected) == "");
  }
  SECTION("shapes that do not fit are named") {
    CHECK(error_of([&] { nn::scaled_dot_product_attention(query, value, value); }) ==
          "[scaled_dot_product_attention] expected query [..., queries, width], key [..., keys, "
          "width] and value [..., keys, values], got f64[2, 3, 4], f64[2, 5, 6] and f64[2, 5, 6]");
  }
}

TEST_CASE("nn: attention does not see what comes later", "[nn]") {
  nn::MultiHeadAttention attention(8, 2, kWide), both_ways(8, 2, kWide, false);
  const Tensor x = pattern({1, 4, 8}, 0.1);
  const Tensor changed = clone(x);
  Tensor last = narrow(changed, 1, 3, 1);
  fill_(last, 9);
  const auto first_three = [](const Tensor& y) { return to_vector<double>(narrow(y, 1, 0, 3)); };
  CHECK(first_three(attention(x)) == first_three(attention(changed)));
  CHECK(first_three(both_ways(x)) != first_three(both_ways(changed)));
}

TEST_CASE("nn: dropout drops in training and not in evaluation", "[nn]") {
  nn::Sequential model;
  model.add<nn::Dropout>(0.5);
  const Tensor x = ones({1000});
  manual_seed(3);
  const Tensor dropped = model(x);
  const double kept = item(sum(dropped)) / 2;
  CHECK(kept > 400);
  CHECK(kept < 600);
  CHECK(item(max(dropped)) == 2);
  model.eval();
  CHECK_FALSE(model[0].training());
  CHECK(to_vector<float>(model(x)) == std::vector<float>(1000, 1.0f));
  model.train();
  CHECK(model[0].training());
  nn::Sequential evaluated;
  evaluated.eval();
  CHECK_FALSE(evaluated.add<nn::Dropout>().training());  // as the model that it joins
  CHECK(error_of([] { nn::Dropout(1.5); }) ==
        "[dropout] expected a probability in [0, 1], got 1.5");

  nn::MultiHeadAttention attention(4, 1, {}, true, 0.5);
  const Tensor y = randn({1, 6, 4});
  CHECK(to_vector<float>(attention(y)) != to_vector<float>(attention(y)));
  attention.eval();
  CHECK(to_vector<float>(attention(y)) == to_vector<float>(attention(y)));
}

TEST_CASE("nn: names are paths, in order", "[nn]") {
  nn::Transformer model({.vocabulary = 5, .length = 4, .width = 4, .heads = 1, .layers = 2});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.named_parameters()) {
    names.push_back(name);
    CHECK(requires_grad(tensor));
    CHECK(is_leaf(tensor));
  }
  CHECK(names.size() == 2 + 2 * 12 + 3);
  CHECK(names.front() == "tokens.weight");
  CHECK(names[1] == "places.weight");
  CHECK(std::vector(names.begin() + 14, names.begin() + 26) ==
        std::vector<std::string>{"blocks.1.norm1.weight", "blocks.1.norm1.bias",
                                 "blocks.1.attention.qkv.weight", "blocks.1.attention.qkv.bias",
                                 "blocks.1.attention.out.weight", "blocks.1.attention.out.bias",
                                 "blocks.1.norm2.weight", "blocks.1.norm2.bias",
                                 "blocks.1.mlp.layers.0.weight", "blocks.1.mlp.layers.0.bias",
                                 "blocks.1.mlp.layers.1.weight", "blocks.1.mlp.layers.1.bias"});
  CHECK(names.back() == "head.weight");
  CHECK(model.path() == "transformer");
  CHECK(model.blocks[1].mlp.layers[0].path() == "transformer.blocks.1.mlp.layers.0");
}

TEST_CASE("nn: a wrong input is refused with the module's path and both shapes", "[nn]") {
  nn::MLP mlp({2, 64, 3});
  CHECK(error_of([&] {
          mlp(zeros({32, 63}));
        }) == "[mlp.layers.0] expected input f32[..., 2], got f32[32, 63]");
  CHECK(error_of([&] {
          mlp.layers[1](zeros({32, 63}));
        }) == "[mlp.layers.1] expected input f32[..., 64], got f32[32, 63]");
  CHECK(error_of([&] {
          mlp(zeros({4, 2}, kWide));
        }) == "[mlp.layers.0] expected input f32[..., 2], got f64[4, 2]");
  CHECK(error_of([&] { mlp(Tensor()); }) ==
        "[mlp.layers.0] expected input f32[..., 2], got an undefined tensor");

  nn::Transformer model({.vocabulary = 5, .length = 4, .width = 4, .heads = 1, .layers = 1});
  CHECK(error_of([&] {
          model(zeros({1, 4}));
        }) == "[transformer] expected input of integers [batch, length up to 4], got f32[1, 4]");
  CHECK(error_of([&] {
          model(zeros({1, 5}, {i64, cpu}));
        }) == "[transformer] expected input of integers [batch, length up to 4], got i64[1, 5]");
  CHECK(error_of([&] {
          model.blocks[0](zeros({1, 4, 3}));
        }) == "[transformer.blocks.0.norm1] expected input f32[..., 4], got f32[1, 4, 3]");
  CHECK(error_of([&] {
          model.blocks[0].attention(zeros({4, 4}));
        }) ==
        "[transformer.blocks.0.attention] expected input f32[batch, length, 4], got f32[4, 4]");
  CHECK(error_of([&] { model.tokens(zeros({2})); }) ==
        "[transformer.tokens] expected input of integers, got f32[2]");
  CHECK(error_of([] { nn::MultiHeadAttention(6, 4); }) ==
        "[attention] expected a width that is a multiple of the heads, got 6 and 4");
  CHECK(error_of([] { nn::MLP({3}); }) == "[mlp] expected at least 2 widths, got 1");
}

TEST_CASE("nn: what a module may name", "[nn]") {
  struct Mine : nn::Module {
    using Module::buffer, Module::child, Module::parameter;
    Mine() : Module("mine") {}
    Tensor forward(const Tensor& x) override { return x; }
  };
  Mine outer, other;
  Tensor w = ones({2}), count = zeros({}, {i64, cpu}), none;
  outer.parameter("w", w);
  outer.buffer("count", count);
  CHECK(requires_grad(w));
  CHECK(outer.named_parameters().size() == 1);
  CHECK(outer.named_tensors().size() == 2);
  CHECK(error_of([&] { outer.parameter("w", w); }) ==
        "[mine] expected each name once, got \"w\" again");
  CHECK(error_of([&] { outer.child("w", other); }) ==
        "[mine] expected each name once, got \"w\" again");
  CHECK(error_of([&] { outer.parameter("", w); }) == "[mine] expected a name, got an empty one");
  CHECK(error_of([&] { outer.buffer("none", none); }) ==
        "[mine] expected a tensor for \"none\", got an undefined one");
  CHECK_FALSE(error_of([&] { outer.parameter("whole", count); }).empty());
  CHECK(outer.named_tensors().size() == 2);
  CHECK_FALSE(error_of([&] { outer.child("self", outer); }).empty());
  outer.child("other", other);
  CHECK(error_of([&] { other.child("outer", outer); }).starts_with("[mine.other] expected"));
  Mine third;
  CHECK(error_of([&] { third.child("other", other); }) ==
        "[mine] expected \"other\" to be a module without a parent, got mine.other");

  SECTION("a module that goes leaves its parent") {
    auto inner = std::make_unique<Mine>();
    inner->parameter("w", w);
    third.child("inner", *inner);
    CHECK(third.named_tensors().size() == 1);
    inner.reset();
    CHECK(third.named_tensors().empty());
  }
  SECTION("a tensor under two names is one parameter") {
    Tensor also = w;
    outer.parameter("also", also);
    CHECK(outer.named_tensors().size() == 3);
    CHECK(outer.named_parameters().size() == 1);
  }
}

TEST_CASE("nn: first values", "[nn]") {
  manual_seed(5);
  const auto most = [](const Tensor& x) { return item(max(abs(x))); };
  const auto deviation = [](const Tensor& x) { return std::sqrt(item(mean(square(x)))); };
  Tensor w = empty({200, 50});
  SECTION("bounds and deviations") {
    nn::init::uniform_(w, -3, 1);
    CHECK(item(min(w)) >= -3);
    CHECK(item(min(w)) < -2.9);
    CHECK(item(max(w)) < 1);
    nn::init::normal_(w, 5, 2);
    CHECK(item(mean(w)) == Approx(5).margin(0.1));
    CHECK(std::sqrt(item(var(w))) == Approx(2).margin(0.1));
    nn::init::xavier_uniform_(w, 2);
    CHECK(most(w) == Approx(2 * std::sqrt(6.0 / 250)).epsilon(0.01));
    nn::init::xavier_normal_(w);
    CHECK(deviation(w) == Approx(std::sqrt(2.0 / 250)).epsilon(0.05));
    nn::init::kaiming_uniform_(w, std::sqrt(5.0));
    CHECK(most(w) == Approx(1 / std::sqrt(50.0)).epsilon(0.01));
    nn::init::kaiming_normal_(w);
    CHECK(deviation(w) == Approx(std::sqrt(2.0 / 50)).epsilon(0.05));
    nn::init::constant_(w, 0.25);
    CHECK(to_vector<float>(w) == std::vector<float>(10000, 0.25f));
    Tensor filters = empty({4, 2, 3, 3});
    nn::init::kaiming_uniform_(filters, 1);
    CHECK(most(filters) <= std::sqrt(3.0 / 18));
    CHECK(most(filters) > 0.8 * std::sqrt(3.0 / 18));
  }
  SECTION("a leaf stays a leaf, of its type") {
    for (const DType dtype : {f32, f64, f16, bf16}) {
      Tensor leaf = requires_grad_(zeros({4, 4}, {dtype, cpu}));
      nn::init::normal_(leaf);
      CHECK(is_leaf(leaf));
      CHECK(leaf.dtype() == dtype);
      CHECK(most(to(detach(leaf), f32)) > 0);
    }
  }
  SECTION("Linear and Embedding") {
    const nn::Linear layer(100, 300);
    CHECK(most(layer.weight) <= 0.1);
    CHECK(most(layer.weight) > 0.099);
    CHECK(most(layer.bias) <= 0.1);
    CHECK(most(layer.bias) > 0.09);
    const nn::Embedding table(100, 30);
    CHECK(deviation(table.weight) == Approx(1).margin(0.05));
    const nn::Transformer model({.vocabulary = 64, .length = 8, .width = 32, .layers = 1});
    CHECK(deviation(model.tokens.weight) == Approx(0.02).epsilon(0.1));
    CHECK(deviation(model.head.weight) == Approx(0.02).epsilon(0.1));
  }
  SECTION("a weight needs two dimensions") {
    Tensor bias = zeros({3});
    CHECK(error_of([&] { nn::init::xavier_uniform_(bias); }) ==
          "[xavier_uniform_] expected a weight of at least 2 dimensions, got f32[3]");
  }
}
