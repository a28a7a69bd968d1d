// Errors. Every misuse and every failure of the machine reaches the user as one of these; nothing
// aborts. Messages read "[op] expected <what>, got <what>".
#pragma once

#include <stdexcept>
#include <string>

namespace brrr {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
};

// Memory ran out after every cached block had been given back.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, std::size_t requested)
      : Error(message), requested_(requested) {}
  std::size_t requested() const { return requested_; }

 private:
  std::size_t requested_;
};

// A call into CUDA failed, or CUDA is not there. `code` is the library's, 0 when it was never
// called.
class CudaError : public Error {
 public:
  CudaError(const std::string& message, int code) : Error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

namespace core {
[[noreturn]] void fail(const std::string& message);
}

}  // namespace brrr
