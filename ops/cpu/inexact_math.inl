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
