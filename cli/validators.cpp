#include "cli/validators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace brrr::cli {
namespace {

template <class T>
std::optional<T> parsed(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Accepts numbers that satisfy the predicate; `expected` describes them.
template <class T, class Predicate>
CLI::Validator numbers(std::string expected, Predicate accepts) {
  return CLI::Validator(
      [=](std::string& given) -> std::string {
        const std::optional<T> value = parsed<T>(given);
        return value && accepts(*value) ? "" : fmt::format("expected {}, got {}", expected, given);
      },
      "");
}

CLI::Validator real_numbers(std::string expected, double least, double most, bool inclusive) {
  return numbers<double>(std::move(expected), [=](double value) {
    return std::isfinite(value) && (inclusive ? value >= least : value > least) && value <= most;
  });
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

std::string expected_one_of(const std::vector<std::string>& known, const std::string& got) {
  return fmt::format("expected one of {}, got {}", fmt::join(known, ", "), got);
}

CLI::Validator one_of(const std::vector<std::string>& known) {
  return CLI::Validator(
      [=](std::string& given) -> std::string {
        return std::ranges::find(known, given) != known.end() ? "" : expected_one_of(known, given);
      },
      fmt::format("{}", fmt::join(known, "|")));
}

CLI::Validator remat_policy(const std::vector<std::string>& further) {
  std::vector<std::string> known = {"none", "min_cut", "full"};
  known.insert(known.end(), further.begin(), further.end());
  known.push_back("budget=F");
  return CLI::Validator(
      [=](std::string& given) -> std::string {
        constexpr std::string_view kBudget = "budget=";
        if (!given.starts_with(kBudget)) {
          const bool is_known = std::find(known.begin(), known.end() - 1, given) != known.end() - 1;
          return is_known ? "" : expected_one_of(known, given);
        }
        const std::optional<double> fraction = parsed<double>(given.substr(kBudget.size()));
        return fraction && *fraction > 0 && *fraction <= 1
                   ? ""
                   : fmt::format("expected budget=F with F above 0 and at most 1, got {}", given);
      },
      fmt::format("{}", fmt::join(known, "|")));
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return numbers<std::int64_t>(fmt::format("a whole number from {} to {}", least, most),
                               [=](std::int64_t value) { return least <= value && value <= most; });
}

CLI::Validator at_least(std::int64_t least) {
  return numbers<std::int64_t>(fmt::format("a whole number of at least {}", least),
                               [=](std::int64_t value) { return value >= least; });
}

CLI::Validator number_above(double bound) {
  return real_numbers(fmt::format("a finite number above {}", bound), bound, kInfinity, false);
}

CLI::Validator number_from(double least, double most) {
  return real_numbers(most == kInfinity ? fmt::format("a finite number of at least {}", least)
                                        : fmt::format("a number from {} to {}", least, most),
                      least, most, true);
}

CLI::Validator seed() {
  return numbers<std::uint64_t>("a whole number of at least 0 and below 2^64",
                                [](std::uint64_t) { return true; });
}

CLI::Validator file_name() {
  return CLI::Validator(
      [](std::string& given) { return given.empty() ? "expected a file's name, got none" : ""; },
      "");
}

CLI::Validator html_file_name() {
  return CLI::Validator(
      [](std::string& given) -> std::string {
        const bool named =
            given.ends_with(".html") && given.size() > 5 && !given.ends_with("/.html");
        return named ? "" : fmt::format("expected a file's name that ends in .html, got {}", given);
      },
      "");
}

}  // namespace brrr::cli
