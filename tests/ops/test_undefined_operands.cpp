// An op that gets an undefined tensor names itself and the operand.
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

#include "brrr/ops/functions.h"

using namespace brrr;
using namespace brrr::test;

TEST_CASE("an undefined operand is named by its op and place", "[undefined]") {
  const Tensor x = ones({2, 2}), condition = gt(x, 0), none;
  const auto says = [&](auto&& call) { return error_of(call); };
  CHECK(says([&] { add(x, none); }) ==
        "[add] expected a tensor, got an undefined one as operand 1");
  CHECK(says([&] { none* x; }) == "[mul] expected a tensor, got an undefined one as operand 0");
  CHECK(says([&] { where(condition, x, none); }) ==
        "[where] expected a tensor, got an undefined one as operand 2");
  CHECK(says([&] { matmul(x, none); }) ==
        "[matmul] expected a tensor, got an undefined one as operand 1");
  CHECK(says([&] {
          cat({x, x, none});
        }) == "[cat] expected a tensor, got an undefined one as operand 2");
  CHECK(says([&] { addcmul(x, x, none, 1); }) ==
        "[addcmul] expected a tensor, got an undefined one as operand 2");
  CHECK(says([&] { exp(none); }) == "[exp] expected a tensor, got an undefined one");
  CHECK(says([&] { linear(x, none); }) ==
        "[linear] expected a tensor, got an undefined one as operand 1");
  CHECK(says([&] { gather(x, 0, none); }) ==
        "[gather] expected a tensor, got an undefined one as operand 1");
}
