// State dicts and files of them; parameters in flat tensors.
#include <map>

#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"
#include "tests/harness/nn_reference.h"

#include "brrr/dispatch/op_info.h"

using namespace brrr;
using namespace brrr::test;
using interchange::same;
using interchange::TemporaryFolder;

namespace {

// A tensor of each type: parameters where it can have a gradient.
struct AllTypes : nn::Module {
  std::map<DType, Tensor> tensors;

  explicit AllTypes(std::uint64_t seed) : Module("all") {
    for (const DType dtype : interchange::kAllDTypes) {
      Tensor& x = tensors[dtype] = interchange::filled(dtype, {3, 5}, seed);
      const std::string name(name_of(dtype));
      is_floating(dtype) ? parameter(name, x) : buffer(name, x);
    }
  }
  Tensor forward(const Tensor& x) override { return x; }
};

// Calls by the name of their op.
struct Counter : Observer {
  std::map<std::string, int> calls;
  void before(const Call& call) override { ++calls[op_info(call.op).name]; }
};

}  // namespace

TEST_CASE("nn: a state dict round-trips bit for bit in every dtype", "[nn]") {
  TemporaryFolder folder;
  const AllTypes saved(1);
  SECTION("by a file") {
    AllTypes loaded(2);
    nn::save(saved, folder / "m.safetensors");
    nn::load(loaded, folder / "m.safetensors");
    for (const DType dtype : interchange::kAllDTypes) {
      INFO(name_of(dtype));
      CHECK_FALSE(same(AllTypes(2).tensors.at(dtype), saved.tensors.at(dtype)));
      CHECK(same(loaded.tensors.at(dtype), saved.tensors.at(dtype)));
      CHECK(requires_grad(loaded.tensors.at(dtype)) == is_floating(dtype));
    }
  }
  SECTION("in memory") {
    AllTypes loaded(2);
    nn::load_state_dict(loaded, nn::state_dict(saved));
    for (const DType dtype : interchange::kAllDTypes) {
      CHECK(same(loaded.tensors.at(dtype), saved.tensors.at(dtype)));
    }
  }
  SECTION("a whole model computes the same after it") {
    nn::Transformer one({.vocabulary = 5, .length = 4, .width = 4, .heads = 2, .layers = 2}),
        two({.vocabulary = 5, .length = 4, .width = 4, .heads = 2, .layers = 2});
    const Tensor tokens = tensor(std::vector<std::int64_t>{0, 4, 2}, {1, 3});
    CHECK_FALSE(same(one(tokens), two(tokens)));
    nn::save(one, folder / "t.safetensors");
    nn::load(two, folder / "t.safetensors");
    CHECK(same(one(tokens), two(tokens)));
  }
}

TEST_CASE("nn: a state dict shares memory and has no history", "[nn]") {
  nn::Linear layer(2, 1);
  const nn::StateDict state = nn::state_dict(layer);
  REQUIRE(state.size() == 2);
  CHECK(state[0].first == "weight");
  CHECK(state[1].first == "bias");
  CHECK_FALSE(requires_grad(state[0].second));
  nn::init::constant_(layer.weight, 7);
  CHECK(to_vector<float>(state[0].second) == std::vector<float>{7, 7});
}

TEST_CASE("nn: loading writes into the module's tensors", "[nn]") {
  nn::Linear layer(2, 1);
  const TensorImpl* before = TensorImpl::of(layer.weight);
  const void* data = layer.weight.data();
  nn::load_state_dict(layer, {{"bias", ones({1})}, {"weight", full({1, 2}, 3)}});  // in any order
  CHECK(TensorImpl::of(layer.weight) == before);
  CHECK(layer.weight.data() == data);
  CHECK(is_leaf(layer.weight));
  CHECK(to_vector<float>(layer.weight) == std::vector<float>{3, 3});

  SECTION("and a tape that keeps them knows") {
    const Tensor x = requires_grad_(ones({1, 2}));
    const Tensor y = sum(layer(x));
    nn::load_state_dict(layer, nn::state_dict(nn::Linear(2, 1)));
    CHECK_FALSE(error_of([&] { backward(y); }).empty());
  }
}

