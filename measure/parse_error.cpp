#include "brrr/measure/parse_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "brrr/measure/checks.h"

namespace brrr::measure {
namespace {

// The innermost subcommand of the command line.
const CLI::App& last_command(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  return *last;
}

// "brrr train mlp"
std::string path_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent ? path_of(*parent) + " " : "") + command.get_name();
}

// Whether a subcommand takes the option.
bool is_option_below(const CLI::App& command, const std::string& option) {
  const std::vector<const CLI::App*> below = command.get_subcommands(nullptr);
  return std::ranges::any_of(below, [&](const CLI::App* each) {
    return each->get_option_no_throw(option) != nullptr || is_option_below(*each, option);
  });
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* each : command.get_options()) names.push_back(each->get_name());
  return names;
}

// The error's text; for a missing or unknown subcommand it lists the known ones, which CLI11's does
// not.
std::string problem_text(const CLI::App& app, const CLI::ParseError& problem) {
  const std::vector<std::string> unknown = app.remaining(true);
  std::vector<std::string> names;
  for (const CLI::App* each : last_command(app).get_subcommands(nullptr))
    names.push_back(each->get_name());
  const bool is_option = !unknown.empty() && unknown.front().starts_with('-');
  if (is_option && is_option_below(last_command(app), unknown.front()))
    return expected_one_of(names, "none before " + unknown.front());
  if (is_option || (names.empty() && !unknown.empty())) {
    const std::string& got = unknown.front();
    return "unexpected argument: " + got + did_you_mean(options_of(last_command(app)), got);
  }
  if (!names.empty()) return expected_one_of(names, unknown.empty() ? "none" : unknown.front());
  const std::string text = problem.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem))
    return text.substr(0, text.find(':')) + ": expected a value, got none";
  return text;
}

}  // namespace

std::string parse_error_text(const CLI::App& app, const CLI::ParseError& problem) {
  return fmt::format("{}; see {} --help", problem_text(app, problem), path_of(last_command(app)));
}

}  // namespace brrr::measure
