// Chooses among the levels of the instruction set.
#include "brrr/ops/cpu/isa.h"

#include <cstdlib>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/matmul_vectors.h"

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
  __builtin_cpu_init();
  // Every machine with AVX2 has F16C too.
  if (asked_isa() != "baseline" && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    loops = &v3::table;
  }
#endif
  return true;
}();

}  // namespace

std::string_view asked_isa() {
  const char* asked = std::getenv("BRRR_ISA");
  return asked ? asked : "";
}

std::string_view generated_isa() {
#if defined(BRRR_HAS_ISA_V3)
  static const bool has_v4 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl");
  static const bool excludes_v4 = asked_isa() == "v3";
  if (loops == &v3::table && has_v4 && !excludes_v4) return "v4";
#endif
  return loops->isa;
}

std::string selected_isas() {
  std::string text = loops->isa;
  if (generated_isa() != text) text.append(", generated kernels: ").append(generated_isa());
  if (const std::string_view products = vector_products(); !products.empty())
    text.append(", ").append(products);
  return text;
}

}  // namespace brrr::on_cpu
