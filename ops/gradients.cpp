// Gradient rules of the rows: compiles the last columns of ops.def into functions, and defines the
// helpers that they call in addition to public functions.
#include <cmath>
#include <type_traits>

#include "brrr/dispatch/dispatch.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/shapes.h"

namespace brrr::rules {
namespace {

// An operand that was a number, and arithmetic on it.
struct Number {
  double value;
  operator Scalar() const { return value; }
};
Number operator-(Number x, double y) { return {x.value - y}; }
[[maybe_unused]] Number operator+(Number x, Number y) { return {x.value + y.value}; }
Number operator*(Number x, Number y) { return {x.value * y.value}; }
Number operator-(double x, Number y) { return {x - y.value}; }
Tensor maximum(const Tensor& a, Number b) { return brrr::maximum(a, Scalar(b)); }
using brrr::maximum;

template <class T>
constexpr bool is_tensor = std::is_same_v<T, Tensor>;

// The metadata of an operand without its values, looked up on demand.
class OperandMetadata {
 public:
  OperandMetadata(const Gradient& r, int i) : r_(r), i_(i) {}
  Dims shape() const { return r_.like(i_).shape; }
  DType dtype() const { return r_.like(i_).dtype; }
  Device device() const { return r_.like(i_).device; }
  bool column_major() const { return r_.like(i_).column_major; }

