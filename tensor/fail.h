// Throws an Error with a formatted message. Not in error.h, so that programs that include brrr.h do
// not compile fmt.
#pragma once

#include <fmt/core.h>

#include "brrr/tensor/error.h"

namespace brrr::core {

[[noreturn]] void fail_formatted(fmt::string_view format, fmt::format_args args);

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  fail_formatted(format, fmt::make_format_args(args...));
}

}  // namespace brrr::core
