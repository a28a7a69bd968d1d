#include "brrr/tensor/environment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <vector>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/measure_library.h"

namespace brrr {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& expected, const std::string& got) {
  fail("[environment] expected {} to be {}, got {}", name, expected, got);
}

template <class T>
std::optional<T> parsed(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::vector<void (*)()>& checks() {
  static std::vector<void (*)()> all;
  return all;
}

void require_folder(const char* name) {
  const std::string path = setting(name);
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status))
    refuse(name, "a folder", "the file " + path);
}

}  // namespace

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::string setting_of(const char* name, std::initializer_list<std::string_view> known) {
  std::string value = setting(name);
  if (!value.empty() && std::ranges::find(known, value) == known.end())
    refuse(name, fmt::format("{}", fmt::join(known, " or ")), value);
  return value;
}

double positive_setting(const char* name, double standard) {
  const std::string text = setting(name);
  if (text.empty()) return standard;
  const std::optional<double> value = parsed<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0) refuse(name, "a number above 0", text);
  return *value;
}

int count_setting(const char* name, int standard, int most) {
  const std::string text = setting(name);
  if (text.empty()) return standard;
  const std::optional<int> value = parsed<int>(text);
  if (!value || *value < 1) refuse(name, "a number from 1 on", text);
  return std::min(*value, most);
}

std::vector<std::pair<std::string, int>> numbers_setting(
    const char* name, std::initializer_list<std::string_view> known) {
  std::vector<std::pair<std::string, int>> numbers;
  std::string text = setting(name);
  while (!text.empty()) {
    const std::string item = text.substr(0, text.find(','));
    text.erase(0, item.size() + 1);
    const std::size_t equals = item.find('=');
    const auto value =
        equals == std::string::npos ? std::nullopt : parsed<int>(item.substr(equals + 1));
    if (!value || *value < 1) refuse(name, "NAME=NUMBER,...", item);
    if (std::ranges::find(known, item.substr(0, equals)) == known.end())
      refuse(name, fmt::format("NAME=NUMBER,... with names of {}", fmt::join(known, ", ")), item);
    numbers.emplace_back(item.substr(0, equals), *value);
  }
  return numbers;
}

bool add_environment_check(void (*check)()) {
  checks().push_back(check);
  return true;
}

void require_valid_environment() {
  static const bool valid = [] {
    open_measure_library();  // which may add checks
    setting_of("BRRR_ALLOCATOR", {"passthrough", "caching"});
    setting_of("BRRR_CACHE", {"on", "off"});
    setting_of("BRRR_ISA", {"baseline", "v3"});
    setting_of("BRRR_MEASURE", {"on", "off"});
    count_setting("BRRR_THREADS", 1, std::numeric_limits<int>::max());
    positive_setting("BRRR_COMPILE_SECONDS", 1);
    for (void (*check)() : checks()) check();
    if (setting("BRRR_CACHE") != "off") require_folder("BRRR_CACHE_DIR");
    return true;
  }();
  static_cast<void>(valid);
}

}  // namespace brrr
