// The kinds of models, and how their sizes are drawn.
#include "brrr/measure/sweep_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/sequential.h"
#include "brrr/nn/transformer.h"

namespace brrr::measure {
namespace {

using std::int64_t;

enum class ModelKind {
  mlp,
  transformer,
  gated,
  recurrent,
  experts,
  convolution,
  second_derivative
};
constexpr std::array kModelKinds = {ModelKind::mlp,
                                    ModelKind::transformer,
                                    ModelKind::gated,
                                    ModelKind::recurrent,
                                    ModelKind::experts,
                                    ModelKind::convolution,
                                    ModelKind::second_derivative};
constexpr const char* kModelNames[] = {"mlp",     "transformer", "gated units",      "gru",
                                       "experts", "convolution", "second derivative"};

enum class Norm { none, layer, rms };

struct Draw {
  ModelKind kind = ModelKind::mlp;
  int64_t batch = 1, width = 8;
  int64_t depth = 1;   // layers or blocks
  int64_t length = 1;  // of a sequence
  int64_t head = 0;    // width of a head
  int64_t experts = 0;
  nn::Activation activation = nn::Activation::relu;
  Norm norm = Norm::none;
  bool residual = false;
  double dropout = 0;
  DType dtype = f32;
  bool tf32 = false;
};

// Equal on every machine, as the distributions of <random> are not.
class Dice {
 public:
  Dice(std::uint64_t seed, int64_t number) {
    const auto part = [](std::uint64_t x, int shift) {
      return static_cast<std::uint32_t>(x >> shift);
    };
    const auto of = static_cast<std::uint64_t>(number);
    std::seed_seq words{part(seed, 0), part(seed, 32), part(of, 0), part(of, 32)};
    engine_.seed(words);
  }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool chance(double p) { return uniform() < p; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(uniform() * static_cast<double>(high - low + 1));
  }
  // As many between 8 and 16 as between 1024 and 2048.
  int64_t scaled(int64_t low, int64_t high) {
    const double ratio = static_cast<double>(high) / static_cast<double>(low);
    return std::clamp(
        static_cast<int64_t>(std::round(static_cast<double>(low) * std::pow(ratio, uniform()))),
        low, high);
  }
  template <class T, std::size_t N>
  T of(const std::array<T, N>& list) {
    return list[static_cast<std::size_t>(between(0, N - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

int64_t draw_width(Dice& dice, int64_t most) {
  const int64_t width = dice.scaled(8, most);
  return dice.chance(0.7) ? (width + 7) / 8 * 8 : width;
}

// FLOPs of a step's products: forward, and twice as many backward.
double flops_of(const Draw& d) {
  const auto w = static_cast<double>(d.width), rows = static_cast<double>(d.batch * d.length);
  double layer = w * w;
  if (d.kind == ModelKind::transformer) layer = 12 * w * w + 2 * static_cast<double>(d.length) * w;
  if (d.kind == ModelKind::gated) layer = 9 * w * w;
  if (d.kind == ModelKind::recurrent) layer = 6 * w * w;
  if (d.kind == ModelKind::experts) layer = static_cast<double>(d.experts) * w * w;
  if (d.kind == ModelKind::convolution) layer = 3 * w * w;
  if (d.kind == ModelKind::second_derivative) layer = 2 * w * w;
  return 6 * rows * layer * static_cast<double>(d.depth);
}

void shrink(Draw& d, double most_flops) {
  while (flops_of(d) > most_flops) {
    if (d.batch > 1) {
      d.batch /= 2;
    } else if (d.depth > 1) {
      d.depth /= 2;
    } else if (d.length > 8) {
      d.length /= 2;
    } else {
      break;
    }
  }
}

Draw draw(Dice& dice, Device device) {
  Draw d;
  d.kind = dice.chance(0.35)  ? ModelKind::mlp
           : dice.chance(0.3) ? ModelKind::transformer
                              : dice.of(kModelKinds);
  d.batch = dice.scaled(1, 8192);
  d.width = draw_width(dice, 2048);
  d.depth = dice.scaled(1, 16);
  d.activation = dice.of(std::to_array(nn::kActivations));
  d.norm = dice.of(std::array{Norm::none, Norm::layer, Norm::rms});
  d.residual = dice.chance(0.4);
  if (dice.chance(0.25)) d.dropout = 0.1;
  d.dtype = dice.chance(device.is_cpu() ? 0.3 : 0.5) ? bf16 : f32;
  d.tf32 = device.is_cuda() && d.dtype == f32 && dice.chance(0.8);
  switch (d.kind) {
    case ModelKind::transformer:
      d.head = dice.of(std::array<int64_t, 6>{16, 32, 48, 64, 96, 128});
      d.width = d.head * dice.scaled(1, std::max<int64_t>(1, 1024 / d.head));
      d.length = dice.scaled(4, 1024);
      d.batch = dice.scaled(1, 64);
      d.depth = dice.scaled(1, 8);
      break;
    case ModelKind::recurrent:
      d.length = dice.between(2, 24);
      d.batch = dice.scaled(1, 512);
      d.width = draw_width(dice, 512);
      d.depth = 1;
      break;
    case ModelKind::experts:
      d.experts = dice.between(2, 8);
      d.width = draw_width(dice, 512);
      d.depth = dice.between(1, 4);
      break;
    case ModelKind::convolution:
      d.length = dice.scaled(16, 512);
      d.batch = dice.scaled(1, 256);
      d.width = draw_width(dice, 256);
      d.depth = dice.between(1, 6);
      break;
    case ModelKind::second_derivative:
      d.width = draw_width(dice, 512);
      d.depth = dice.between(2, 6);
      d.dtype = f32;
      break;
    default: break;
  }
  return d;
}

bool has_norm(ModelKind kind) {
  return kind == ModelKind::mlp || kind == ModelKind::gated || kind == ModelKind::experts;
}
bool has_activation(ModelKind kind) {
  return kind == ModelKind::mlp || kind == ModelKind::experts || kind == ModelKind::convolution;
}

std::string name_of(const Draw& d) {
  std::string name = fmt::format("{} {}", kModelNames[static_cast<int>(d.kind)], d.batch);
  if (d.length > 1) name += fmt::format(" x {}", d.length);
  name += fmt::format(" x {} x {}", d.width, d.depth);
  if (d.head > 0) name += fmt::format(", heads of {}", d.head);
  if (d.experts > 0) name += fmt::format(", {} experts", d.experts);
  if (has_activation(d.kind)) name += fmt::format(", {}", nn::name_of(d.activation));
  if (has_norm(d.kind) && d.norm != Norm::none)
    name += d.norm == Norm::layer ? ", layer norm" : ", rms norm";
  if (d.residual && d.kind == ModelKind::mlp) name += ", residual";
  if (d.dropout > 0 && (d.kind == ModelKind::mlp || d.kind == ModelKind::transformer))
    name += ", dropout";
  return name + (d.dtype == bf16 ? ", bf16" : d.tf32 ? ", tf32" : ", f32");
}

std::unique_ptr<nn::Module> norm_of(const Draw& d, const Options& here) {
  if (d.norm == Norm::layer) return std::make_unique<nn::LayerNorm>(d.width, here);
  if (d.norm == Norm::rms) return std::make_unique<nn::RMSNorm>(d.width, here);
  return std::make_unique<nn::Function>([](const Tensor& x) { return x; });
}

// activation(norm(linear(x))), with dropout and a residual where they were drawn.
class DenseLayer : public nn::Module {
 public:
  DenseLayer(const Draw& d, const Options& here)
      : linear_(d.width, d.width, here),
        norm_(norm_of(d, here)),
        dropout_(d.dropout),
        activation_(d.activation),
        residual_(d.residual) {
    child("linear", linear_);
    child("norm", *norm_);
    child("dropout", dropout_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = nn::activate(activation_, (*norm_)(linear_(x)));
    y = dropout_(y);
    return residual_ ? x + y : y;
  }

 private:
  nn::Linear linear_;
  std::unique_ptr<nn::Module> norm_;
  nn::Dropout dropout_;
  nn::Activation activation_;
  bool residual_;
};

// x + down(silu(gate(norm(x))) * up(norm(x))), three times as wide inside.
class GatedBlock : public nn::Module {
 public:
  GatedBlock(const Draw& d, const Options& here)
      : norm_(norm_of(d, here)),
        gate_(d.width, 3 * d.width, here, false),
        up_(d.width, 3 * d.width, here, false),
        down_(3 * d.width, d.width, here, false) {
    child("norm", *norm_);
    child("gate", gate_);
    child("up", up_);
    child("down", down_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = (*norm_)(x);
    return x + down_(silu(gate_(h)) * up_(h));
  }

 private:
  std::unique_ptr<nn::Module> norm_;
  nn::Linear gate_, up_, down_;
};

// A gated recurrent unit over [length, batch, width]; the last state.
class Recurrent : public nn::Module {
 public:
  Recurrent(const Draw& d, const Options& here)
      : of_input_(d.width, 3 * d.width, here), of_state_(d.width, 3 * d.width, here) {
    child("of_input", of_input_);
    child("of_state", of_state_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = zeros_like(select(x, 0, 0));
    const Tensor projected = of_input_(x);
    for (int64_t t = 0; t < x.size(0); ++t) {
      const std::vector<Tensor> in = chunk(select(projected, 0, t), 3, -1);
      const std::vector<Tensor> of = chunk(of_state_(h), 3, -1);
      const Tensor reset = sigmoid(in[0] + of[0]), update = sigmoid(in[1] + of[1]);
      h = lerp(tanh(in[2] + reset * of[2]), h, update);
    }
    return h;
  }

 private:
  nn::Linear of_input_, of_state_;
};

// x + the mean of all experts' outputs, weighted by a softmax.
class Experts : public nn::Module {
 public:
  Experts(const Draw& d, const Options& here)
      : norm_(norm_of(d, here)),
        gate_(d.width, d.experts, here),
        weights_(randn({d.experts, d.width, d.width}, here) /
                 std::sqrt(static_cast<double>(d.width))),
        activation_(d.activation) {
    child("norm", *norm_);
    child("gate", gate_);
    parameter("weights", weights_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = (*norm_)(x);
    const Tensor shares = transpose(softmax(gate_(h), -1), 0, 1);  // [experts, batch]
    const Tensor outputs = nn::activate(activation_, matmul(unsqueeze(h, 0), weights_));
    return x + sum(outputs * unsqueeze(shares, 2), {0});
  }

 private:
  std::unique_ptr<nn::Module> norm_;
  nn::Linear gate_;
  Tensor weights_;
  nn::Activation activation_;
};

// Over three neighbours along the length of [batch, length, width], as a product of a
// concatenation.
class Convolution : public nn::Module {
 public:
  Convolution(const Draw& d, const Options& here)
      : linear_(3 * d.width, d.width, here), activation_(d.activation) {
    child("linear", linear_);
  }
  Tensor forward(const Tensor& x) override {
    const int64_t length = x.size(1);
    std::vector<Tensor> neighbours;
    for (int64_t k = 0; k < 3; ++k) neighbours.push_back(slice(x, 1, k, length - 2 + k));
    return nn::activate(activation_, linear_(cat(neighbours, 2)));
  }

 private:
  nn::Linear linear_;
  nn::Activation activation_;
};

template <class Layer>
void add_layers(nn::Sequential& model, const Draw& d, const Options& here) {
  for (int64_t i = 0; i < d.depth; ++i) model.add<Layer>(d, here);
}

std::unique_ptr<nn::Sequential> module_of(const Draw& d, const Options& here) {
  auto model = std::make_unique<nn::Sequential>();
  switch (d.kind) {
    case ModelKind::mlp: add_layers<DenseLayer>(*model, d, here); break;
    case ModelKind::gated: add_layers<GatedBlock>(*model, d, here); break;
    case ModelKind::recurrent: add_layers<Recurrent>(*model, d, here); break;
    case ModelKind::experts: add_layers<Experts>(*model, d, here); break;
    case ModelKind::convolution: add_layers<Convolution>(*model, d, here); break;
    case ModelKind::transformer:
      for (int64_t i = 0; i < d.depth; ++i) {
        model->add<nn::TransformerBlock>(d.width, static_cast<int>(d.width / d.head), here, true,
                                         d.dropout);
      }
      break;
    case ModelKind::second_derivative:
      for (int64_t i = 0; i < d.depth; ++i) {
        model->add<nn::Linear>(i == 0 ? 2 : d.width, d.width, here);
        model->add<nn::Function>([](const Tensor& x) { return tanh(x); });
      }
      model->add<nn::Linear>(d.width, 1, here);
      break;
  }
  return model;
}

Dims inputs_shape(const Draw& d) {
  switch (d.kind) {
    case ModelKind::transformer: return {d.batch, d.length, d.width};
    case ModelKind::convolution: return {d.batch, d.length + 2 * d.depth, d.width};
    case ModelKind::recurrent: return {d.length, d.batch, d.width};
    case ModelKind::second_derivative: return {d.batch, 2};
    default: return {d.batch, d.width};
  }
}

Dims targets_shape(const Draw& d) {
  if (d.kind == ModelKind::recurrent) return {d.batch, d.width};
  if (d.kind == ModelKind::convolution) return {d.batch, d.length, d.width};
  return inputs_shape(d);
}

DrawnModel make(const Draw& d, Device device) {
  const Options here{.dtype = d.dtype, .device = device};
  std::unique_ptr<nn::Module> module = module_of(d, here);
  const Tensor inputs = randn(inputs_shape(d), here), targets = randn(targets_shape(d), here);
  nn::Module* const model = module.get();
  if (d.kind != ModelKind::second_derivative)
    return {std::move(module), [=] { return nn::mse_loss((*model)(inputs), targets); }};
  // The gradient of the model's output by its inputs is fitted.
  return {std::move(module), [=] {
            const Tensor x = requires_grad_(detach(inputs));
            const Tensor slope = grad(sum((*model)(x)), x, {.create_graph = true});
            return nn::mse_loss(slope, targets);
          }};
}

}  // namespace

DrawnStep draw_step(std::uint64_t seed, std::int64_t number, Device device, double most_flops) {
  Dice dice(seed, number);
  Draw drawn = draw(dice, device);
  shrink(drawn, most_flops);
  return {name_of(drawn), drawn.dtype, drawn.tf32, [drawn, device] { return make(drawn, device); }};
}

}  // namespace brrr::measure
