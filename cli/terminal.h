// What the program writes: results on stdout, and where a long run is on stderr.
#pragma once

#include <string>
#include <string_view>

#include <unistd.h>

namespace brrr::cli {

// Writes to stdout at once, so that a reader of a pipe sees each line as it comes. Throws where
// stdout cannot take it.
void print(std::string_view text);

// One line on stderr, written over, when that is a terminal; cleared at the end.
class ProgressLine {
 public:
  void show(const std::string& what) noexcept;
  void clear() noexcept { show({}); }
  ~ProgressLine() { clear(); }
  bool shown() const { return shown_; }

 private:
  bool shown_ = isatty(STDERR_FILENO);
};

}  // namespace brrr::cli
