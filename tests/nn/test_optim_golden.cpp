// 20 steps of each optimizer against PyTorch's. The data is made by golden/make_optim_golden.py,
// where there is PyTorch; its text has the formulas that are repeated here.
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/catch.h"
#include "tests/harness/skip.h"
#include "tests/harness/source_tree.h"
#include <brrr/brrr.h>

using namespace brrr;
using namespace brrr::optim;

namespace {

constexpr int kSteps = 20;

double coefficient(std::size_t i, int t) {
  return std::sin(1.3 * static_cast<double>(i) + 0.9 * t) + 0.05;
}

struct Trained {
  std::vector<Tensor> params;
  std::vector<double> losses;
};

Trained train(const Transformation& transformation, DType dtype) {
  Trained run;
  std::size_t at = 0;
  for (const Dims& shape : {Dims{7, 3}, Dims{5}}) {
    std::vector<double> values;
    const std::size_t end = at + (shape.size() == 2 ? 21 : 5);
    for (; at < end; ++at) values.push_back(2 * std::cos(0.37 * static_cast<double>(at)));
    run.params.push_back(cast(tensor<double>(values, shape), dtype));
  }
  State state = transformation.init(run.params);
  for (int t = 1; t <= kSteps; ++t) {
    std::vector<Tensor> gradients;
    double loss = 0;
    at = 0;
    for (const Tensor& param : run.params) {
      std::vector<double> g = to_vector<double>(param);
      for (double& value : g) {
        const double c = coefficient(at++, t);
        loss += 0.35 * value * value + c * value;
        value = 0.7 * value + c;
      }
      gradients.push_back(cast(tensor<double>(g, Dims(param.shape())), dtype));
    }
    run.losses.push_back(loss);
    transformation.apply(std::move(gradients), state, run.params);
  }
  return run;
}

double worst(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(got[i] - expected[i]) / (1 + std::abs(expected[i])));
  }
  return most;
}

}  // namespace

TEST_CASE("optimizers agree with PyTorch's", "[optim][golden]") {
  const std::string path = brrr::testing::source_path("tests/golden/optim_golden.safetensors");
  if (!std::filesystem::exists(path)) {
    brrr::testing::skip("no golden/optim_golden.safetensors; golden/make_optim_golden.py makes it");
    return;
  }
  const SafeTensors golden = load_safetensors(path);
  const std::map<std::string, Transformation> optimizers = {
      {"sgd", sgd(0.1)},
      {"momentum", sgd(0.1, {.momentum = 0.9})},
      {"nesterov", sgd(0.1, {.momentum = 0.9, .nesterov = true})},
      {"l2", chain(add_decayed_weights(0.2), sgd(0.1))},
      {"adam", adam(0.05)},
      {"adamw", adamw(0.05, 0.1)},
      {"adam_clipped", chain(clip_by_global_norm(1.5), adam(0.05))}};
  std::size_t asked = 0;
  for (const auto& [name, optimizer] : optimizers) {
    for (DType dtype : {f32, f64}) {
      const Trained run = train(optimizer, dtype);
      const std::string prefix = name + "/" + std::string(name_of(dtype)) + "/";
      // PyTorch divides by the norm and 1e-6 more.
      const double bound = dtype == f32 ? 2e-5 : name == "adam_clipped" ? 2e-6 : 1e-12;
      INFO(prefix);
      for (std::size_t k = 0; k < run.params.size(); ++k) {
        const Tensor& expected = golden.at(prefix + "params." + std::to_string(k));
        CHECK(worst(to_vector<double>(run.params[k]), to_vector<double>(expected)) < bound);
      }
      CHECK(worst(run.losses, to_vector<double>(golden.at(prefix + "losses"))) < bound * 10);
      asked += run.params.size() + 1;
    }
  }
  CHECK(asked == golden.tensors.size());
}
