#include "brrr/ops/cuda/sources.h"

#include <fmt/format.h>

#include "brrr/ops/cuda/launch.h"
#include "brrr/ops/cuda/matmul_small.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/text.h"

namespace brrr::text {
extern const char turn_cu[];
extern const char matmul_integer_cu[];
extern const char matmul_small_cu[];
extern const char gather_cu[];
extern const char scatter_cu[];
extern const char radix_cu[];
extern const char scan_cu[];
extern const char cat_cu[];
extern const char random_cu[];
extern const char checked_cu[];
}  // namespace brrr::text

namespace brrr::on_cuda::sources {
namespace {

std::string_view c_name(DType dtype) { return jit::pieces::c_name(dtype); }

std::string_view word_of(DType dtype) {
  switch (size_of(dtype)) {
    case 1: return "u8";
    case 2: return "u16";
    case 4: return "u32";
    default: return "u64";
  }
}

std::string typedef_of(std::string_view type, std::string_view name) {
  return fmt::format("typedef {} {};\n", type, name);
}

std::string space_of(DType index, int rank, bool wide) {
  return typedef_of(c_name(index), "Index") +
         fmt::format("constexpr int kRank = {};\nconstexpr bool kWide = {};\n", rank, wide);
}

}  // namespace

std::string turn(DType dtype) { return typedef_of(word_of(dtype), "Element") + text::turn_cu; }

std::string matmul_integer(DType dtype) {
  return typedef_of(c_name(dtype), "Element") + text::matmul_integer_cu;
}

std::string matmul_small(DType dtype, Lies a, Lies b, int ahead) {
  const std::string instruction =
      dtype == f32 ? "m16n8k8.row.col.f32.tf32.tf32.f32"
                   : fmt::format("m16n8k16.row.col.f32.{0}.{0}.f32", name_of(dtype));
  constexpr std::string_view kNames[] = {"along", "across", "strided"};
  return typedef_of(c_name(dtype), "Element") + typedef_of(word_of(dtype), "Bits") +
         fmt::format(
             "#define MULTIPLY \"{}\"\nenum Lies {{ along, across, strided }};\n"
             "constexpr bool kRounds = {};\nconstexpr int kAhead = {};\n"
             "constexpr Lies kLiesA = {}, kLiesB = {};\n",
             instruction, dtype == f32, ahead, kNames[static_cast<int>(a)],
             kNames[static_cast<int>(b)]) +
         text::matmul_small_cu;
}

std::string gather(DType dtype, int width, DType index, int rank, bool wide) {
  return text::faults_inl + space_of(index, rank, wide) + typedef_of(word_of(dtype), "Element") +
         fmt::format("constexpr int kWidth = {};\n", width) + text::gather_cu;
}

std::string scatter(DType dtype, DType index, int rank, bool wide) {
  return text::faults_inl + space_of(index, rank, wide) + typedef_of(c_name(dtype), "Element") +
         text::scatter_cu;
}

std::string radix() { return text::radix_cu; }

DType scan_sum(DType out) { return is_floating(out) ? f64 : i64; }

std::string scan(DType in, DType out) {
  return typedef_of(c_name(in), "In") + typedef_of(c_name(out), "Out") +
         typedef_of(c_name(scan_sum(out)), "Sum") + text::scan_cu;
}

std::string cat(int log2_word_bytes) {
  constexpr std::string_view kWords[] = {"u8", "u16", "u32", "u64", "uint4"};
  return typedef_of(kWords[log2_word_bytes], "Word") + text::cat_cu;
}

std::string draw(DType dtype, bool normal) {
  // Halves are drawn as f32: uniform with fewer bits, normal then rounded.
  const std::string_view drawn = normal && is_half(dtype) ? "f32" : name_of(dtype);
  return fmt::format(
             "typedef {} Element;\ntypedef Register<Element> Value;\nconstexpr int kWidth = "
             "{};\n#define DRAW brrr_{}_block_{}\n",
             c_name(dtype), dtype == f64 ? 2 : 4, normal ? "normal" : "uniform", drawn) +
         text::random_cu;
}

std::string checked(DType dtype) {
  return text::faults_inl + typedef_of(c_name(dtype), "Element") +
         typedef_of(is_floating(dtype) ? "double" : "i64", "Wide") + text::checked_cu;
}

jit::CompileOptions draw_options() {
  jit::CompileOptions options;
  options.random = true;
  return options;
}

}  // namespace brrr::on_cuda::sources

brrr::on_cuda::KernelTable<CUfunction>& brrr::on_cuda::hand_written_kernels() {
  static auto* table = new KernelTable<CUfunction>;
  return *table;
}