 private:
  const Gradient& r_;
  int i_;
};

int dim(const Call& call) { return static_cast<int>(call.attrs[0].i()); }

Tensor zeros_of(const OperandMetadata& x) { return zeros(x.shape(), {x.dtype(), x.device()}); }

// The gradient of an operand that was broadcast.
Tensor fitted(Tensor gradient, const Gradient& r, int i) {
  if (!gradient.defined() || r.is_like_the_output(i)) return gradient;
  return sum_to(gradient, r.like(i).shape);
}

// --- Pointwise ---

Tensor pow_by_base(const Tensor& g, const Tensor& a, const Tensor& b) {
  return where(eq(b, 0), 0, g * (b * pow(a, b - 1)));
}
Tensor pow_by_base(const Tensor& g, const Tensor& a, Number b) {
  return b.value == 0 ? Tensor() : b.value == 1 ? g : g * (pow(a, Scalar(b - 1)) * Scalar(b));
}
Tensor pow_by_exponent(const Tensor& g, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Tensor vanishes = logical_and(eq(a, 0), ge(b, 0));
  return where(vanishes, 0, g * (y * log(a)));
}
Tensor pow_by_exponent(const Tensor& g, Number a, const Tensor& b, const Tensor& y) {
  const Tensor slope = g * (y * std::log(a.value));
  return a.value == 0 ? where(ge(b, 0), 0, slope) : slope;
}

// The gradient of one operand of maximum or minimum: zero where it is `beaten` by the other, half
// of g where they tie. Comparisons with NaN are false, so both operands get all of g.
Tensor unless(const Tensor& beaten, const Tensor& g, const Tensor& tied) {
  return where(beaten, 0, where(tied, g * 0.5, g));
}

// The integer q for which y, the remainder, is a - q * b. floor(a / b) may be one more: 1 / 0.1
// rounds up to 10, and 1 % 0.1 is nearly 0.1. Exact below 2^22, in f32 for 16-bit floats. If the
// quotient is not finite (b is 0, or infinite), the result is floor(a / b).
template <class A, class = std::enable_if_t<is_tensor<A> || std::is_same_v<A, Number>>>
Tensor floored_quotient(const A& a, const Tensor& b, const Tensor& y) {
  if (is_half(b.dtype())) {
    if constexpr (is_tensor<A>) {
      return cast(floored_quotient(cast(a, f32), cast(b, f32), cast(y, f32)), b.dtype());
    } else {
      return cast(floored_quotient(a, cast(b, f32), cast(y, f32)), b.dtype());
    }
  }
  const Tensor quotient = round((a - y) / b);
  return where(isfinite(quotient), quotient, floor(a / b));
}

Tensor gelu_curvature(const Tensor& x) {
  const Tensor square = x * x;
  return exp(square * -0.5) * (2 - square) * 0.39894228040143267794;
}
Tensor gelu_tanh_curvature(const Tensor& x) {
  constexpr double k = 0.79788456080286535588, c = 0.044715;
  const Tensor square = x * x;
  const Tensor t = tanh(x * (square * (k * c) + k));
  const Tensor slope = square * (3 * k * c) + k, rest = 1 - t * t;
  return rest * (slope + x * (x * (3 * k * c) - t * (slope * slope)));
}
Tensor silu_curvature(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return s * (1 - s) * (2 + x * (1 - s * 2));
}

// --- Reductions: attributes are the dimensions as bits, and keepdim ---

// A result with its reduced dimensions kept as 1.
Tensor kept(const Tensor& result, std::span<const std::int64_t> shape, const Call& call) {
  Dims with_ones(shape);
  for (int i = 0; i < with_ones.size(); ++i) {
    if (call.attrs[0].i() >> i & 1) with_ones[i] = 1;
  }
  return reshape(result, with_ones);
}

Dims reduced_dims(const Call& call) {
  Dims dims;
  for (int i = 0; i < kMaxDims; ++i) {
    if (call.attrs[0].i() >> i & 1) dims.push_back(i);
  }
  return dims;
}

Tensor spread(const Tensor& g, const OperandMetadata& x, const Call& call) {
  const Dims shape = x.shape();
  return expand(kept(g, shape, call), shape);
}

double reduced_count(const OperandMetadata& x, const Call& call) {
  double count = 1;
  const Dims shape = x.shape();
  for (const std::int64_t d : reduced_dims(call))
    count *= static_cast<double>(shape[static_cast<int>(d)]);
  return count;
}

// Sums over the reduced dimensions, where there are any.
Tensor total(const Tensor& x, const Call& call) {
  const Dims dims = reduced_dims(call);
  return dims.empty() ? x : sum(x, dims, true);
}

// Elements that tie share the gradient. So do NaNs, which are the extreme wherever there are any.
Tensor extreme_gradient(const Tensor& g, const Tensor& a, const Tensor& y, const Call& call) {
  const Tensor chosen = logical_or(eq(a, kept(y, a.shape(), call)), isnan(a));
  const Tensor share = kept(g, a.shape(), call) / total(cast(chosen, g.dtype()), call);
  return where(chosen, share, 0);
}

// Along the last dimension, the product of the elements before each one, or of those after it.
// Computed by recursive doubling without a division, so it is correct for zeros, and differentiable
// to every order.
Tensor products_around(const Tensor& x, bool before) {
  const int last = x.rank() - 1;
  const std::int64_t n = x.size(last);
  const auto moved = [&](const Tensor& from, std::int64_t by) {
    Dims entering(x.shape());
    entering[last] = by;
    const Tensor one = ones(entering, {x.dtype(), x.device()});
    return before ? cat({one, narrow(from, last, 0, n - by)}, last)
                  : cat({narrow(from, last, by, n - by), one}, last);
  };
  Tensor result = moved(x, 1);
  for (std::int64_t by = 1; by < n; by *= 2) result = result * moved(result, by);
  return result;
}

// The product of the others, over the reduced dimensions in one at the end.
Tensor prod_gradient(const Tensor& g, const Tensor& a, const Call& call) {
  const Dims dims = reduced_dims(call);
  if (a.numel() == 0) return {};
  if (dims.empty()) return g;
  Dims order, back = Dims::filled(a.rank(), 0), rows;
  for (int i = 0; i < a.rank(); ++i) {
    if (call.attrs[0].i() >> i & 1) continue;
    order.push_back(i);
    rows.push_back(a.shape()[i]);
  }
  for (const std::int64_t d : dims) order.push_back(d);
  for (int i = 0; i < a.rank(); ++i) back[static_cast<int>(order[i])] = i;
  rows.push_back(-1);
  const Tensor permuted = permute(is_half(a.dtype()) ? cast(a, f32) : a, order);
  const Tensor x = reshape(permuted, rows);
  const Tensor others = products_around(x, true) * products_around(x, false);
  return kept(g, a.shape(), call) *
         cast(permute(reshape(others, Dims(permuted.shape())), back), a.dtype());
}

Tensor norm_gradient(const Tensor& g, const Tensor& a, const Tensor& y, const Call& call) {
  const Tensor length = kept(y, a.shape(), call);
  return where(eq(length, 0), 0, a * (kept(g, a.shape(), call) / length));
}

// --- Views ---

Tensor permute_back(const Tensor& g, const Call& call) {
  Dims order = Dims::filled(call.n_attrs, 0);
  for (int i = 0; i < call.n_attrs; ++i) order[static_cast<int>(call.attrs[i].i())] = i;
  return permute(g, order);
}

Tensor unslice(const Tensor& g, const Dims& shape, const Call& call) {
  return brrr::unslice(g, dim(call), call.attrs[1].i(), shape[dim(call)], call.attrs[3].i());
}
Tensor sliced(const Tensor& g, const Dims& shape, const Call& call) {
  const std::int64_t start = call.attrs[1].i(), step = call.attrs[3].i();
  return slice(g, dim(call), start, start + shape[dim(call)] * step, step);
}

// Halves are widened, as in the softmax itself.
Tensor softmax_gradient(const Tensor& g, const Tensor& y, const OperandMetadata& x,
                        const Call& call) {
  const DType wide = is_half(y.dtype()) ? f32 : y.dtype();
  const Tensor slope = cast(g, wide), weights = cast(y, wide);
  return cast(weights * (slope - sum(slope * weights, {dim(call)}, true)), x.dtype());
}

// --- Structured ---

Tensor flipped(const Tensor& x) { return transpose(x, -2, -1); }

// Computes the gradient of a transposed matrix transposed, so that it has the matrix's layout and
// needs no copy.
Tensor left_factor(const Tensor& g, const OperandMetadata& a, const Tensor& b) {
  const Tensor product = a.column_major() ? flipped(matmul(b, flipped(g))) : matmul(g, flipped(b));
  return sum_to(product, a.shape());
}
Tensor right_factor(const Tensor& g, const Tensor& a, const OperandMetadata& b) {
  const Tensor product = b.column_major() ? flipped(matmul(flipped(g), a)) : matmul(flipped(a), g);
  return sum_to(product, b.shape());
}

Tensor part_of(const Tensor& g, int dim, const Gradient& r, int i) {
  std::int64_t start = 0;
  for (int before = 0; before < i; ++before) start += r.like(before).shape[dim];
  return narrow(g, dim, start, r.like(i).shape[dim]);
}

// The gradient of index_select: rows of g added where the index took them from.
Tensor rows_added(const Tensor& base, int dim, const Tensor& index, const Tensor& g) {
  Dims along = Dims::filled(g.rank(), 1);
  along[dim] = index.numel();
  return scatter_add(base, dim, expand(reshape(index, along), g.shape()), g);
}

// The gradient of scatter_add's source. The index may cover only a corner of the source.
Tensor gathered(const Tensor& g, int dim, const Tensor& index, const OperandMetadata& source) {
  Tensor result = gather(g, dim, index);
  const Dims shape = source.shape();
  for (int d = 0; d < shape.size(); ++d) {
    if (result.shape()[d] != shape[d]) result = brrr::unslice(result, d, 0, shape[d]);
  }
  return result;
}

Tensor triangle(const Tensor& g, const Call& call) {
  const int diagonal = static_cast<int>(call.attrs[0].i());
  return call.attrs[1].i() ? triu(g, diagonal) : tril(g, diagonal);
}

// --- The rows' rules ---

// Of an operand whose gradient nobody may ask for.
struct None {
  operator Tensor() const { return {}; }
};
[[maybe_unused]] const None none;
[[maybe_unused]] const Tensor zero;

// Calls f with an operand: its tensor, or its number.
template <class F>
void with_operand(const Gradient& r, int i, F&& f) {
  if (r.is_number(i)) {
    f(Number{r.number(i)});
  } else {
    f(r.operand(i));
  }
}

#define PICK(_1, _2, _3, chosen, ...) chosen
#define EACH_1(f, x) f(0, x)
#define EACH_2(f, x, y) f(0, x) f(1, y)
#define EACH_3(f, x, y, z) f(0, x) f(1, y) f(2, z)
#define EACH(f, ...) PICK(__VA_ARGS__, EACH_3, EACH_2, EACH_1)(f, __VA_ARGS__)

#define VALUES                                               \
  [[maybe_unused]] const Tensor &g = r.g(), &y = r.result(); \
  [[maybe_unused]] const Call& call = r.call;                \
  [[maybe_unused]] const OperandMetadata A(r, 0), B(r, 1), C(r, 2);
#define SET(i, expression) \
  if (r.wants(i)) r.set(i, expression);
#define SET_FITTED(i, expression) \
  if (r.wants(i)) r.set(i, fitted(expression, r, i));

#define BRRR_UNARY(name, types, rule, low, high, expression, da) \
  void name##_rule(Gradient& r) {                                \
    VALUES [[maybe_unused]] const Tensor& a = r.operand(0);      \
    SET(0, da)                                                   \
  }
#define BRRR_BINARY(name, types, rule, low, high, expression, da, db)        \
  template <class TA, class TB>                                              \
  void name##_of([[maybe_unused]] Gradient& r, [[maybe_unused]] const TA& a, \
                 [[maybe_unused]] const TB& b) {                             \
    VALUES if constexpr (is_tensor<TA>) { SET_FITTED(0, da) }                \
    if constexpr (is_tensor<TB>) {                                           \
      SET_FITTED(1, db)                                                      \
    }                                                                        \
  }                                                                          \
  void name##_rule(Gradient& r) {                                            \
    with_operand(r, 0, [&](const auto& a) {                                  \
      with_operand(r, 1, [&](const auto& b) { name##_of(r, a, b); });        \
    });                                                                      \
  }
#define BRRR_TERNARY(name, types, rule, low, high, expression, da, db, dc)                    \
  template <class TB, class TC>                                                               \
  void name##_of(Gradient& r, [[maybe_unused]] const Tensor& a, [[maybe_unused]] const TB& b, \
                 [[maybe_unused]] const TC& c) {                                              \
    VALUES SET_FITTED(0, da) if constexpr (is_tensor<TB>) { SET_FITTED(1, db) }               \
    if constexpr (is_tensor<TC>) {                                                            \
      SET_FITTED(2, dc)                                                                       \
    }                                                                                         \
  }                                                                                           \
  void name##_rule(Gradient& r) {                                                             \
    with_operand(r, 1, [&](const auto& b) {                                                   \
      with_operand(r, 2, [&](const auto& c) { name##_of(r, r.operand(0), b, c); });           \
    });                                                                                       \
  }
#define OF_OPERANDS(name, ...)                                                                    \
  void name##_rule(Gradient& r) {                                                                 \
    VALUES [[maybe_unused]] const Tensor &a = r.operand(0), &b = r.operand(1), &c = r.operand(2); \
    EACH(SET, __VA_ARGS__)                                                                        \
  }
