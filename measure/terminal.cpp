#include "brrr/measure/terminal.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "brrr/tensor/fail.h"
#include "brrr/tensor/file_size_signal.h"

namespace brrr::measure {

namespace {
bool printed = false;
}

void print(std::string_view text) {
  printed = true;
  const FileSizeSignalBlocked blocked;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  fail("cannot write to stdout: {}", std::strerror(errno));
}

bool has_printed() { return printed; }

bool prints_colors() {
  const char *const none = std::getenv("NO_COLOR"), *const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && !(none && *none) && terminal &&
         std::strcmp(terminal, "dumb") != 0;
}

void ProgressLine::show(const std::string& what) noexcept {
  if (!shown_) return;
  std::fprintf(stderr, "\r\x1b[K%s", what.c_str());
  std::fflush(stderr);
}

}  // namespace brrr::measure
