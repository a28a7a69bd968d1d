#include "tests/harness/op_references.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace brrr::test {

double Computing::operator()(double value) const {
  return is_half(dtype) ? round_to(f32, value) : round_to(dtype, value);
}

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return a < b ? b : a;
}
double smaller(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return b < a ? b : a;
}

// Ties go to the even neighbour.
double round_half_even(double x) {
  if (!std::isfinite(x)) return x;
  const double below = std::floor(x), rest = x - below;
  double rounded = rest < 0.5                 ? below
                   : rest > 0.5               ? below + 1
                   : std::fmod(below, 2) == 0 ? below
                                              : below + 1;
  return std::copysign(rounded, x);
}

// As Python's %: the sign of the divisor.
double modulo(double a, double b, const Computing& rounded) {
  if (!is_floating(rounded.dtype) && b == 0) return 0;
  const double rest = std::fmod(a, b);
  return rest != 0 && std::signbit(rest) != std::signbit(b) ? rounded(rest + b) : rest;
}

double power(double a, double b, const Computing& rounded) {
  if (is_floating(rounded.dtype)) return std::pow(a, b);
  return std::trunc(std::pow(a, b));
}

using R = const Computing&;

const std::map<std::string, PointwiseReference> kPointwise = {
    {"neg", [](const double* x, R) { return -x[0]; }},
    {"abs", [](const double* x, R) { return std::fabs(x[0]); }},
    {"sign",
     [](const double* x, R) {
       return std::isnan(x[0]) ? x[0] : x[0] > 0 ? 1.0 : x[0] < 0 ? -1.0 : 0.0;
     }},
    {"exp", [](const double* x, R) { return std::exp(x[0]); }},
    {"expm1", [](const double* x, R) { return std::expm1(x[0]); }},
    {"log", [](const double* x, R) { return std::log(x[0]); }},
    {"log1p", [](const double* x, R) { return std::log1p(x[0]); }},
    {"sqrt", [](const double* x, R) { return std::sqrt(x[0]); }},
    {"rsqrt", [](const double* x, R) { return 1 / std::sqrt(x[0]); }},
    {"square", [](const double* x, R) { return x[0] * x[0]; }},
    {"reciprocal", [](const double* x, R) { return 1 / x[0]; }},
    {"sin", [](const double* x, R) { return std::sin(x[0]); }},
    {"cos", [](const double* x, R) { return std::cos(x[0]); }},
    {"tan", [](const double* x, R) { return std::tan(x[0]); }},
    {"log2", [](const double* x, R) { return std::log2(x[0]); }},
    {"sinh", [](const double* x, R) { return std::sinh(x[0]); }},
    {"cosh", [](const double* x, R) { return std::cosh(x[0]); }},
    {"asin", [](const double* x, R) { return std::asin(x[0]); }},
    {"acos", [](const double* x, R) { return std::acos(x[0]); }},
    {"atan", [](const double* x, R) { return std::atan(x[0]); }},
    {"tanh", [](const double* x, R) { return std::tanh(x[0]); }},
    {"sigmoid", [](const double* x, R) { return 1 / (1 + std::exp(-x[0])); }},
    {"relu", [](const double* x, R) { return std::isnan(x[0]) || x[0] > 0 ? x[0] : 0.0; }},
    {"gelu", [](const double* x, R) { return 0.5 * x[0] * std::erfc(-x[0] / std::sqrt(2.0)); }},
    {"gelu_tanh",
     [](const double* x, R) {
       const double inner = std::sqrt(2 / kPi) * (x[0] + 0.044715 * std::pow(x[0], 3));
       return 0.5 * x[0] * (1 + std::tanh(inner));
     }},
    {"silu", [](const double* x, R) { return x[0] / (1 + std::exp(-x[0])); }},
    {"softplus", [](const double* x, R) { return x[0] > 30 ? x[0] : std::log1p(std::exp(x[0])); }},
    {"erf", [](const double* x, R) { return std::erf(x[0]); }},
    {"floor", [](const double* x, R) { return std::floor(x[0]); }},
    {"ceil", [](const double* x, R) { return std::ceil(x[0]); }},
    {"round", [](const double* x, R) { return round_half_even(x[0]); }},
    {"trunc", [](const double* x, R) { return std::trunc(x[0]); }},
    {"isnan", [](const double* x, R) { return double(std::isnan(x[0])); }},
    {"isinf", [](const double* x, R) { return double(std::isinf(x[0])); }},
    {"isfinite", [](const double* x, R) { return double(std::isfinite(x[0])); }},
    {"logical_not", [](const double* x, R) { return double(x[0] == 0); }},
    {"bitwise_not",
     [](const double* x, R r) {
       return r.dtype == boolean ? double(x[0] == 0) : double(~whole(x[0]));
     }},

    {"add", [](const double* x, R) { return x[0] + x[1]; }},
    {"sub", [](const double* x, R) { return x[0] - x[1]; }},
    {"mul", [](const double* x, R) { return x[0] * x[1]; }},
    {"div", [](const double* x, R) { return x[0] / x[1]; }},
    {"pow", [](const double* x, R r) { return power(x[0], x[1], r); }},
    {"atan2", [](const double* x, R) { return std::atan2(x[0], x[1]); }},
    {"maximum", [](const double* x, R) { return larger(x[0], x[1]); }},
    {"minimum", [](const double* x, R) { return smaller(x[0], x[1]); }},
    {"remainder", [](const double* x, R r) { return modulo(x[0], x[1], r); }},
    {"eq", [](const double* x, R) { return double(x[0] == x[1]); }},
    {"ne", [](const double* x, R) { return double(x[0] != x[1]); }},
    {"lt", [](const double* x, R) { return double(x[0] < x[1]); }},
    {"le", [](const double* x, R) { return double(x[0] <= x[1]); }},
    {"gt", [](const double* x, R) { return double(x[0] > x[1]); }},
    {"ge", [](const double* x, R) { return double(x[0] >= x[1]); }},
    {"logical_and", [](const double* x, R) { return double(x[0] != 0 && x[1] != 0); }},
    {"logical_or", [](const double* x, R) { return double(x[0] != 0 || x[1] != 0); }},
    {"logical_xor", [](const double* x, R) { return double((x[0] != 0) != (x[1] != 0)); }},
    {"bitwise_and", [](const double* x, R) { return double(whole(x[0]) & whole(x[1])); }},
    {"bitwise_or", [](const double* x, R) { return double(whole(x[0]) | whole(x[1])); }},
    {"bitwise_xor", [](const double* x, R) { return double(whole(x[0]) ^ whole(x[1])); }},

    // Rounded at every step, since the largest values overflow on the way.
    {"tanh_gradient", [](const double* x, R r) { return r(x[0] * r(1 - r(x[1] * x[1]))); }},
    {"sigmoid_gradient", [](const double* x, R r) { return r(r(x[0] * x[1]) * r(1 - x[1])); }},
    {"relu_gradient", [](const double* x, R) { return x[1] <= 0 ? 0.0 : x[0]; }},
    {"gelu_gradient",
     [](const double* x, R r) {
       const double below = 0.5 * std::erfc(-x[1] / std::sqrt(2.0));
       const double bell = std::exp(r(r(-0.5 * x[1]) * x[1])) / std::sqrt(2 * kPi);
       return r(x[0] * r(below + r(x[1] * bell)));
     }},
    {"gelu_tanh_gradient",
     [](const double* x, R r) {
       const double k = std::sqrt(8 / kPi), c = 0.044715, b = x[1];
       const double square = r(b * b), twice = r(k * b);
       const double s = 1 / r(1 + std::exp(r(-twice * r(1 + r(c * square)))));
       const double slope = r(r(s * r(1 - s)) * r(twice * r(1 + r(3 * c * square))));
       return r(x[0] * r(s + slope));
     }},
    {"silu_gradient",
     [](const double* x, R r) {
       const double s = 1 / r(1 + std::exp(-x[1]));
       return r(x[0] * r(s + r(r(s * r(1 - s)) * x[1])));
     }},

    {"where", [](const double* x, R) { return x[0] != 0 ? x[1] : x[2]; }},
    {"clamp", [](const double* x, R) { return smaller(larger(x[0], x[1]), x[2]); }},
    {"lerp", [](const double* x, R r) { return r(x[0] + r(x[2] * r(x[1] - x[0]))); }},
    {"addcmul", [](const double* x, R r) { return r(x[0] + r(x[1] * x[2])); }},
    {"addcdiv", [](const double* x, R r) { return r(x[0] + r(x[1] / x[2])); }},
};

