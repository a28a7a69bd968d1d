#include "brrr/measure/report_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "brrr/io/file_bytes.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

constexpr std::string_view kHtml = ".html";

void write_text(const std::string& path, const std::string& text) {
  write_file("report", path, [&](const ByteSink& sink) { sink(text.data(), text.size()); });
}

// Nobody named this file, so only one that another report wrote is replaced.
void require_own(const std::string& json) {
  std::error_code unknown;
  if (!std::filesystem::exists(json, unknown)) return;
  std::ifstream file(json);
  const auto found = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (found.is_object() && found.contains("report") && found.contains("machine") &&
      found["machine"].is_object() && found["machine"].contains("brrr"))
    return;
  fail(
      "[report] expected no file {}, or the numbers of another report, got another file; choose "
      "another name for the page",
      json);
}

std::string quoted(std::string_view argument) {
  constexpr std::string_view kPlain = "-_./=,:+@%";
  const auto plain = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kPlain.find(c) != std::string_view::npos;
  };
  if (!argument.empty() && std::ranges::all_of(argument, plain)) return std::string(argument);
  std::string text = "'";
  for (const char c : argument) c == '\'' ? text += "'\\''" : text += c;
  return text + "'";
}

std::string machine_text(const Machine& machine, Device device) {
  const Processor& p = machine.processor;
  if (device.is_cpu() || machine.gpus.empty())
    return fmt::format("{}, {}, {} of {} threads used", p.model, p.isa, p.used, p.threads);
  const Gpu& gpu = machine.gpus.front();
  return fmt::format("{}, compute capability {}; {}", gpu.name, gpu.compute_capability, p.model);
}

std::string ceilings_text(const Machine& machine, Device device) {
  const auto known = std::ranges::find(machine.ceilings, to_string(device), &KnownCeilings::device);
  if (known == machine.ceilings.end()) return "unknown";
  if (known->date.empty()) return "defaults, not measured: " + known->why_defaults;
  return "measured " + known->date;
}

}  // namespace

ReportFiles::ReportFiles(const std::string& path) : html(path) {
  if (path.ends_with(kHtml)) json = path.substr(0, path.size() - kHtml.size()) + ".json";
}

void ReportFiles::require_writable() const {
  if (!wanted()) return;
  brrr::require_writable("report", html);
  brrr::require_writable("report", json);
  require_own(json);
}

void ReportFiles::write(const Report& report, const std::string& document) const {
  const std::string page =
      to_html(report, json.substr(json.find_last_of('/') + 1));  // npos + 1 is 0
  require_own(json);  // it may have appeared during the measurement
  write_text(json, document);
  write_text(html, page);
}

std::string written_text(const ReportFiles& files) {
  return fmt::format("report           {}, {}\n", files.html, files.json);
}

std::vector<std::pair<std::string, std::string>> report_facts(const Machine& machine, Device device,
                                                              const std::string& command) {
  return {
      {"command", command},
      {"date", machine.date},
      {"machine", machine_text(machine, device)},
      {"system", machine.system},
      {"device", to_string(device)},
      {"ceilings", ceilings_text(machine, device)},
      {"brrr", fmt::format("{}, {}, {}", machine.version, machine.build_type, machine.compiler)}};
}

Text paragraph(std::string line, Text::Tone tone) {
  if (line.ends_with('\n')) line.pop_back();
  return {std::move(line), tone};
}

std::string command_text(int argc, const char* const* argv) {
  const std::string path = argc > 0 ? argv[0] : "";
  std::string text = quoted(std::string_view(path).substr(path.rfind('/') + 1));
  for (int i = 1; i < argc; ++i) text += " " + quoted(argv[i]);
  return text;
}

}  // namespace brrr::measure
