// The library of measurements, brrr_measure, which a program need not link: a variable of the
// environment that asks for measurements opens it.
#pragma once

#include <atomic>

namespace brrr {

// Set by that library, when it is initialized.
inline constinit std::atomic<bool> measure_library_is_open{false};

// Opens it where BRRR_NVTX or BRRR_REPORT asks for it; throws if it cannot be opened. Its
// initializers start what they ask for.
void open_measure_library();

}  // namespace brrr
