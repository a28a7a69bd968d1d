// What the expression of a row is made of, at compile time: it is evaluated over Terms in place of
// numbers.

struct Terms {
  bool inexact = false;  // calls a function whose vector and scalar forms may differ in bits
  bool largest = false;  // is a maximum
  // Selects among selections, as clamp does. g++ makes branches of it, which it does not vectorize.
  bool clamps = false;

  constexpr Terms() = default;
  constexpr explicit Terms(double) {}
  // Of an operation on them.
  constexpr Terms(Terms a, Terms b)
      : inexact(a.inexact || b.inexact), clamps(a.clamps || b.clamps) {}
};

#define BRRR_TERMS1(name, ...) \
  constexpr Terms name(Terms a) { return {a, a}; }
#define BRRR_TERMS2(name, ...) \
  constexpr Terms name(Terms a, Terms b) { return {a, b}; }
#define BRRR_INEXACT_TERMS1(name, ...) \
  constexpr Terms name(Terms a) {      \
    a.inexact = true;                  \
    return {a, a};                     \
  }
#define BRRR_INEXACT_TERMS2(name, ...) \
  constexpr Terms name(Terms a, Terms b) { return {exp(a), b}; }

BRRR_INEXACT_FUNCTIONS(BRRR_INEXACT_TERMS1)
BRRR_INEXACT_TERMS1(logistic)
BRRR_INEXACT_FUNCTIONS2(BRRR_INEXACT_TERMS2)
BRRR_EXACT_FUNCTIONS(BRRR_TERMS1)
BRRR_EXACT_FUNCTIONS2(BRRR_TERMS2)
BRRR_TERMS1(abs)
BRRR_TERMS1(sign)
BRRR_TERMS1(round_even)
BRRR_TERMS1(is_finite)
BRRR_TERMS1(is_infinite)
BRRR_TERMS1(bit_not)
BRRR_TERMS1(operator-)
BRRR_TERMS2(over)
BRRR_TERMS2(gated_slope)
BRRR_TERMS2(remainder)
BRRR_TERMS2(operator+)
BRRR_TERMS2(operator-)
BRRR_TERMS2(operator*)
BRRR_TERMS2(operator/)
BRRR_TERMS2(operator&)
BRRR_TERMS2(operator|)
BRRR_TERMS2(operator^)
BRRR_TERMS2(operator==)
BRRR_TERMS2(operator!=)
BRRR_TERMS2(operator<)
BRRR_TERMS2(operator<=)
BRRR_TERMS2(operator>)
BRRR_TERMS2(operator>=)

constexpr Terms where(Terms condition, Terms a, Terms b) { return {condition, {a, b}}; }
constexpr Terms maximum(Terms a, Terms b) {
  Terms result(a, b);
  result.largest = true;
  return result;
}
constexpr Terms minimum(Terms a, Terms b) {
  Terms result(a, b);
  result.clamps |= a.largest;
  return result;
}