const std::map<std::string, ReductionReference>& reductions() {
  using Span = std::span<const double>;
  static const std::map<std::string, ReductionReference> table = {
      {"sum",
       [](Span xs) {
         double total = 0;
         for (double x : xs) total += x;
         return total;
       }},
      {"mean",
       [](Span xs) {
         double total = 0;
         for (double x : xs) total += x;
         return total / static_cast<double>(xs.size());
       }},
      {"prod",
       [](Span xs) {
         double total = 1;
         for (double x : xs) total *= x;
         return total;
       }},
      {"max",
       [](Span xs) {
         double best = -kInfinity;
         for (double x : xs) best = larger(best, x);
         return best;
       }},
      {"min",
       [](Span xs) {
         double best = kInfinity;
         for (double x : xs) best = smaller(best, x);
         return best;
       }},
      {"any",
       [](Span xs) {
         return double(std::any_of(xs.begin(), xs.end(), [](double x) { return x != 0; }));
       }},
      {"all",
       [](Span xs) {
         return double(std::all_of(xs.begin(), xs.end(), [](double x) { return x != 0; }));
       }},
      {"norm",
       [](Span xs) {
         double total = 0;
         for (double x : xs) total += x * x;
         return std::sqrt(total);
       }},
  };
  return table;
}