TEST_CASE("nn: all that is wrong with a state dict is listed, and nothing has changed", "[nn]") {
  TemporaryFolder folder;
  nn::MLP mlp({2, 3, 1});
  const auto values = [&] {
    std::vector<std::vector<float>> all;
    for (const auto& [name, tensor] : nn::state_dict(mlp)) all.push_back(to_vector<float>(tensor));
    return all;
  };
  const auto before = values();
  nn::StateDict state = {{"layers.0.weight", zeros({3, 2})},
                         {"layers.1.weight", zeros({3, 1})},
                         {"layers.1.bias", zeros({1}, {f64, cpu})},
                         {"layers.2.weight", zeros({4, 4}, {bf16, cpu})},
                         {"head", zeros({})}};
  const std::string list =
      " expected the 4 tensors of the module, got 5:"
      "\n  missing: layers.0.bias f32[3]"
      "\n  mismatched: layers.1.weight expected f32[1, 3], got f32[3, 1]"
      "\n  mismatched: layers.1.bias expected f32[1], got f64[1]"
      "\n  unexpected: head f32[]"
      "\n  unexpected: layers.2.weight bf16[4, 4]";
  CHECK(error_of([&] { nn::load_state_dict(mlp, state); }) == "[load_state_dict]" + list);
  CHECK(values() == before);

  const std::string path = folder / "wrong.safetensors";
  save_safetensors(path, {state, {}});
  CHECK(error_of([&] { nn::load(mlp, path); }) == "[load " + path + "]" + list);
  CHECK(values() == before);

  state = nn::state_dict(mlp);
  state.push_back(state[0]);
  CHECK(error_of([&] { nn::load_state_dict(mlp, state); }) ==
        "[load_state_dict] expected the 4 tensors of the module, got 5:"
        "\n  twice: layers.0.weight");
  state = nn::state_dict(mlp);
  state[1].second = Tensor();
  CHECK(error_of([&] { nn::load_state_dict(mlp, state); }) ==
        "[load_state_dict] expected the 4 tensors of the module, got 4:"
        "\n  mismatched: layers.0.bias expected f32[3], got an undefined tensor");
  CHECK_FALSE(error_of([&] { nn::load(mlp, folder / "absent"); }).empty());
  CHECK(values() == before);
}

TEST_CASE("nn: packed parameters keep their values and are views of the flat ones", "[nn]") {
  nn::MLP mlp({3, 7, 2});
  std::map<std::string, Tensor> before;
  for (const auto& [name, tensor] : nn::state_dict(mlp)) before[name] = clone(tensor);
  nn::Parameters parameters(mlp);
  REQUIRE(parameters.values().size() == 1);
  const Tensor flat = parameters.values()[0];
  CHECK(parameters.numel() == 3 * 7 + 7 + 7 * 2 + 2);
  CHECK(flat.numel() == parameters.numel());
  CHECK(flat.rank() == 1);
  CHECK_FALSE(requires_grad(flat));
  for (const auto& [name, tensor] : mlp.named_parameters()) {
    INFO(name);
    CHECK(same(detach(tensor), before.at(name)));
    CHECK(tensor.shares_storage_with(flat));
    CHECK(tensor.is_contiguous());
    CHECK(is_leaf(tensor));
    CHECK(requires_grad(tensor));
  }

  SECTION("writing to the flat one is writing to the module's") {
    Tensor all = flat;
    {
      const NoGrad constant;
      fill_(all, 2);
    }
    CHECK(to_vector<float>(mlp.layers[1].bias) == std::vector<float>{2, 2});
    const nn::MLP other({3, 7, 2});
    nn::load_state_dict(mlp, nn::state_dict(other));
    CHECK(mlp.layers[0].weight.shares_storage_with(flat));
    CHECK(same(detach(mlp.layers[0].weight), detach(other.layers[0].weight)));
  }
  SECTION("slices are the range of each parameter") {
    std::int64_t at = 0;
    for (const auto& slice : parameters.ranges()) {
      CHECK(slice.start == at);
      at += slice.length;
      CHECK(same(narrow(flat, 0, slice.start, slice.length), flatten(before.at(slice.name))));
      CHECK(parameters.range_at(0, slice.start).name == slice.name);
      CHECK(parameters.range_at(0, at - 1).name == slice.name);
    }
    CHECK(at == parameters.numel());
    CHECK(error_of([&] { parameters.range_at(0, at); }) ==
          "[parameters] expected an element of one of 1 flat tensors, got 44 of 0");
    CHECK_FALSE(error_of([&] { parameters.range_at(1, 0); }).empty());
    CHECK_FALSE(error_of([&] { parameters.range_at(0, -1); }).empty());
  }
}

