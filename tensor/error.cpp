#include "brrr/tensor/error.h"

namespace brrr {

constinit thread_local const char* current_op = nullptr;
constinit thread_local const char* current_composite = nullptr;

namespace {

std::string named(const std::string& message) {
  const std::size_t end = message.find(']');
  if (!current_composite || !message.starts_with('[') || end == std::string::npos) return message;
  return '[' + std::string(current_composite) + message.substr(end);
}

}  // namespace

Error::Error(const std::string& message) : std::runtime_error(named(message)) {}

void fail(const std::string& message) { throw Error(message); }

}  // namespace brrr
