// Captures what a function writes to stderr, for tests of warnings.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace brrr::test {

template <class F>
std::string stderr_of(F&& f) {
  std::fflush(stderr);
  std::FILE* file = std::tmpfile();
  const int before = ::dup(2);
  ::dup2(::fileno(file), 2);
  f();
  std::fflush(stderr);
  ::dup2(before, 2);
  ::close(before);
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace brrr::test