#define BRRR_REDUCTION(name, types, rule, map, identity, combine, finish, da) OF_OPERANDS(name, da)
#define BRRR_VIEW(name, attributes, ...) OF_OPERANDS(name, __VA_ARGS__)
#define BRRR_CONVERSION(name, da) OF_OPERANDS(name, da)
#define SET_ANY(first, expression) \
  if (r.wants(i)) r.set(i, expression);
#define BRRR_STRUCTURED(name, inputs, attributes, effect, algebra, flops, ...)                    \
  void name##_rule(Gradient& r) {                                                                 \
    VALUES [[maybe_unused]] const Tensor &a = r.operand(0), &b = r.operand(1), &c = r.operand(2); \
    const int n = (inputs) < 0 ? r.n_operands : 1;                                                \
    for (int i = 0; i < n; ++i) {                                                                 \
      if constexpr ((inputs) < 0) {                                                               \
        EACH(SET_ANY, __VA_ARGS__)                                                                \
      } else {                                                                                    \
        EACH(SET, __VA_ARGS__)                                                                    \
      }                                                                                           \
    }                                                                                             \
  }
#include "brrr/dispatch/ops.def"

// --- The values that they read ---

// In place of a value that a rule does not read: no function takes it, so none above is a template
// over all types.
struct Absent {};
struct Set {
  void operator()(const Tensor& gradient) const;
};
struct SetNone {
  void operator()(const None& gradient) const;
};

