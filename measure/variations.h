// Changes that may make a step faster, tried: each is made, and timed in turn with the step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <brrr/measure/step.h>
#include <brrr/measure/timing.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

struct Variation {
  std::string name;  // "TF32 products", "twice the batch"
  std::function<Step()> make;
  double work = 1;  // of a step, relative to the one that is changed: 2 at twice the batch
  // Around its making and its calls: a setting of the process.
  std::function<void()> enter = {}, leave = {};
};

// Products of f32 in TF32, on CUDA; a number of threads, on the CPU.
Variation with_tf32(std::function<Step()> make);
Variation with_threads(int count, std::function<Step()> make);

struct Tried {
  std::string name = {};
  double work = 1;
  Timing base = {}, step = {};  // timed in turn
  std::string failure = {};     // why it could not be timed; empty: it was

  // How many times as fast the same work is, by medians and by the least samples, whichever is
  // less.
  double gain() const;
  bool helps() const { return failure.empty() && gain() > 1.05; }
};

// `step` is the one that is changed; it took `alone` before. It is not slower for what is tried: a
// setting that goes back and forth may slow its calls down.
Tried try_variation(const Variation& variation, Device device, const std::function<void()>& step,
                    const Timing& alone, const Sampling& sampling);

// "TF32 products: 1.42 times as fast", "twice the batch: 1.80 times the work a second".
std::string to_string(const Tried& tried);

}  // namespace brrr::measure