TEST_CASE("nn: gradients of packed parameters are those of unpacked ones, joined once", "[nn]") {
  nn::MLP packed({3, 8, 8, 2}), plain({3, 8, 8, 2});
  nn::load_state_dict(packed, nn::state_dict(plain));
  nn::Parameters parameters(packed);
  CHECK_FALSE(parameters.gradients()[0].defined());
  const Tensor x = tensor(std::vector<float>{1, 2, -1, 0.5f, 0, 3}, {2, 3});
  const Tensor y = sum(square(packed(x)));
  Counter counter;
  {
    const Observing observing(counter);
    backward(y);
  }
  CHECK(counter.calls["cat"] == 1);
  backward(sum(square(plain(x))));

  const Tensor flat = parameters.gradients()[0];
  REQUIRE(flat.defined());
  CHECK(flat.numel() == parameters.numel());
  std::map<std::string, Tensor> expected;
  for (const auto& [name, tensor] : plain.named_parameters()) expected[name] = grad(tensor);
  for (const auto& slice : parameters.ranges()) {
    INFO(slice.name);
    CHECK(same(narrow(flat, 0, slice.start, slice.length),
               contiguous(flatten(expected.at(slice.name)))));
  }
  for (const auto& [name, tensor] : packed.named_parameters())
    CHECK(same(grad(tensor), expected[name]));

  SECTION("a second backward adds, zero_grad starts over") {
    backward(sum(square(packed(x))));
    CHECK(same(parameters.gradients()[0], flat + flat));
    parameters.zero_grad();
    CHECK_FALSE(parameters.gradients()[0].defined());
    CHECK_FALSE(grad(packed.layers[0].weight).defined());
    backward(sum(square(packed(x))));
    CHECK(same(parameters.gradients()[0], flat));
  }
}

TEST_CASE("nn: one flat tensor a type; aligned ones first; shared and frozen tensors", "[nn]") {
  nn::Sequential model;
  auto& first = model.add<nn::Linear>(3, 5);
  auto& second = model.add<nn::Linear>(5, 64, Options{f64, cpu});
  auto& third = model.add<nn::Linear>(16, 16);
  third.weight = requires_grad_(detach(third.weight));
  requires_grad_(second.bias, false);
  const Tensor frozen = second.bias;
  struct Tied : nn::Module {
    Tensor weight;
    explicit Tied(Tensor shared) : Module("tied"), weight(std::move(shared)) {
      parameter("weight", weight);
    }
    Tensor forward(const Tensor& x) override { return x * weight; }
  };
  auto& tied = model.add<Tied>(third.weight);

  const nn::Parameters parameters(model);
  REQUIRE(parameters.values().size() == 2);
  CHECK(parameters.values()[0].dtype() == f32);
  CHECK(parameters.values()[0].numel() == 3 * 5 + 5 + 16 * 16 + 16);  // the shared one once
  CHECK(parameters.values()[1].dtype() == f64);
  CHECK(parameters.values()[1].numel() == 5 * 64);
  CHECK(TensorImpl::of(second.bias) == TensorImpl::of(frozen));
  CHECK(TensorImpl::of(tied.weight) == TensorImpl::of(third.weight));
  CHECK(tied.weight.shares_storage_with(parameters.values()[0]));
  CHECK(third.weight.storage_offset() == 0);  // 1024 bytes
  CHECK(third.bias.storage_offset() == 256);  // 64 bytes
  std::vector<std::string> names;
  for (const auto& slice : parameters.ranges()) names.push_back(slice.name);
  CHECK(names == std::vector<std::string>{"2.weight", "2.bias", "0.weight", "0.bias", "1.weight"});
  CHECK(first.weight.storage_offset() == 272);

  backward(sum(tied(third(ones({1, 16})))));
  CHECK(parameters.gradients()[0].defined());
  CHECK_FALSE(parameters.gradients()[1].defined());

  nn::Dropout nothing;
  CHECK(error_of([&] { nn::Parameters none(nothing); }) ==
        "[parameters] expected parameters that require a gradient, got none in dropout");
}

TEST_CASE("nn: a module is packed once at a time", "[nn]") {
  nn::MLP mlp({2, 3, 1});
  {
    const nn::Parameters first(mlp);
    CHECK(
        error_of([&] { nn::Parameters second(mlp); }) ==
        "[parameters] expected a module that is packed once at a time, got layers.0.weight of mlp, "
        "which another Parameters or an Optimizer has packed");
    CHECK(first.numel() == 13);
  }
  CHECK_NOTHROW(nn::Parameters(mlp));
}
