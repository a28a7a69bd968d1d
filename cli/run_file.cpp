#include "cli/run_file.h"

#include <fmt/format.h>

#include <charconv>

#include "brrr/nn/state_dict.h"
#include "brrr/tensor/error.h"

namespace brrr::cli {
namespace {

constexpr std::string_view kOptimizer = "optimizer.";

}  // namespace

std::string network_of(const RunFacts& facts) {
  if (facts.activation.empty()) return facts.model;
  return fmt::format("{} of {}{}", facts.model, facts.activation,
                     facts.residual ? " in residual blocks" : "");
}

void save_run(const std::string& path, const RunFacts& facts, const nn::Module& module,
              const optim::Optimizer& optimizer) {
  SafeTensors file;
  file.tensors = nn::state_dict(module);
  for (auto& [name, tensor] : optimizer.state_dict()) {
    file.tensors.emplace_back(std::string(kOptimizer) + name, tensor);
  }
  file.metadata = {{"model", facts.model},
                   {"seed", std::to_string(facts.seed)},
                   {"steps", std::to_string(facts.steps)}};
  if (!facts.activation.empty()) {
    file.metadata["activation"] = facts.activation;
    file.metadata["residual"] = facts.residual ? "true" : "false";
  }
  save_safetensors(path, file);
}

RunFile::RunFile(const std::string& path) : path_(path), file_(load_safetensors(path)) {
  const auto text = [&](const char* name) -> const std::string& {
    const auto found = file_.metadata.find(name);
    if (found == file_.metadata.end()) {
      fail(fmt::format("[load {}] expected a file of brrr train --save, got one without \"{}\"",
                       path, name));
    }
    return found->second;
  };
  const auto number = [&](const char* name, auto& value) {
    const std::string& digits = text(name);
    const char* end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, value);
    if (problem != std::errc() || stop != end || value < 0) {
      fail(fmt::format("[load {}] expected a number for \"{}\", got \"{}\"", path, name, digits));
    }
  };
  facts_.model = text("model");
  if (facts_.model == "mlp") {
    const bool named = file_.metadata.contains("activation");
    facts_.activation = named ? text("activation") : "gelu_tanh";  // older files
    facts_.residual = named && text("residual") == "true";
  }
  number("seed", facts_.seed);
  number("steps", facts_.steps);
}

void RunFile::load_into(nn::Module& module, optim::Optimizer& optimizer) const {
  nn::StateDict parameters;
  optim::NamedTensors state;
  for (const auto& [name, tensor] : file_.tensors) {
    if (name.starts_with(kOptimizer)) {
      state.emplace_back(name.substr(kOptimizer.size()), tensor);
    } else {
      parameters.emplace_back(name, tensor);
    }
  }
  nn::load_state_dict(module, parameters);
  optimizer.state().load(state);
}

}  // namespace brrr::cli
