#include "tensor/error.h"

#include <utility>

namespace brrr {

thread_local const char* current_op = nullptr;

void fail(std::string message) { throw Error(std::move(message)); }

}  // namespace brrr
