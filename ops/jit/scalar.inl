// Functions that the expressions in ops.def use, over one element. This file is compiled twice: as
// C++ into the CPU loops, and as source in front of every generated kernel (CPU and CUDA), so both
// mean the same. It includes nothing. The including file defines BRRR_SCALAR_FN (how a function
// is declared) and provides, for float and double: exp expm1 log log1p sqrt sin cos tan tanh erf
// floor ceil trunc fabs fmod pow rint, and over(a, b): a / b for b of at least 1, to two units in
// the last place.
//
// T is float, double, int, long long (or std::int64_t) or bool; f16 and bf16 have become float
// before. On the CPU it is also a vector of floats (ops/cpu/lanes.inl), which has no ?: but
// `where`.

#ifndef BRRR_INFINITY
#define BRRR_INFINITY __builtin_inff()
#endif

template <class T>
struct scalar_traits {
  static constexpr bool floating = false;
};
template <>
struct scalar_traits<float> {
  static constexpr bool floating = true;
};
template <>
struct scalar_traits<double> {
  static constexpr bool floating = true;
};

template <class T>
BRRR_SCALAR_FN T where(bool condition, T a, T b) {
  return condition ? a : b;
}

// NaN in either operand gives NaN.
template <class T>
BRRR_SCALAR_FN T maximum(T a, T b) {
  return where((a > b) | (a != a), a, b);
}
template <class T>
BRRR_SCALAR_FN T minimum(T a, T b) {
  return where((a < b) | (a != a), a, b);
}

template <class T>
BRRR_SCALAR_FN T abs(T a) {
  if constexpr (scalar_traits<T>::floating) {
    return fabs(a);
  } else {
    return a < T(0) ? T(-a) : a;
  }
}

// Keeps NaN and gives +0 for both zeros.
template <class T>
BRRR_SCALAR_FN T sign(T a) {
  return (a != a) ? a : T(T(a > T(0)) - T(a < T(0)));
}

template <class T>
BRRR_SCALAR_FN T round_even(T a) {
  if constexpr (scalar_traits<T>::floating) {
    return rint(a);
  } else {
    return a;
  }
}

template <class T>
BRRR_SCALAR_FN bool is_finite(T a) {
  return (a - a) == (a - a);
}
template <class T>
BRRR_SCALAR_FN bool is_infinite(T a) {
  return (a == a) & !is_finite(a);
}

template <class T>
BRRR_SCALAR_FN T logistic(T a) {
  return over(T(1), T(1) + exp(-a));
}
// The slope of x * logistic(u) where s is logistic(u) and t is x times u's slope.
template <class T>
BRRR_SCALAR_FN T gated_slope(T s, T t) {
  return s + s * (T(1) - s) * t;
}

template <class T>
BRRR_SCALAR_FN T bit_not(T a) {
  return static_cast<T>(~a);
}
template <>
BRRR_SCALAR_FN bool bit_not<bool>(bool a) {
  return !a;
}

// The result has the divisor's sign. For integers a remainder by 0 is 0: an element cannot throw.
template <class T>
BRRR_SCALAR_FN T remainder(T a, T b) {
  if constexpr (scalar_traits<T>::floating) {
    T r = fmod(a, b);
    return ((r != T(0)) & ((r < T(0)) != (b < T(0)))) ? r + b : r;
  } else {
    if (b == T(0) || b == T(-1)) return T(0);
    T r = a % b;
    return (r != T(0) && (r < T(0)) != (b < T(0))) ? T(r + b) : r;
  }
}

// Integers in users' expressions, where an element cannot throw: by 0 is 0, and what has no
// representation wraps.
template <class T>
BRRR_SCALAR_FN T quotient(T a, T b) {
  if constexpr (scalar_traits<T>::floating) {
    return a / b;
  } else {
    if (b == T(0)) return T(0);
    return b == T(-1) ? T(T(0) - a) : T(a / b);
  }
}
template <class T>
BRRR_SCALAR_FN T modulo(T a, T b) {
  return (b == T(0) || b == T(-1)) ? T(0) : T(a % b);
}
template <class T>
BRRR_SCALAR_FN T shifted_left(T a, T by) {
  return (by >= T(0) && by < T(8 * sizeof(T))) ? T(a << by) : T(0);
}
template <class T>
BRRR_SCALAR_FN T shifted_right(T a, T by) {
  return (by >= T(0) && by < T(8 * sizeof(T))) ? T(a >> by) : T(0);
}

// Integer powers wrap; a negative exponent gives what truncation of the real result would.
template <class T>
BRRR_SCALAR_FN T integer_power(T base, T exponent) {
  if (exponent < T(0))
    return base == T(1) ? T(1) : base == T(-1) ? (exponent % T(2) ? T(-1) : T(1)) : T(0);
  T result = T(1);
  while (exponent) {
    if (exponent & T(1)) result = T(result * base);
    base = T(base * base);
    exponent = T(exponent >> 1);
  }
  return result;
}
BRRR_SCALAR_FN int pow(int base, int exponent) { return integer_power(base, exponent); }
BRRR_SCALAR_FN long long pow(long long base, long long exponent) {
  return integer_power(base, exponent);
}

BRRR_SCALAR_FN int floor(int a) { return a; }
BRRR_SCALAR_FN int ceil(int a) { return a; }
BRRR_SCALAR_FN int trunc(int a) { return a; }
BRRR_SCALAR_FN long long floor(long long a) { return a; }
BRRR_SCALAR_FN long long ceil(long long a) { return a; }
BRRR_SCALAR_FN long long trunc(long long a) { return a; }

// The ends of a type's range: where maxima and minima start.
template <class T>
BRRR_SCALAR_FN T highest() {
  if constexpr (scalar_traits<T>::floating) {
    return T(BRRR_INFINITY);
  } else if constexpr (sizeof(T) == 1) {
    return T(1);
  } else {
    return static_cast<T>(~(1ull << (sizeof(T) * 8 - 1)));
  }
}
template <class T>
BRRR_SCALAR_FN T lowest() {
  if constexpr (scalar_traits<T>::floating) {
    return T(-BRRR_INFINITY);
  } else if constexpr (sizeof(T) == 1) {
    return T(0);
  } else {
    return static_cast<T>(1ull << (sizeof(T) * 8 - 1));
  }
}
