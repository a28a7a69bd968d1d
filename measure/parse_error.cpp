#include "brrr/measure/parse_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
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

// The commands that take an option which `command` does not: those beside it, else any.
std::vector<std::string> takers_of(const CLI::App& app, const CLI::App& command,
                                   const std::string& option) {
  std::vector<std::string> takers;
  if (const CLI::App* const parent = command.get_parent()) {
    for (const CLI::App* each : parent->get_subcommands(nullptr))
      if (each->get_option_no_throw(option)) takers.push_back(path_of(*each));
  }
  if (!takers.empty()) return takers;
  for (const CLI::App* each : app.get_subcommands(nullptr)) {
    if (each->get_option_no_throw(option) || is_option_below(*each, option))
      takers.push_back(path_of(*each));
  }
  return takers;
}

std::string unknown_option_text(const CLI::App& app, const std::string& option) {
  const CLI::App& command = last_command(app);
  if (command.get_option_no_throw(option))
    return fmt::format("expected {} after {}, got it before", option, command.get_name());
  const std::string text = "unexpected argument: " + option;
  const std::string guess = did_you_mean(options_of(command), option);
  if (!guess.empty()) return text + guess;
  constexpr std::size_t kFew = 4;
  const std::vector<std::string> takers = takers_of(app, command, option);
  if (takers.empty() || takers.size() > kFew) return text;
  return fmt::format("{}; {} {} it", text, fmt::join(takers, ", "),
                     takers.size() == 1 ? "takes" : "take");
}

// Of CLI11's errors that are about a value.
std::string value_text(const CLI::App& command, const CLI::ParseError& problem) {
  const std::string text = problem.what();
  constexpr std::string_view kRequired = " is required", kEquals = " = ";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem))
    return text.substr(0, text.find(':')) + ": expected a value, got none";
  if (dynamic_cast<const CLI::RequiredError*>(&problem) && text.ends_with(kRequired)) {
    const std::string name = text.substr(0, text.size() - kRequired.size());
    if (name.starts_with('-')) return text;
    const CLI::Option* const option = command.get_option_no_throw(name);
    std::string type = option ? option->get_type_name() : "";
    if (type.find('|') == type.npos) return name + ": expected a value, got none";
    type = type.substr(type.find(':') + 1);
    std::vector<std::string> known;
    for (std::size_t at = 0; at <= type.size(); at = std::min(type.find('|', at), type.size()) + 1)
      known.push_back(type.substr(at, type.find('|', at) - at));
    return name + ": " + expected_one_of(known, "none");
  }
  // "Could not convert: --tf32 = maybe": options with a value have checks of their own.
  if (const std::size_t equals = text.find(kEquals), colon = text.find(": ");
      dynamic_cast<const CLI::ConversionError*>(&problem) && colon < equals && equals != text.npos)
    return fmt::format("{}: expected no value, got {}", text.substr(colon + 2, equals - colon - 2),
                       text.substr(equals + kEquals.size()));
  return text;
}

// The error's text; for a missing or unknown subcommand it lists the known ones, which CLI11's does
// not.
std::string problem_text(const CLI::App& app, const CLI::ParseError& problem) {
  const CLI::App& command = last_command(app);
  const std::vector<std::string> unknown = app.remaining(true);
  const auto names_below = [](const CLI::App& each) {
    std::vector<std::string> names;
    for (const CLI::App* below : each.get_subcommands(nullptr)) names.push_back(below->get_name());
    return names;
  };
  const std::vector<std::string> names = names_below(command);
  const bool is_option = !unknown.empty() && unknown.front().starts_with('-');
  if (is_option && is_option_below(command, unknown.front()))
    return expected_one_of(names, "none before " + unknown.front());
  if (is_option) return unknown_option_text(app, unknown.front());
  if (names.empty() && !unknown.empty()) {
    // "compare mlp transformer"
    const std::vector<std::string> beside =
        command.get_parent() ? names_below(*command.get_parent()) : names;
    if (std::ranges::find(beside, unknown.front()) == beside.end())
      return "unexpected argument: " + unknown.front();
    return expected_one_of(beside, fmt::format("{} after {}", unknown.front(), command.get_name()));
  }
  if (!names.empty()) return expected_one_of(names, unknown.empty() ? "none" : unknown.front());
  return value_text(command, problem);
}

}  // namespace

std::string parse_error_text(const CLI::App& app, const CLI::ParseError& problem) {
  return fmt::format("{}; see {} --help", problem_text(app, problem), path_of(last_command(app)));
}

}  // namespace brrr::measure
