#include "brrr/tensor/out_of_range.h"

#include <fmt/format.h>

#include "brrr/tensor/fail.h"

namespace brrr {

void index_out_of_range(const char* op, std::int64_t bound, std::int64_t value,
                        std::int64_t position) {
  fail("[{}] expected indices in [0, {}), got {} at position {}", op, bound, value, position);
}

void value_out_of_range(const char* op, std::int64_t low, std::int64_t high, std::int64_t value,
                        std::int64_t position) {
  fail("[{}] expected values in [{}, {}], got {} at position {}", op, low, high, value, position);
}

void value_out_of_range(const char* op, double low, double high, double value,
                        std::int64_t position) {
  // The shortest text that identifies the value: if it is an f32, among f32 values.
  const auto narrow = static_cast<float>(value);
  const std::string got = narrow == value ? fmt::format("{}", narrow) : fmt::format("{}", value);
  fail("[{}] expected values in [{}, {}], got {} at position {}", op, low, high, got, position);
}

}  // namespace brrr
