// Describes why a command line cannot be parsed, in one line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace brrr::measure {

// "--batch: expected a value, got none; see brrr train mlp --help"
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& problem);

}  // namespace brrr::measure
