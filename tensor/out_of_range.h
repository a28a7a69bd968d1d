// Errors about single elements, worded alike whether the host finds them or a kernel. Positions
// count the tensor's elements in their order.
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
