// The op table's rows with their public functions, stamped from ops.def, for the harness to walk.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "brrr/ops/functions.h"
#include "tests/op_harness.h"

namespace brrr::test {

namespace {

using Operands = std::span<const Operand>;

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
#define BRRR_TERNARY(name, ...)                                                                  \
  {Op::name, 3,                                                                                  \
   [](Operands o) {                                                                              \
     if (o[1].number && o[2].number) return brrr::name(o[0].tensor, *o[1].number, *o[2].number); \
     if (o[1].number) return brrr::name(o[0].tensor, *o[1].number, o[2].tensor);                 \
     if (o[2].number) return brrr::name(o[0].tensor, o[1].tensor, *o[2].number);                 \
     return brrr::name(o[0].tensor, o[1].tensor, o[2].tensor);                                   \
   },                                                                                            \
   [](Tensor& a, Operands o) -> Tensor& {                                                        \
     if (o[0].number && o[1].number) return brrr::name##_(a, *o[0].number, *o[1].number);        \
     if (o[0].number) return brrr::name##_(a, *o[0].number, o[1].tensor);                        \
     if (o[1].number) return brrr::name##_(a, o[0].tensor, *o[1].number);                        \
     return brrr::name##_(a, o[0].tensor, o[1].tensor);                                          \
   }},
#include "brrr/dispatch/ops.def"
};

constexpr Reduction kReductions[] = {
#define BRRR_REDUCTION(name, ...)                           \
  {Op::name, [](const Tensor& x) { return brrr::name(x); }, \
   [](const Tensor& x, const Dims& dims, bool keepdim) { return brrr::name(x, dims, keepdim); }},
#include "brrr/dispatch/ops.def"
};

}  // namespace

std::span<const Pointwise> pointwise_ops() { return kPointwise; }
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
#define BRRR_STRUCTURED(name, ...) #name,
#include "brrr/dispatch/ops.def"
  };
}

}  // namespace brrr::test
