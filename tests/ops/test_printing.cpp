// Tensors as text.
#include <cmath>
#include <brrr/brrr.h>

#include <limits>
#include <sstream>

#include "tests/harness/catch.h"

using namespace brrr;

namespace {

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  CHECK(out.str() == to_string(x));
  return "\n" + out.str() + "\n";
}

}  // namespace

TEST_CASE("tensors print in columns of one width", "[printing]") {
  const Tensor row = arange(1, 5, {.dtype = f32});
  CHECK(printed(row * view(row, {4, 1})) == R"(
f32[4, 4]
[[ 1,  2,  3,  4],
 [ 2,  4,  6,  8],
 [ 3,  6,  9, 12],
 [ 4,  8, 12, 16]]
)");
  CHECK(printed(tensor({{{0.5, -1}, {1.0 / 3, 100}}, {{1e-7, 0}, {1e20, 2}}})) == R"(
f32[2, 2, 2]
[[[     0.5,       -1],
  [0.333333,      100]],
 [[   1e-07,        0],
  [   1e+20,        2]]]
)");
  CHECK(printed(tensor<bool>({true, false})) == R"(
bool[2]
[ true, false]
)");
  CHECK(printed(scalar_tensor(2.5)) == R"(
f32[]
2.5
)");
  CHECK(printed(zeros({2, 0})) == "\nf32[2, 0]\n[]\n");
  CHECK(printed(tensor({1, std::numeric_limits<double>::infinity()})) == R"(
f32[2]
[  1, inf]
)");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(printed(tensor({nan, std::copysign(nan, -1.0)})) == R"(
f32[2]
[nan, nan]
)");
  CHECK(printed(Tensor()) == "\nan undefined tensor\n");
  CHECK(printed(meta({2})) == "\nf32[2]\n");
}

TEST_CASE("rows longer than a line are wrapped", "[printing]") {
  CHECK(printed(arange(98, 120)) == R"(
i64[22]
[ 98,  99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112,
 113, 114, 115, 116, 117, 118, 119]
)");
  CHECK(printed(reshape(arange(998, 1040), {2, 21})) == R"(
i64[2, 21]
[[ 998,  999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010,
  1011, 1012, 1013, 1014, 1015, 1016, 1017, 1018],
 [1019, 1020, 1021, 1022, 1023, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031,
  1032, 1033, 1034, 1035, 1036, 1037, 1038, 1039]]
)");
}

TEST_CASE("of more than 1000 values the first and last three along each dimension are printed",
          "[printing]") {
  CHECK(printed(arange(1000)).find("...") == std::string::npos);
  CHECK(printed(arange(1001)) == R"(
i64[1001]
[   0,    1,    2, ...,  998,  999, 1000]
)");
  CHECK(printed(reshape(arange(2000.0), {2, 10, 100})) == R"(
f32[2, 10, 100]
[[[   0,    1,    2, ...,   97,   98,   99],
  [ 100,  101,  102, ...,  197,  198,  199],
  [ 200,  201,  202, ...,  297,  298,  299],
  ...,
  [ 700,  701,  702, ...,  797,  798,  799],
  [ 800,  801,  802, ...,  897,  898,  899],
  [ 900,  901,  902, ...,  997,  998,  999]],
 [[1000, 1001, 1002, ..., 1097, 1098, 1099],
  [1100, 1101, 1102, ..., 1197, 1198, 1199],
  [1200, 1201, 1202, ..., 1297, 1298, 1299],
  ...,
  [1700, 1701, 1702, ..., 1797, 1798, 1799],
  [1800, 1801, 1802, ..., 1897, 1898, 1899],
  [1900, 1901, 1902, ..., 1997, 1998, 1999]]]
)");
  CHECK(printed(zeros({2000, 1}, {.dtype = bf16})) == R"(
bf16[2000, 1]
[[0],
 [0],
 [0],
 ...,
 [0],
 [0],
 [0]]
)");
  // Only what is printed is read, and no gradient is recorded for it.
  const std::int64_t vast = std::int64_t{1} << 30;
  CHECK(printed(expand(requires_grad_(ones({1, 1})), {vast, vast})) == R"(
f32[1073741824, 1073741824]
[[1, 1, 1, ..., 1, 1, 1],
 [1, 1, 1, ..., 1, 1, 1],
 [1, 1, 1, ..., 1, 1, 1],
 ...,
 [1, 1, 1, ..., 1, 1, 1],
 [1, 1, 1, ..., 1, 1, 1],
 [1, 1, 1, ..., 1, 1, 1]]
)");
}
