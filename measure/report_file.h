// The files of --report F.html: the page, and F.json with its numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <brrr/measure/html_report.h>
#include <brrr/measure/machine.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

struct ReportFiles {
  std::string html, json;  // empty: no report was asked for

  explicit ReportFiles(const std::string& path);
  bool wanted() const { return !html.empty(); }
  // Throws if one of the files cannot be written. Call before long work.
  void require_writable() const;
  void write(const Report& report, const std::string& document) const;
};

// A line that says where the report was written.
std::string written_text(const ReportFiles& files);

// The facts at the head of a report: command, date, machine, ceilings.
std::vector<std::pair<std::string, std::string>> report_facts(const Machine& machine, Device device,
                                                              const std::string& command);

// A line of a command's text as a paragraph.
Text paragraph(std::string line, Text::Tone tone = Text::Tone::plain);

// The command line, as a shell would read it, with the program's name in place of its path.
std::string command_text(int argc, const char* const* argv);

}  // namespace brrr::measure
