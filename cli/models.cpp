#include "cli/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "brrr/ops/functions.h"
#include "cli/text_output.h"

namespace brrr::cli {
namespace {

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const nn::Activation each : nn::kActivations) names.emplace_back(nn::name_of(each));
  return names;
}

// Steps are eager with a policy, too.
measure::Step step_of(TrainingOptions options, Mode mode, Remat remat) {
  options.mode = mode;
  options.remat = remat;
  if (mode != Mode::fused) options.rounding = Rounding::eager;
  return [training = std::make_shared<Training>(options)] { return training->step(); };
}

}  // namespace

ToyArguments::ToyArguments(const std::string& model) {
  const bool transformer = model == "transformer";
  ToyOptions& toy = options.toy;
  toy.model = model;
  toy.batch = transformer ? 8 : 128;
  toy.width = transformer ? 128 : 256;
  toy.layers = transformer ? 2 : 8;
  toy.heads = transformer ? 4 : 0;
  toy.seq = transformer ? 64 : 0;
}

TrainingOptions ToyArguments::resolved() const {
  TrainingOptions result = options;
  result.toy.device = default_device();
  result.toy.dtype = dtype == "bf16" ? bf16 : f32;
  result.toy.activation = *std::ranges::find(nn::kActivations, activation, &nn::name_of);
  return result;
}

std::vector<measure::ModelOption> ToyArguments::command_line() {
  ToyOptions& toy = options.toy;
  const measure::Check sizes = measure::whole_number(1, 1 << 24);
  std::vector<measure::ModelOption> list = {
      {"batch", &toy.batch, "Batch size", sizes},
      {"width", &toy.width, "Number of features", sizes},
      {"layers", &toy.layers, "Number of layers or blocks", measure::whole_number(1, 100'000)},
  };
  if (toy.model == "mlp") {
    list.push_back({"activation", &activation,
                    "Activation between layers; gelu_tanh approximates gelu",
                    measure::one_of(activation_names())});
    list.push_back({"residual", &toy.residual,
                    "Residual blocks x + mlp(norm(x)), with four times the width inside"});
  } else {
    list.push_back({"heads", &toy.heads, "Attention heads; must divide the width", sizes});
    list.push_back({"seq", &toy.seq, "Sequence length", sizes});
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  list.insert(
      list.end(),
      {{"dtype", &dtype, "Type of parameters and activations", measure::one_of({"f32", "bf16"})},
       {"optimizer", &options.optimizer, "Optimizer",
        measure::one_of({"adam", "adamw", "sgd", "lion"})},
       {"lr", &options.rate, "Learning rate", measure::number_above(0)},
       {"warmup", &options.warmup, "Steps of linear warmup of the rate from 0",
        measure::at_least(0)},
       {"clip", &options.clip, "Maximum global norm of the gradients; 0: no clipping",
        measure::number_from(0, kInfinity)}});
  return list;
}

std::string ToyArguments::complaint() const {
  const ToyOptions& toy = options.toy;
  if (toy.heads == 0 || toy.width % toy.heads == 0) return "";
  return fmt::format("--heads: expected a divisor of the width, {}, got {}", toy.width, toy.heads);
}

namespace {

// Another type where the device is faster in it, and an optimizer with less state.
std::vector<std::pair<std::string, measure::MakeStep>> variations_of(const ToyArguments& toy) {
  std::vector<std::pair<std::string, measure::MakeStep>> list;
  const auto add = [&](const char* name, const TrainingOptions& changed) {
    list.emplace_back(name,
                      [changed](Mode mode, Remat remat) { return step_of(changed, mode, remat); });
  };
  TrainingOptions options = toy.resolved();
  if (options.toy.device.is_cuda() && options.toy.dtype == f32) {
    options.toy.dtype = bf16;
    add("bf16", options);
  }
  options = toy.resolved();
  if (options.optimizer == "adam" || options.optimizer == "adamw") {
    options.optimizer = "lion";
    add("lion in place of adam", options);
  }
  return list;
}

}  // namespace

const char* help_of(const std::string& model) {
  return model == "transformer" ? "Causal pre-norm transformer blocks"
                                : "Square linear layers with an activation";
}

measure::Model model_of(ToyArguments& arguments) {
  return {.name = arguments.options.toy.model,
          .make = [&arguments](Mode mode,
                               Remat remat) { return step_of(arguments.resolved(), mode, remat); },
          .options = arguments.command_line(),
          .help = help_of(arguments.options.toy.model),
          .doubled =
              [&arguments](Mode mode, Remat remat) {
                TrainingOptions doubled = arguments.resolved();
                doubled.toy.batch *= 2;
                return step_of(doubled, mode, remat);
              },
          .variations = [&arguments] { return variations_of(arguments); },
          .rounding = &arguments.options.rounding,
          .describes =
              [&arguments] {
                return fmt::format("{}, {}", work_text(arguments.resolved()),
                                   arguments.options.optimizer);
              },
          .complaint = [&arguments] { return arguments.complaint(); }};
}

}  // namespace brrr::cli
