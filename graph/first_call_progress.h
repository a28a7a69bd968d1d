// A status line on a terminal while the first call of a step takes long: it traces the function,
// plans memory, compiles kernels and measures products.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace brrr::graph {

class FirstCallProgress {
 public:
  // Shows a line on stderr, if that is a terminal, once a second has passed.
  explicit FirstCallProgress(const std::string& name);
  // Writes to `out`, first after `delay` and then at intervals of `delay`.
  FirstCallProgress(std::string name, std::FILE* out, std::chrono::milliseconds delay);
  // Erases the line.
  ~FirstCallProgress();
  // Sets the text of the line from now on; must be a literal.
  void phase(const char* does) { phase_ = does; }
  FirstCallProgress(const FirstCallProgress&) = delete;
  FirstCallProgress& operator=(const FirstCallProgress&) = delete;

 private:
  void show();

  std::string name_;
  std::FILE* out_;
  std::atomic<const char*> phase_ = "traces the function";
  std::chrono::milliseconds delay_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace brrr::graph
