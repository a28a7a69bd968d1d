// Owns BRRR_TUNE.
#include "brrr/ops/jit/tuning.h"

#include "brrr/tensor/environment.h"

namespace brrr::jit {
namespace {

Tuning read_tuning() {
  Tuning tuning;
#define X(field, standard) #field,
  for (const auto& [name, value] : numbers_setting("BRRR_TUNE", {BRRR_TUNING(X)})) {
#undef X
#define X(field, standard) \
  if (name == #field) tuning.field = value;
    BRRR_TUNING(X)
#undef X
  }
  return tuning;
}

// On the CPU nothing reads the numbers: a misspelled name would go unnoticed.
[[maybe_unused]] const bool added = add_environment_check([] { tuning(); });

}  // namespace

const Tuning& tuning() {
  static const Tuning instance = read_tuning();
  return instance;
}

}  // namespace brrr::jit
