// The CPU's loops call libmvec's vector functions, whichever compiler built them: their results are
// those functions' bits. Scalar functions differ in the last bits, and take up to 30 times as long.
#include <dlfcn.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "brrr/dispatch/call.h"
#include "brrr/ops/cpu/loops.h"
#include "tests/harness/catch.h"

#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)

namespace brrr::on_cpu::baseline {
extern const LoopTable table;
}

namespace {

using namespace brrr;

template <class T, int bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(bytes)));
};

template <class V>
using Call1 = V (*)(V);
template <class V>
using Call2 = V (*)(V, V);

// A vector of results from one call of libmvec's `symbol`.
#define BRRR_CALL_VECTOR_FUNCTION(name, attribute)                               \
  template <class V, class T>                                                    \
  attribute void name(void* symbol, int arity, T* out, const T* a, const T* b) { \
    V x, y, result;                                                              \
    std::memcpy(&x, a, sizeof x);                                                \
    std::memcpy(&y, b, sizeof y);                                                \
    if (arity == 1) {                                                            \
      result = reinterpret_cast<Call1<V>>(symbol)(x);                            \
    } else {                                                                     \
      result = reinterpret_cast<Call2<V>>(symbol)(x, y);                         \
    }                                                                            \
    std::memcpy(out, &result, sizeof result);                                    \
  }
BRRR_CALL_VECTOR_FUNCTION(call_16_bytes, )
BRRR_CALL_VECTOR_FUNCTION(call_32_bytes, __attribute__((target("avx2"))))
#undef BRRR_CALL_VECTOR_FUNCTION

struct Function {
  Op op;
  const char* name;  // in libm
  int arity;
  double low, high;
};
constexpr Function kFunctions[] = {
    {Op::exp, "exp", 1, -90, 90},   {Op::expm1, "expm1", 1, -90, 90},
    {Op::log, "log", 1, 0, 100},    {Op::log1p, "log1p", 1, -1, 100},
    {Op::sin, "sin", 1, -100, 100}, {Op::cos, "cos", 1, -100, 100},
    {Op::tan, "tan", 1, -100, 100}, {Op::tanh, "tanh", 1, -5, 5},
    {Op::erf, "erf", 1, -4, 4},     {Op::pow, "pow", 2, 0, 10},
    {Op::log2, "log2", 1, 0, 100},  {Op::sinh, "sinh", 1, -90, 90},
    {Op::cosh, "cosh", 1, -90, 90}, {Op::asin, "asin", 1, -1, 1},
    {Op::acos, "acos", 1, -1, 1},   {Op::atan, "atan", 1, -100, 100},
    {Op::atan2, "atan2", 2, -9, 9},
};

// The name in libmvec: _ZGVdN8v_tanhf is tanhf of eight floats for AVX2.
std::string symbol_of(const Function& function, bool wide, int lanes, bool single) {
  return std::string("_ZGV") + (wide ? "d" : "b") + "N" + std::to_string(lanes) +
         (function.arity == 1 ? "v_" : "vv_") + function.name + (single ? "f" : "");
}

constexpr std::size_t kCount = 4096;

template <class T>
void check(const on_cpu::LoopTable& table, void* library, bool wide) {
  constexpr bool kSingle = sizeof(T) == 4;
  const int lanes = (wide ? 32 : 16) / static_cast<int>(sizeof(T));
  std::mt19937_64 random(1);
  for (const Function& function : kFunctions) {
    std::vector<T> a(kCount), b(kCount), got(kCount), expected(kCount);
    std::uniform_real_distribution<double> values(function.low, function.high);
    for (std::size_t i = 0; i < kCount; ++i) {
      a[i] = static_cast<T>(values(random));
      b[i] = static_cast<T>(values(random));
    }
    const std::string name = symbol_of(function, wide, lanes, kSingle);
    INFO(table.isa << ": " << name);
    void* symbol = dlsym(library, name.c_str());
    REQUIRE(symbol);
    for (std::size_t i = 0; i < kCount; i += static_cast<std::size_t>(lanes)) {
      const auto call = wide ? call_32_bytes<typename VectorOf<T, 32>::type, T>
                             : call_16_bytes<typename VectorOf<T, 16>::type, T>;
      call(symbol, function.arity, &expected[i], &a[i], &b[i]);
    }
    const void* in[] = {a.data(), b.data()};
    const DType dtype = kSingle ? DType::f32 : DType::f64;
    table.pointwise[static_cast<int>(function.op)][static_cast<int>(dtype)](got.data(), in, kCount);
    CHECK(std::memcmp(got.data(), expected.data(), kCount * sizeof(T)) == 0);
  }
}

}  // namespace

TEST_CASE("loops call libmvec's vector functions", "[cpu_kernels]") {
  void* library = dlopen("libmvec.so.1", RTLD_NOW);
  REQUIRE(library);
  check<float>(on_cpu::baseline::table, library, false);
  check<double>(on_cpu::baseline::table, library, false);
  if (std::string(on_cpu::loops->isa) == "v3") {
    check<float>(*on_cpu::loops, library, true);
    check<double>(*on_cpu::loops, library, true);
  }
  dlclose(library);
}

#endif
#endif
