// The toy models as models of the commands that any program has, with options of the command line.
#pragma once

#include <string>
#include <vector>

#include "cli/training.h"
#include <brrr/measure/main.h>

namespace brrr::cli {

// A model with its sizes and its optimizer, as parsed.
struct ToyArguments {
  TrainingOptions options;
  std::string dtype = "f32", activation = "gelu_tanh";

  explicit ToyArguments(const std::string& model);
  ToyArguments(const ToyArguments&) = delete;
  ToyArguments& operator=(const ToyArguments&) = delete;

  // With what the arguments name, on the default device.
  TrainingOptions resolved() const;
  std::vector<measure::ModelOption> command_line();
  // What is wrong with the options together; "": nothing.
  std::string complaint() const;
};

const char* help_of(const std::string& model);
measure::Model model_of(ToyArguments& arguments);

}  // namespace brrr::cli
