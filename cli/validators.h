// Validators of command-line values; their messages state what was expected.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace brrr::cli {

CLI::Validator one_of(const std::vector<std::string>& known);
// A policy of rematerialization, or one of `further`.
CLI::Validator remat_policy(const std::vector<std::string>& further = {});
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator at_least(std::int64_t least);
// Finite numbers.
CLI::Validator number_above(double bound);
CLI::Validator number_from(double least, double most);
CLI::Validator seed();
CLI::Validator file_name();
CLI::Validator html_file_name();

// "expected one of mlp, transformer, got resnet"
std::string expected_one_of(const std::vector<std::string>& known, const std::string& got);

}  // namespace brrr::cli
