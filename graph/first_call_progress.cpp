#include "brrr/graph/first_call_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace brrr::graph {

FirstCallProgress::FirstCallProgress(const std::string& name)
    : FirstCallProgress(name, isatty(STDERR_FILENO) ? stderr : nullptr, std::chrono::seconds(1)) {}

FirstCallProgress::FirstCallProgress(std::string name, std::FILE* out,
                                     std::chrono::milliseconds delay)
    : name_(std::move(name)), out_(out), delay_(delay) {
  if (out_) thread_ = std::thread([this] { show(); });
}

FirstCallProgress::~FirstCallProgress() {
  if (!out_) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void FirstCallProgress::show() {
  std::unique_lock lock(mutex_);
  int shown = 0;
  while (!ended_.wait_for(lock, delay_, [this] { return done_; })) {
    const auto seconds = std::chrono::duration<double>(delay_ * ++shown).count();
    const std::string line =
        fmt::format("\r\x1b[K[{}] first call: {}, {:.0f} s", name_, phase_.load(), seconds);
    std::fputs(line.c_str(), out_);
    std::fflush(out_);
  }
  if (shown == 0) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
}

}  // namespace brrr::graph
