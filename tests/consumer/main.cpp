// What another project's first use of brrr looks like; fails when the answer is wrong.
#include <brrr/brrr.h>

#include <cstdio>

int main() {
  const brrr::Tensor x = brrr::tensor({1, 2, 3});
  const double total = brrr::item(brrr::sum(x * 2 + 1));
  std::printf("sum(x * 2 + 1) = %g\n", total);
  return total == 15 ? 0 : 1;
}
