// The commands that run a model: compare, explain, trace, profile. For brrr, whose models are toys,
// and for measure::main.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <brrr/measure/command_line.h>
#include <brrr/measure/main.h>

namespace brrr::measure {

class ModelCommands {
 public:
  // Adds the commands to the app. Of several models a command names one.
  ModelCommands(CLI::App& app, std::vector<Model> models);
  ~ModelCommands();
  ModelCommands(const ModelCommands&) = delete;
  ModelCommands& operator=(const ModelCommands&) = delete;

  // Throws CLI::ValidationError if options that were parsed exclude one another.
  void require_consistent() const;
  // Runs the command that was parsed; none: it is none of these. Returns the exit status.
  std::optional<int> run(const std::string& command_line) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace brrr::measure
