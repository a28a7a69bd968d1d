// Errors. Every misuse and every failure of the machine reaches the user as one of these; nothing
// aborts. Messages read "[op] expected <what>, got <what>".
#pragma once

#include <cstdint>
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

// A call into CUDA failed, or CUDA is not there. `code` is the library's own, 0 when it was never
// called.
class CudaError : public Error {
 public:
  CudaError(const std::string& message, int code) : Error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

[[noreturn]] void fail(const std::string& message);

// What the program was doing when a failure deep below happened: names the op in errors of the CUDA
// table, of the allocators and of the kernel compiler. Set by the dispatcher; a plain pointer to
// static text.
extern constinit thread_local const char* current_op;

class OpScope {
 public:
  explicit OpScope(const char* name) : before_(current_op) { current_op = name; }
  ~OpScope() { current_op = before_; }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  const char* before_;
};

// While it lives, an error of an op that a composite is made of names the composite, which is what
// the user called: "[softmax] ..." and not "[max] ...". The outermost one counts.
extern constinit thread_local const char* current_composite;

class CompositeScope {
 public:
  explicit CompositeScope(const char* name) : before_(current_composite) {
    if (!before_) current_composite = name;
  }
  ~CompositeScope() { current_composite = before_; }
  CompositeScope(const CompositeScope&) = delete;
  CompositeScope& operator=(const CompositeScope&) = delete;

 private:
  const char* before_;
};

}  // namespace brrr
