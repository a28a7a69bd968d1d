// Training steps drawn at random: models of several kinds, in sizes that no table names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <brrr/nn/module.h>
#include <brrr/tensor/device.h>
#include <brrr/tensor/dtype.h>

namespace brrr::measure {

// A model with a batch.
struct DrawnModel {
  std::unique_ptr<nn::Module> module;
  std::function<Tensor()> loss;
};

struct DrawnStep {
  std::string name;  // "mlp 417 x 1240 x 13, silu, layer norm, bf16"
  DType dtype = f32;
  bool tf32 = false;
  std::function<DrawnModel()> make;  // draws values from the process's generator
};

// The same for the same seed and number on every machine, but for sizes: they are halved until a
// step has at most `most_flops`.
DrawnStep draw_step(std::uint64_t seed, std::int64_t number, Device device, double most_flops);

}  // namespace brrr::measure
