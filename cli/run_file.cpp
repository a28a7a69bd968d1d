#include "cli/run_file.h"

#include <fmt/format.h>

#include <charconv>

#include "brrr/nn/state_dict.h"
#include "brrr/tensor/fail.h"

namespace brrr::cli {
namespace {

constexpr std::string_view kOptimizer = "optimizer.";

}  // namespace

std::string describe_network(const RunMetadata& run) {
  if (run.activation.empty()) return run.model;
  return fmt::format("{} of {}{}", run.model, run.activation,
                     run.residual ? " in residual blocks" : "");
}

void save_run(const std::string& path, const RunMetadata& run, const nn::Module& module,
              const optim::Optimizer& optimizer) {
  SafeTensors file;
  file.tensors = nn::state_dict(module);
  for (auto& [name, tensor] : optimizer.state_dict()) {
    file.tensors.emplace_back(std::string(kOptimizer) + name, tensor);
  }
  file.metadata = {{"model", run.model},
                   {"seed", std::to_string(run.seed)},
                   {"steps", std::to_string(run.steps)}};
  if (!run.activation.empty()) {
    file.metadata["activation"] = run.activation;
    file.metadata["residual"] = run.residual ? "true" : "false";
  }
  save_safetensors(path, file);
}

RunFile::RunFile(const std::string& path) : path_(path), file_(load_safetensors(path)) {
  const auto text = [&](const char* name) -> const std::string& {
    const auto found = file_.metadata.find(name);
    if (found == file_.metadata.end()) {
      fail("[load {}] expected a file of brrr train --save, got one without \"{}\"", path, name);
    }
    return found->second;
  };
  const auto number = [&](const char* name, auto& value) {
    const std::string& digits = text(name);
    const char* end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, value);
    if (problem != std::errc() || stop != end || value < 0) {
      fail("[load {}] expected a number for \"{}\", got \"{}\"", path, name, digits);
    }
  };
  metadata_.model = text("model");
  if (metadata_.model == "mlp") {
    const bool named = file_.metadata.contains("activation");
    metadata_.activation = named ? text("activation") : "gelu_tanh";  // older files
    metadata_.residual = named && text("residual") == "true";
  }
  number("seed", metadata_.seed);
  number("steps", metadata_.steps);
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