struct Column {
  CallValues needs = 0;
  bool exists = false;
};

// `compiles` is of a rule's expression over types of a, b, c and y, whose value is set: it reads
// those without which it does not compile.
template <class Compiles>
constexpr Column column_of(Compiles compiles) {
  using X = Tensor;
  static_assert(compiles.template operator()<Set, X, X, X, X>());
  return {(compiles.template operator()<Set, Absent, X, X, X>() ? 0 : operand_bit(0)) |
              (compiles.template operator()<Set, X, Absent, X, X>() ? 0 : operand_bit(1)) |
              (compiles.template operator()<Set, X, X, Absent, X>() ? 0 : operand_bit(2)) |
              (compiles.template operator()<Set, X, X, X, Absent>() ? 0 : result_bit(0)),
          !compiles.template operator()<SetNone, X, X, X, X>()};
}

#define COLUMN(column, expression)                                                       \
  column_of([]<class S, class TA, class TB, class TC, class TY>() {                      \
    return requires(const S& set, const TA& a, const TB& b, const TC& c, const TY& y,    \
                    const Tensor& g, const OperandMetadata& A, const OperandMetadata& B, \
                    const OperandMetadata& C, const Call& call, Gradient& r, int i) {    \
      set(expression);                                                                   \
    };                                                                                   \
  }),
