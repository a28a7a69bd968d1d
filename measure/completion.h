// Completion of a program's commands, options and their values in bash and zsh.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace brrr::measure {

// A script to be sourced: eval "$(brrr completion bash)".
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace brrr::measure
