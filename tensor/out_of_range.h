// Errors about single elements, with the same text whether the host or a kernel detects them.
// Positions count the tensor's elements in row-major order.
#pragma once

#include <cstdint>

namespace brrr {

// "[gather] expected indices in [0, 5), got 7 at position 3"
[[noreturn]] void index_out_of_range(const char* op, std::int64_t bound, std::int64_t value,
                                     std::int64_t position);

// "[bernoulli] expected values in [0, 1], got 1.5 at position 3"
[[noreturn]] void value_out_of_range(const char* op, std::int64_t low, std::int64_t high,
                                     std::int64_t value, std::int64_t position);
[[noreturn]] void value_out_of_range(const char* op, double low, double high, double value,
                                     std::int64_t position);

}  // namespace brrr
