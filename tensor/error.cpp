#include "brrr/tensor/error.h"

#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr {

constinit thread_local ThreadContext thread_context{};

namespace {

std::string named(const std::string& message) {
  const char* composite = thread_context.composite;
  const std::size_t end = message.find(']');
  if (!composite || !message.starts_with('[') || end == std::string::npos) return message;
  return '[' + std::string(composite) + message.substr(end);
}

}  // namespace

Error::Error(const std::string& message) : std::runtime_error(named(message)) {}

void core::fail(const std::string& message) { throw Error(message); }

void core::fail_formatted(fmt::string_view format, fmt::format_args args) {
  throw Error(fmt::vformat(format, args));
}

}  // namespace brrr
