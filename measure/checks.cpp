#include "brrr/measure/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace brrr::measure {
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
Check numbers(std::string expected, Predicate accepts) {
  return {[=](const std::string& given) -> std::string {
    const std::optional<T> value = parsed<T>(given);
    return value && accepts(*value) ? "" : fmt::format("expected {}, got {}", expected, given);
  }};
}

Check real_numbers(std::string expected, double least, double most, bool inclusive) {
  return numbers<double>(std::move(expected), [=](double value) {
    return std::isfinite(value) && (inclusive ? value >= least : value > least) && value <= most;
  });
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kBudget = "budget=";

// Insertions, deletions, replacements and swaps of neighbours that make one of the other.
std::size_t typos_between(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> to(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        to[i][j] = i + j;
        continue;
      }
      to[i][j] = std::min({to[i - 1][j] + 1, to[i][j - 1] + 1,
                           to[i - 1][j - 1] + static_cast<std::size_t>(a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        to[i][j] = std::min(to[i][j], to[i - 2][j - 2] + 1);
    }
  }
  return to[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(const std::vector<std::string>& known, const std::string& got) {
  const std::string* nearest = nullptr;
  std::size_t least = std::max<std::size_t>(got.size() / 3, 1) + 1;
  for (const std::string& each : known) {
    if (const std::size_t typos = typos_between(each, got);
        typos < std::min({least, got.size(), each.size()})) {
      least = typos;
      nearest = &each;
    }
  }
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

std::string expected_one_of(const std::vector<std::string>& known, const std::string& got) {
  constexpr std::size_t kMany = 12, kFirst = 4;
  const std::string guess = did_you_mean(known, got);
  std::string names = fmt::format("{}", fmt::join(known, ", "));
  if (known.size() > kMany && !guess.empty())
    names = fmt::format("{}, ...", fmt::join(known.begin(), known.begin() + kFirst, ", "));
  return fmt::format("expected one of {}, got {}{}", names, got, guess);
}

Check one_of(std::vector<std::string> known) {
  return {[known](const std::string& given) -> std::string {
            return std::ranges::find(known, given) != known.end() ? ""
                                                                  : expected_one_of(known, given);
          },
          known};
}

Check device_name() {
  Check check = one_of({"cpu", "cuda"});
  check.complaint = [of_others = check.complaint](const std::string& given) {
    return given == "gpu" ? "expected one of cpu, cuda, got gpu; did you mean cuda?"
                          : of_others(given);
  };
  return check;
}

Check remat_policy(const std::vector<std::string>& further) {
  std::vector<std::string> known = {"none", "min_cut", "full"};
  known.insert(known.end(), further.begin(), further.end());
  known.push_back("budget=F");
  const auto complaint = [known](const std::string& given) -> std::string {
    if (!given.starts_with(kBudget)) {
      const bool is_known = std::find(known.begin(), known.end() - 1, given) != known.end() - 1;
      return is_known ? "" : expected_one_of(known, given);
    }
    const std::optional<double> fraction = parsed<double>(given.substr(kBudget.size()));
    return fraction && *fraction > 0 && *fraction <= 1
               ? ""
               : fmt::format("expected budget=F with F above 0 and at most 1, got {}", given);
  };
  return {complaint, known};
}

Remat remat_of(const std::string& text) {
  if (text.starts_with(kBudget)) return Remat::budget(std::stod(text.substr(kBudget.size())));
  return text == "min_cut" ? Remat::min_cut() : text == "full" ? Remat::full() : Remat::none();
}

Check whole_number(std::int64_t least, std::int64_t most) {
  return numbers<std::int64_t>(fmt::format("a whole number from {} to {}", least, most),
                               [=](std::int64_t value) { return least <= value && value <= most; });
}

Check at_least(std::int64_t least) {
  return numbers<std::int64_t>(fmt::format("a whole number of at least {}", least),
                               [=](std::int64_t value) { return value >= least; });
}

Check number_above(double bound) {
  return real_numbers(fmt::format("a finite number above {}", bound), bound, kInfinity, false);
}

Check number_from(double least, double most) {
  const std::string expected =
      most != kInfinity     ? fmt::format("a number from {} to {}", least, most)
      : least == -kInfinity ? "a finite number"
                            : fmt::format("a finite number of at least {}", least);
  return real_numbers(expected, least, most, true);
}

Check seed() {
  return numbers<std::uint64_t>("a whole number of at least 0 and below 2^64",
                                [](std::uint64_t) { return true; });
}

Check file_name() {
  return {[](const std::string& given) -> std::string {
    return given.empty() ? "expected a file's name, got none" : "";
  }};
}

Check html_file_name() {
  return {[](const std::string& given) -> std::string {
    const bool named = given.ends_with(".html") && given.size() > 5 && !given.ends_with("/.html");
    return named ? "" : fmt::format("expected a file's name that ends in .html, got {}", given);
  }};
}

}  // namespace brrr::measure
