// The op table's rows with their public functions, stamped from ops.def, for the harness to walk.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "tests/harness/op_harness.h"

namespace brrr::test {

namespace {

using Operands = std::span<const Operand>;

brrr::Operand either(const Operand& operand) {
  return operand.number ? brrr::Operand(*operand.number) : brrr::Operand(operand.tensor);
}

constexpr Pointwise kPointwise[] = {
#define BRRR_UNARY(name, ...)                                       \
  {Op::name, 1, [](Operands o) { return brrr::name(o[0].tensor); }, \
   [](Tensor& a, Operands) -> Tensor& { return brrr::name##_(a); }},
#define BRRR_BINARY(name, ...)                                      \
  {Op::name, 2,                                                     \
   [](Operands o) {                                                 \
     if (o[0].number) return brrr::name(*o[0].number, o[1].tensor); \
     if (o[1].number) return brrr::name(o[0].tensor, *o[1].number); \
     return brrr::name(o[0].tensor, o[1].tensor);                   \
   },                                                               \
   [](Tensor& a, Operands o) -> Tensor& {                           \
     if (o[0].number) return brrr::name##_(a, *o[0].number);        \
     return brrr::name##_(a, o[0].tensor);                          \
   }},
#define BRRR_TERNARY(name, ...)                                                                 \
  {Op::name, 3, [](Operands o) { return brrr::name(o[0].tensor, either(o[1]), either(o[2])); }, \
   [](Tensor& a, Operands o) -> Tensor& { return brrr::name##_(a, either(o[0]), either(o[1])); }},
#include "brrr/dispatch/ops.def"
};

constexpr Reduction kReductions[] = {
#define BRRR_REDUCTION(name, ...)                           \
  {Op::name, [](const Tensor& x) { return brrr::name(x); }, \
   [](const Tensor& x, const Dims& dims, bool keepdim) { return brrr::name(x, dims, keepdim); }},
#include "brrr/dispatch/ops.def"
};

using Tensors = std::span<const Tensor>;
using Numbers = std::span<const brrr::Operand>;

constexpr FormulaRow kFormulas[] = {
#define BRRR_ELEMENT(name) *element++,
#define BRRR_NUMBER(name) *number++,
#define BRRR_OPERANDS(row, written, read, numbers)                                      \
  auto element = elements.begin();                                                      \
  [[maybe_unused]] auto number = numbers_.begin();                                      \
  const operands::row of{BRRR_EACH(BRRR_ELEMENT, written) BRRR_EACH(BRRR_ELEMENT, read) \
                             BRRR_EACH(BRRR_NUMBER, numbers)};
#define BRRR_FORMULA(name, written, read, numbers, ...)    \
  {Op::name,                                               \
   [](Tensors elements, Numbers numbers_) {                \
     BRRR_OPERANDS(name, written, read, numbers)           \
     const auto made = brrr::name(of);                     \
     return std::vector<Tensor>(made.begin(), made.end()); \
   },                                                      \
   [](Tensors elements, Numbers numbers_) {                \
     BRRR_OPERANDS(name, written, read, numbers)           \
     brrr::name##_(of);                                    \
   }},
#include "brrr/dispatch/ops.def"
};

}  // namespace

std::span<const Pointwise> pointwise_ops() { return kPointwise; }
std::span<const FormulaRow> formula_rows() { return kFormulas; }
std::span<const Reduction> reduction_ops() { return kReductions; }

bool in_this_part(const std::string& what) {
  static const auto [part, parts] = [] {
    std::uint64_t i = 0, n = 1;
    const char* text = std::getenv("BRRR_TEST_PART");
    if (text && std::sscanf(text, "%lu/%lu", &i, &n) != 2) n = 1;
    return std::pair(i, std::max<std::uint64_t>(n, 1));
  }();
  return hash_text(what) % parts == part % parts;
}

bool in_this_part(std::string_view op, DType dtype) {
  return in_this_part(std::string(op) + std::string(name_of(dtype)));
}

std::vector<std::string> structured_ops() {
  return {
#define BRRR_ARG_REDUCTION(name, ...) #name,
#define BRRR_VIEW(name, ...) #name,
#define BRRR_CONVERSION(name, ...) #name,
#define BRRR_STRUCTURED(name, ...) #name,
#include "brrr/dispatch/ops.def"
  };
}

}  // namespace brrr::test
