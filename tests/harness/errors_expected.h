// What a call throws, for tests that hold an error to its text.
#pragma once

#include <string>

#include <brrr/tensor/error.h>

namespace brrr::test {

// The text of the brrr::Error that f throws; "nothing was thrown" where it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace brrr::test
