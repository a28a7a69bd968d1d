// Whether an expression calls a function whose vector and scalar forms may differ in bits.
constexpr bool calls_inexact_math(const char* text) {
#define BRRR_NAME(name, ...) #name,
  constexpr const char* names[] = {BRRR_INEXACT_FUNCTIONS(BRRR_NAME)
                                       BRRR_INEXACT_FUNCTIONS2(BRRR_NAME) "logistic"};
#undef BRRR_NAME
  const auto in_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (const char* at = text; *at; ++at) {
    if (at != text && in_word(at[-1])) continue;
    for (const char* name : names) {
      const char *a = at, *b = name;
      while (*b && *a == *b) ++a, ++b;
      if (!*b && !in_word(*a)) return true;
    }
  }
  return false;
}

// Whether an expression selects among selections, as clamp does. g++ makes branches of it, which it
// does not vectorize, and which take 11 ns an element where they are mispredicted: such expressions
// are computed with Lanes.
constexpr bool selects_twice(const char* text) {
  for (; *text; ++text) {
    const char *a = text, *b = "minimum(maximum(";
    while (*b && *a == *b) ++a, ++b;
    if (!*b) return true;
  }
  return false;
}
