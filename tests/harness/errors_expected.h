// The text of the error that a call throws.
#pragma once

#include <string>

#include <brrr/tensor/error.h>

namespace brrr::test {

// The text of the brrr::Error that f throws; "" if it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace brrr::test
