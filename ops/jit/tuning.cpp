// Owns BRRR_TUNE.
#include "brrr/ops/jit/tuning.h"

#include <cstdlib>
#include <string>

#include "brrr/tensor/fail.h"

namespace brrr::jit {
namespace {

Tuning read_tuning() {
  Tuning tuning;
  const char* given = std::getenv("BRRR_TUNE");
  std::string text = given ? given : "";
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string item = text.substr(0, comma);
    text = comma == std::string::npos ? "" : text.substr(comma + 1);
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const int value = equals == std::string::npos ? 0 : std::atoi(item.c_str() + equals + 1);
    bool known = false;
#define X(field, standard)           \
  if (name == #field && value > 0) { \
    tuning.field = value;            \
    known = true;                    \
  }
    BRRR_TUNING(X)
#undef X
    if (!known)
      fail("[BRRR_TUNE] expected name=number with a name of ops/jit/tuning.h, got \"{}\"", item);
  }
  return tuning;
}

}  // namespace

const Tuning& tuning() {
  static const Tuning instance = read_tuning();
  return instance;
}

}  // namespace brrr::jit