#define COLUMNS(name, ...) constexpr Column name##_columns[] = {EACH(COLUMN, __VA_ARGS__)};
#define BRRR_UNARY(name, types, rule, low, high, expression, ...) COLUMNS(name, __VA_ARGS__)
#define BRRR_BINARY(name, types, rule, low, high, expression, ...) COLUMNS(name, __VA_ARGS__)
#define BRRR_TERNARY(name, types, rule, low, high, expression, ...) COLUMNS(name, __VA_ARGS__)
#define BRRR_REDUCTION(name, types, rule, map, identity, combine, finish, ...) \
  COLUMNS(name, __VA_ARGS__)
#define BRRR_VIEW(name, attributes, ...) COLUMNS(name, __VA_ARGS__)
#define BRRR_CONVERSION(name, ...) COLUMNS(name, __VA_ARGS__)
#define BRRR_STRUCTURED(name, inputs, attributes, effect, algebra, flops, ...) \
  COLUMNS(name, __VA_ARGS__)
#include "brrr/dispatch/ops.def"
static_assert(mul_columns[0].needs == 2 && div_columns[1].needs == (2u | result_bit(0)));
static_assert(remainder_columns[1].needs == (3u | result_bit(0)) && cast_columns[0].needs == 0);
static_assert(!where_columns[0].exists && sign_columns[0].exists);

}  // namespace
}  // namespace brrr::rules

namespace brrr::gradients {
namespace {

// As many operands as columns; a row of any number of inputs has one column for all.
template <std::size_t N>
constexpr GradientRule rule_of(void (*run)(Gradient&), bool any_number,
                               const rules::Column (&columns)[N]) {
  GradientRule rule;
  for (int i = 0; i < static_cast<int>(N); ++i) {
    rule.needs[i] = columns[i].needs;
    if (columns[i].exists) rule.differentiable |= operand_bit(i);
  }
  if (any_number && rule.differentiable) rule.differentiable = (1u << kResultBit) - 1;
  rule.run = run;
  return rule;
}

}  // namespace

#define RULE(name, any_number)        \
  constinit const GradientRule name = \
      rule_of(rules::name##_rule, any_number, rules::name##_columns);
#define BRRR_UNARY(name, ...) RULE(name, false)
#define BRRR_BINARY(name, ...) RULE(name, false)
#define BRRR_TERNARY(name, ...) RULE(name, false)
#define BRRR_REDUCTION(name, ...) RULE(name, false)
#define BRRR_VIEW(name, ...) RULE(name, false)
#define BRRR_CONVERSION(name, ...) RULE(name, false)
#define BRRR_STRUCTURED(name, inputs, ...) RULE(name, (inputs) < 0)
#include "brrr/dispatch/ops.def"

}  // namespace brrr::gradients
