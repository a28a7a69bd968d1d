// The program of a model of one's own, with the commands of brrr that take a model:
//
//   int main(int argc, char** argv) {
//     const auto make = [](Mode mode, Remat remat) {
//       const auto net = std::make_shared<Net>();
//       return compile([net] { return net->train(); }, {.mode = mode, .remat = remat});
//     };
//     return measure::main(argc, argv, {{"my net", make}});
//   }
//
//   ./my_net                                      # what bounds a step, and what makes it faster
//   ./my_net explain --mode fused                 # its calls and kernels
//   ./my_net trace --out step.json                # its time line, for Perfetto
//   ./my_net profile                              # where the host's time goes
//
// Of several models a command names one: ./nets compare encoder. Tensors are made on the device of
// --device where the model names none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <brrr/measure/checks.h>
#include <brrr/measure/compare.h>

namespace brrr::measure {

// An option of a model: {"batch", &batch, "Rows of a step", measure::at_least(1)}. The variable
// has its default, and the value of the command line when the model is made.
struct ModelOption {
  std::string name;  // without dashes
  std::variant<bool*, int*, std::int64_t*, double*, std::string*> value;
  std::string help = {};
  Check check = {};
};

struct Model {
  std::string name;
  MakeStep make;
  std::vector<ModelOption> options = {};
  std::string help = {};
  MakeStep doubled = {};  // at twice the batch
  // Changes that may be faster, which compare tries: {"bf16", make_in_bf16}.
  std::function<std::vector<std::pair<std::string, MakeStep>>()> variations = {};
  Rounding* rounding = nullptr;  // that `make` uses in fused steps, for --rounding
  // What is printed beside the name; none: the options.
  std::function<std::string()> describes = {};
  // What is wrong with the options together: "--heads: expected …"; "": nothing.
  std::function<std::string()> complaint = {};
};

// Runs the command; returns the exit status of the process. Throws nothing.
int main(int argc, const char* const* argv, std::vector<Model> models);

}  // namespace brrr::measure
