// Runs of the system's C++ compiler ($CXX, else c++).
#pragma once

#include <csignal>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace brrr::jit {

// Scope in which signals that end the process (SIGINT, SIGTERM, SIGHUP, SIGQUIT), or that the
// program handles (SIGINT, SIGTERM), wait: what the scope has started is ended first. They are
// delivered at its end. Signals that are ignored stay ignored.
class DelayedSignals {
 public:
  DelayedSignals();
  ~DelayedSignals();
  DelayedSignals(const DelayedSignals&) = delete;
  DelayedSignals& operator=(const DelayedSignals&) = delete;

  int received() const;  // 0: none
};

// Thrown where the program handles a signal that came during a compilation. No brrr::Error: kernels
// are not replaced by others then.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A directory for one run of the compiler, deleted with its content afterwards.
class WorkPlace {
 public:
  WorkPlace();
  ~WorkPlace();
  WorkPlace(const WorkPlace&) = delete;
  WorkPlace& operator=(const WorkPlace&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Throws when the disk does not take all of it.
void write_file(const std::string& path, const std::string& content);

// The compiler and its options; $CXX may be several words, the first a path with blanks.
std::vector<std::string> compiler_command();

// A shared object of each source, by as many processes side by side. Throws when there is no
// compiler, when one refuses its source, or takes longer than $BRRR_COMPILE_SECONDS (default 300);
// all of them are then ended, and also when a signal comes (Interrupted). After a second a terminal
// on stderr shows how many `kernels` are being compiled.
std::vector<std::string> compile_objects(std::span<const std::string> sources, std::size_t kernels);

// What a compiler said, cut when long.
std::string shortened(std::string message);

// The reason in an error of compile_objects: its first two lines, without the kernel's source and
// the random part of a WorkPlace's name.
std::string in_one_line(std::string error);

}  // namespace brrr::jit
