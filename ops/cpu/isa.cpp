// Chooses among the compiled levels of the instruction set.
#include <cstdlib>
#include <cstring>

#include "brrr/ops/cpu/loops.h"

namespace brrr::on_cpu {

namespace baseline {
extern const LoopTable table;
}
namespace v3 {
extern const LoopTable table;
}

// Constant from the start, so that ops in other files' static initializers find a table.
constinit const LoopTable* loops = &baseline::table;

namespace {

[[maybe_unused]] const bool chosen = [] {
#if defined(BRRR_HAS_ISA_V3)
  const char* asked = std::getenv("BRRR_ISA");  // "baseline" for comparisons
  const bool plain = asked && std::strcmp(asked, "baseline") == 0;
  __builtin_cpu_init();
  // Every machine with AVX2 has F16C too.
  if (!plain && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    loops = &v3::table;
  }
#endif
  return true;
}();

}  // namespace
}  // namespace brrr::on_cpu
