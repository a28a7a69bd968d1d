// Runs of the system's C++ compiler ($CXX, else c++).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace brrr::jit {

// A directory for one run of the compiler, deleted with its content afterwards.
class WorkPlace {
 public:
  WorkPlace();
  ~WorkPlace();
  WorkPlace(const WorkPlace&) = delete;
  WorkPlace& operator=(const WorkPlace&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Throws when the disk does not take all of it.
void write_file(const std::string& path, const std::string& content);

// The compiler and its options; $CXX may be several words.
std::vector<std::string> compiler_command();

// A shared object of each source, by as many processes side by side. Throws when there is no
// compiler, when one refuses its source, or takes longer than $BRRR_COMPILE_SECONDS (default 300);
// all of them are then ended. After a second a terminal on stderr shows how many `kernels` are
// being compiled.
std::vector<std::string> compile_objects(std::span<const std::string> sources, std::size_t kernels);

// The reason in an error of compile_objects: its first two lines, without the kernel's source and
// the random part of a WorkPlace's name.
std::string in_one_line(std::string error);

}  // namespace brrr::jit
