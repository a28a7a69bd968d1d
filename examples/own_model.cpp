// A program of one's own with the commands of brrr: what bounds a step of this model, and what
// makes it faster.
//
//   own_model                              # eager, graph and fused compared
//   own_model --batch 256 --report own.html
//   own_model explain --mode fused
//   own_model trace --out step.json
//   own_model profile --hidden 512
#include <brrr/brrr.h>
#include <brrr/measure/main.h>

#include <cstdint>
#include <memory>

using namespace brrr;

namespace {

std::int64_t batch = 64, hidden = 128;

// An autoencoder whose code is noisy.
struct Autoencoder {
  nn::MLP encoder{{48, hidden, 8}}, decoder{{8, hidden, 48}};
  optim::Optimizer encoder_steps{encoder, optim::adamw(1e-3)},
      decoder_steps{decoder, optim::adamw(1e-3)};
  Tensor x;

  explicit Autoencoder(std::int64_t rows) : x(randn({rows, 48})) {}

  Tensor train() {
    encoder_steps.zero_grad();
    decoder_steps.zero_grad();
    const Tensor code = encoder(x);
    const Tensor loss = nn::mse_loss(decoder(code + 0.1 * randn_like(code)), x);
    backward(loss);
    encoder_steps.step();
    decoder_steps.step();
    return detach(loss);
  }
};

measure::MakeStep of_batch(int times) {
  return [times](Mode mode, Remat remat) {
    const auto model = std::make_shared<Autoencoder>(batch * times);
    return compile([model] { return model->train(); }, {.mode = mode, .remat = remat});
  };
}

}  // namespace

int main(int argc, char** argv) {
  const measure::Check sizes = measure::whole_number(1, 1 << 20);
  return measure::main(argc, argv,
                       {{.name = "autoencoder",
                         .make = of_batch(1),
                         .options = {{"batch", &batch, "Rows of a step", sizes},
                                     {"hidden", &hidden, "Width of the hidden layers", sizes}},
                         .doubled = of_batch(2)}});
}
