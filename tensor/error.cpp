#include "tensor/error.h"

#include <utility>

namespace brrr {

constinit thread_local const char* current_op = nullptr;

void fail(std::string message) { throw Error(std::move(message)); }

}  // namespace brrr
