// Output of the program: results on stdout, progress of long runs on stderr.
#pragma once

#include <string>
#include <string_view>

#include <unistd.h>

namespace brrr::measure {

// Writes to stdout and flushes it, so that the reader of a pipe sees each line immediately. Throws
// if the write fails.
void print(std::string_view text);
bool has_printed();  // whether print() was called
// {"error": text}: the document of a command that failed before it had one.
std::string error_json(const std::string& text);
// Whether stdout is a terminal that shows colors, and NO_COLOR is not set.
bool prints_colors();

// A status line on stderr if that is a terminal; each call of show() overwrites it.
class ProgressLine {
 public:
  void show(const std::string& what) noexcept;
  void clear() noexcept { show({}); }
  ~ProgressLine() { clear(); }
  bool shown() const { return shown_; }

 private:
  bool shown_ = isatty(STDERR_FILENO);
};

}  // namespace brrr::measure
