// A write past the limit of `ulimit -f` sends SIGXFSZ to its thread, which by default ends the
// process. In the scope of this object it only fails, with EFBIG.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace brrr {

class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked() {
    sigset_t pending;
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlocked() {
    const int error = errno;
    const timespec now{};
    if (!was_pending_) ::sigtimedwait(&signal_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSizeSignalBlocked(const FileSizeSignalBlocked&) = delete;
  FileSizeSignalBlocked& operator=(const FileSizeSignalBlocked&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

}  // namespace brrr
