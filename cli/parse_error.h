// What a command line that cannot be parsed lacks, as one line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace brrr::cli {

// "--batch: expected a value, got none; see brrr train mlp --help"
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& problem);

}  // namespace brrr::cli