// The smallest type above both; `a` and `b` are of one rank.
DType join(DType a, DType b) {
  if (a == b) return a;
  const auto level = [](DType t) {
    return t == boolean ? 0 : t == i32 ? 1 : t == i64 ? 2 : t == f64 ? 5 : 3;
  };
  if (level(a) == 3 && level(b) == 3) return f32;  // two different ones of f16, bf16, f32
  return level(a) > level(b) ? a : b;
}

int category(DType t) { return t == boolean ? 0 : t == i32 || t == i64 ? 1 : 2; }

}  // namespace

PointwiseReference pointwise_reference(const std::string& op) {
  const auto found = kPointwise.find(op);
  return found == kPointwise.end() ? nullptr : found->second;
}

ReductionReference reduction_reference(const std::string& op) {
  const auto found = reductions().find(op);
  return found == reductions().end() ? nullptr : found->second;
}

DType result_type(std::span<const Typed> operands) {
  DType result = boolean;
  bool any = false;
  for (Rank rank : {Rank::dimensions, Rank::zero_d, Rank::number}) {
    DType of_rank = boolean;
    bool present = false;
    for (const Typed& operand : operands) {
      if (operand.rank != rank) continue;
      DType dtype = operand.dtype;
      if (rank == Rank::number && category(dtype) == 2) dtype = f32;
      of_rank = present ? join(of_rank, dtype) : dtype;
      present = true;
    }
    if (!present) continue;
    if (!any) {
      result = of_rank;
    } else if (category(of_rank) > category(result)) {
      result = of_rank;
    }
    any = true;
  }
  return result;
}

Types types_of(const OpInfo& info, std::span<const Typed> operands) {
  const bool select = info.rule == DTypeRule::select;
  DType computing = result_type(select ? operands.subspan(1) : operands);
  if (info.rule == DTypeRule::float_like && category(computing) < 2) computing = f32;
  Types types{computing, computing, contains(info.types, computing)};
  if (info.rule == DTypeRule::predicate) types.output = boolean;
  if (info.rule == DTypeRule::widened && category(computing) < 2) types.output = i64;
  if (select && operands[0].dtype != boolean) types.accepted = false;
  return types;
}

}  // namespace brrr::test
