// What the command line's values may be, and what is said of others.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace brrr::cli {

// What this release has no code for is refused by name.
CLI::Validator one_of(const std::vector<std::string>& known,
                      const std::vector<std::string>& to_come = {});
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator at_least(std::int64_t least);
// A finite number; NaN is none.
CLI::Validator number_above(double bound);
CLI::Validator number_from(double least, double most);
CLI::Validator seed();
CLI::Validator file_name();

// "expected one of mlp, transformer, got resnet"
std::string expected_one_of(const std::vector<std::string>& known, const std::string& got);

}  // namespace brrr::cli
