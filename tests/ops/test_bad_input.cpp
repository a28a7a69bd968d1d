// Misuse that shapes, types and handles show.
#include "tests/harness/bad_input.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "brrr/tensor/runtime.h"
#include "brrr/tensor/stream.h"

using namespace brrr;
using namespace brrr::test;

namespace {

// A bool is no dimension: argmax(x, true) meant keepdim.
template <class T>
concept takes_a_bool = requires(const T& x) {
  argmax(x, true);
}
|| requires(const T& x) { argmin(x, true, true); };
static_assert(!takes_a_bool<Tensor> && requires(const Tensor& x) { argmax(x, 0, true); });

}  // namespace

TEST_CASE("shapes that do not broadcast", "[bad-input]") {
  Things t;
  const Parts said = {"expected", "got", "[2, 3]", "[4, 5]"};
  const auto with = [&](const char* op) {
    Parts parts = said;
    parts.insert(parts.begin(), op);
    return parts;
  };
#define REFUSES(op) \
  refuses(          \
      t, #op, [&] { op(t.a, t.b); }, with("[" #op "]"))
  REFUSES(add);
  REFUSES(sub);
  REFUSES(mul);
  REFUSES(div);
  REFUSES(pow);
  REFUSES(maximum);
  REFUSES(minimum);
  REFUSES(remainder);
  REFUSES(eq);
  REFUSES(ne);
  REFUSES(lt);
  REFUSES(le);
  REFUSES(gt);
  REFUSES(ge);
  REFUSES(logical_and);
  REFUSES(logical_or);
  REFUSES(logical_xor);
#undef REFUSES
#define REFUSES(op) \
  refuses(          \
      t, #op, [&] { op(t.a, t.b, t.scalar); }, with("[" #op "]"))
  REFUSES(clamp);
  REFUSES(lerp);
  REFUSES(addcmul);
  REFUSES(addcdiv);
#undef REFUSES
  refuses(
      t, "where", [&] { where(t.flags, t.b, t.b); }, with("[where]"));
  refuses(
      t, "add_", [&] { add_(t.a, t.b); }, with("[add"));
  refuses(
      t, "mul_", [&] { t.a *= t.b; }, with("[mul"));
  refuses(t, "add_ that would grow", [&] { add_(t.v, t.a); },
          {"[add", "expected", "[3]", "[2, 3]"});
  refuses(t, "clamp_ that would grow", [&] { clamp_(t.v, t.a, 1); },
          {"[clamp", "expected", "[3]", "[2, 3]"});
  refuses(t, "copy_ of more", [&] { copy_(t.v, t.a); }, {"[copy", "expected", "[3]", "[2, 3]"});
  refuses(t, "copy_ of other", [&] { copy_(t.a, t.b); }, {"[copy", "expected", "[2, 3]", "[4, 5]"});
}

TEST_CASE("types that an op does not compute in", "[bad-input]") {
  Things t;
  refuses(t, "neg bool", [&] { neg(t.flags); }, {"[neg]", "expected", "got", "bool"});
  refuses(t, "abs bool", [&] { abs(t.flags); }, {"[abs]", "expected", "bool"});
  refuses(t, "square bool", [&] { square(t.flags); }, {"[square]", "expected", "bool"});
  refuses(t, "relu bool", [&] { relu(t.flags); }, {"[relu]", "expected", "bool"});
  refuses(t, "sub bools", [&] { sub(t.flags, t.flags); }, {"[sub]", "expected", "bool"});
  refuses(t, "sub bool number", [&] { sub(t.flags, true); }, {"[sub]", "expected", "bool"});
  refuses(t, "remainder bools", [&] { remainder(t.flags, t.flags); },
          {"[remainder]", "expected", "bool"});
  refuses(t, "clamp bools", [&] { clamp(t.flags, false, true); }, {"[clamp]", "expected", "bool"});
  refuses(t, "bitwise_not f32", [&] { bitwise_not(t.a); }, {"[bitwise_not]", "expected", "f32"});
  refuses(t, "bitwise_and f64", [&] { bitwise_and(t.wide, t.wide); },
          {"[bitwise_and]", "expected", "f64"});
  refuses(t, "bitwise_or with float", [&] { bitwise_or(t.index, t.a); },
          {"[bitwise_or]", "expected", "f32"});
  refuses(t, "where by floats", [&] { where(t.a, t.a, t.a); },
          {"[where]", "expected", "bool", "f32"});
  refuses(t, "where by integers", [&] { where(t.index, t.a, t.a); },
          {"[where]", "expected", "bool", "i64"});
  refuses(t, "exp_ of integers", [&] { exp_(t.whole); }, {"[exp", "expected", "i64"});
  refuses(t, "div_ of integers", [&] { div_(t.whole, 2); }, {"[div", "expected", "i64"});
  refuses(t, "add_ float to integers", [&] { add_(t.index, t.a); },
          {"[add", "expected", "i64", "f32"});
  refuses(t, "add_ number to integers", [&] { add_(t.whole, 0.5); }, {"[add", "expected", "i64"});
  refuses(t, "mul_ integers into bools", [&] { mul_(t.flags, t.index); },
          {"[mul", "expected", "bool", "i64"});
  refuses(t, "matmul of two types", [&] { matmul(t.a, transpose(t.wide, 0, 1)); },
          {"[matmul]", "expected", "f32", "f64"});
  refuses(t, "linear of two types", [&] { linear(t.a, t.wide); },
          {"[linear]", "expected", "f32", "f64"});
  refuses(t, "linear with a bias of another type", [&] { linear(t.a, t.square, cast(t.v, f64)); },
          {"[linear] expected a bias of the input's type, got bias f64[3] and input f32[2, 3]"});
  refuses(t, "linear of a vector with a bias of another type",
          [&] { linear(t.v, t.square, cast(t.v, f16)); }, {"[linear]", "f16[3]", "f32[3]"});
  refuses(t, "affine with a row of another type", [&] { affine(t.a, t.square, cast(t.v, f64)); },
          {"[affine] expected one dtype, got f32[2, 3], f32[3, 3] and f64[3]"});
  refuses(t, "affine of two types", [&] { affine(t.half, t.square, t.v); },
          {"[affine]", "f16[2, 3], f32[3, 3]"});
  refuses(t, "affine of integers and floats", [&] { affine(t.index, t.square, t.v); },
          {"[affine]", "i64[2, 3], f32[3, 3]"});
  refuses(t, "gather by floats", [&] { gather(t.a, 0, t.a); },
          {"[gather]", "expected", "integer", "f32"});
  refuses(t, "index_select by floats", [&] { index_select(t.a, 0, t.v); },
          {"[index_select]", "expected", "integer", "f32"});
  refuses(t, "embedding by floats", [&] { embedding(t.a, t.v); },
          {"[embedding]", "expected", "integer", "f32"});
  refuses(t, "scatter_add by floats", [&] { scatter_add(t.a, 0, t.a, t.a); },
          {"[scatter_add]", "expected", "integer", "f32"});
  refuses(t, "scatter_add of another type", [&] { scatter_add(t.a, 0, t.index, t.wide); },
          {"[scatter_add]", "expected", "f32", "f64"});
  refuses(t, "one_hot of floats", [&] { one_hot(t.v, 3); }, {"[one_hot]", "expected", "f32"});
  refuses(t, "randn of integers", [&] { randn({3}, {.dtype = i64}); },
          {"[randn]", "expected", "i64"});
  refuses(t, "rand of bools", [&] { rand({3}, {.dtype = boolean}); },
          {"[rand]", "expected", "bool"});
  refuses(t, "data of another type", [&] { t.a.data<double>(); }, {"expected", "f64", "f32"});
  refuses(t, "data of another type, half", [&] { t.half.data<float>(); },
          {"expected", "f32", "f16"});
}

TEST_CASE("ranks and inner sizes", "[bad-input]") {
  Things t;
  refuses(t, "matmul inner", [&] { matmul(t.a, t.b); },
          {"[matmul]", "expected", "inner", "f32[2, 3]", "f32[4, 5]"});
  refuses(t, "matmul vector", [&] { matmul(t.v, t.b); }, {"[matmul]", "expected", "[3]", "[4, 5]"});
  refuses(t, "matmul by vector", [&] { matmul(t.b, t.v); },
          {"[matmul]", "expected", "[4, 5]", "[3]"});
  refuses(t, "matmul of 0-d", [&] { matmul(t.scalar, t.a); }, {"[matmul]", "expected", "f32[]"});
  refuses(t, "matmul by 0-d", [&] { matmul(t.a, t.scalar); }, {"[matmul]", "expected", "f32[]"});
  refuses(t, "matmul batches",
          [&] {
            matmul(zeros({2, 3, 4}), zeros({5, 4, 6}));
          },
          {"[matmul]", "expected", "[2, 3, 4]", "[5, 4, 6]"});
  refuses(t, "linear features", [&] { linear(t.a, t.b); },
          {"[linear]", "expected", "[2, 3]", "[4, 5]"});
  refuses(t, "linear bias", [&] { linear(t.a, t.square, arange(7.0)); },
          {"[linear]", "expected", "[7]"});
  refuses(t, "tril of a vector", [&] { tril(t.v); }, {"[tril]", "expected", "[3]"});
  refuses(t, "triu of 0-d", [&] { triu(t.scalar); }, {"[triu]", "expected", "[]"});
  refuses(t, "index_select by a matrix", [&] { index_select(t.a, 0, t.index); },
          {"[index_select]", "expected", "[2, 3]"});
  refuses(t, "gather of another rank", [&] { gather(t.v, 0, t.index); },
          {"[gather]", "expected", "[3]", "[2, 3]"});
  refuses(t, "gather of too many",
          [&] {
            gather(t.a, 0, zeros({2, 4}, {.dtype = i64}));
          },
          {"[gather]", "expected", "[2, 3]", "[2, 4]"});
  refuses(t, "scatter_add ranks", [&] { scatter_add(t.v, 0, t.index, t.a); },
          {"[scatter_add]", "expected", "[3]", "[2, 3]"});
  refuses(t, "scatter_add source", [&] { scatter_add(t.a, 0, t.index, t.v); },
          {"[scatter_add]", "expected", "[2, 3]", "[3]"});
}

TEST_CASE("ranks of layers and orders of dimensions", "[bad-input]") {
  Things t;
  refuses(t, "embedding of a vector", [&] { embedding(t.v, t.index); },
          {"[embedding]", "expected", "[3]"});
  refuses(t, "layer_norm over none", [&] { layer_norm(t.a, 0); },
          {"[layer_norm]", "expected", "0"});
  refuses(t, "layer_norm over too many", [&] { layer_norm(t.a, 3); },
          {"[layer_norm]", "expected", "[2, 3]"});
  refuses(t, "layer_norm eps", [&] { layer_norm(t.a, 1, {}, {}, -1.0); },
          {"[layer_norm]", "expected eps of at least 0", "-1"});
  refuses(t, "rms_norm eps", [&] { rms_norm(t.a, 1, {}, std::nan("")); },
          {"[rms_norm]", "expected eps of at least 0", "nan"});
  refuses(t, "layer_norm weight", [&] { layer_norm(t.a, 1, t.whole); },
          {"[layer_norm]", "expected", "[4]"});
  refuses(t, "layer_norm bias", [&] { layer_norm(t.a, 1, t.v, arange(5.0)); },
          {"[layer_norm]", "expected", "[5]"});
  refuses(t, "rms_norm over too many", [&] { rms_norm(t.v, 2); },
          {"[rms_norm]", "expected", "[3]"});
  refuses(t, "rms_norm weight", [&] { rms_norm(t.a, 1, arange(5.0)); },
          {"[rms_norm]", "expected", "[5]"});
  refuses(t, "permute of too few", [&] { permute(t.a, {0}); }, {"[permute]", "expected", "[2, 3]"});
  refuses(t, "permute twice the same",
          [&] {
            permute(t.a, {1, 1});
          },
          {"[permute]", "expected", "[1, 1]"});
  refuses(t, "permute out of range", [&] { permute(t.a, {0, 2}); }, {"[permute]", "expected", "2"});
  refuses(t, "expand to fewer", [&] { expand(t.a, {3}); },
          {"[expand]", "expected", "[2, 3]", "[3]"});
  refuses(t, "a ninth dimension",
          [&] {
            unsqueeze(zeros({1, 1, 1, 1, 1, 1, 1, 1}), 0);
          },
          {"[unsqueeze]", "expected fewer than 8", "f32[1, 1,"});
}

TEST_CASE("dimensions that are not there", "[bad-input]") {
  Things t;
#define REFUSES(op, call) refuses(t, #call, [&] { call; }, {op, "expected", "got"});
  REFUSES("[sum]", sum(t.a, {2}))
  REFUSES("[sum]", sum(t.a, {-3}))
  REFUSES("[sum]", sum(t.a, {0, 0}))
  REFUSES("[sum]", sum(t.a, {1, -1}))
  REFUSES("[max]", max(t.a, {5}))
  REFUSES("[mean]", mean(t.a, {0, 2}))
  REFUSES("[any]", any(t.a, {2}, true))
  REFUSES("[norm]", norm(t.a, {-4}))
  REFUSES("[var]", var(t.a, Dims{2}))
  REFUSES("[logsumexp]", logsumexp(t.a, {7}))
  REFUSES("[softmax]", softmax(t.a, 2))
  REFUSES("[log_softmax]", log_softmax(t.a, -3))
  REFUSES("[argmax]", argmax(t.a, 2))
  REFUSES("[argmin]", argmin(t.a, -3))
  REFUSES("[cumsum]", cumsum(t.a, 2))
  REFUSES("[squeeze]", squeeze(t.a, 2))
  REFUSES("[unsqueeze]", unsqueeze(t.a, 4))
  REFUSES("[unsqueeze]", unsqueeze(t.a, -4))
  REFUSES("[transpose]", transpose(t.a, 0, 2))
  REFUSES("[flatten]", flatten(t.a, 0, 2))
  REFUSES("[flatten]", flatten(t.a, 1, 0))
  REFUSES("[slice]", slice(t.a, 2, 0, 1))
  REFUSES("[select]", select(t.a, 3, 0))
  REFUSES("[narrow]", narrow(t.a, -3, 0, 1))
  REFUSES("[split]", split(t.a, 1, 2))
  REFUSES("[chunk]", chunk(t.a, 2, 5))
  REFUSES("[cat]", cat({t.a, t.a}, 2))
  REFUSES("[stack]", stack({t.a, t.a}, 4))
  REFUSES("[gather]", gather(t.a, 2, t.index))
  REFUSES("[index_select]", index_select(t.a, -3, t.whole))
  REFUSES("[scatter_add]", scatter_add(t.a, 2, t.index, t.a))
  REFUSES("size", t.a.size(2))
  REFUSES("stride", t.a.stride(-3))
#undef REFUSES
}

TEST_CASE("0-d tensors where PyTorch refuses them", "[bad-input]") {
  Things t;
#define REFUSES(op, call) refuses(t, #call, [&] { call; }, {op, "expected", "got"});
  REFUSES("[slice]", slice(t.scalar, 0, 0, 1))
  REFUSES("[select]", select(t.scalar, 0, 0))
  REFUSES("[narrow]", narrow(t.scalar, -1, 0, 1))
  REFUSES("[split]", split(t.scalar, 1))
  REFUSES("[split]", split(t.scalar, {1}))
  REFUSES("[chunk]", chunk(t.scalar, 1))
  REFUSES("[cat]", cat({t.scalar}, -1))
  REFUSES("[sum]", sum(t.scalar, {1}))
  REFUSES("[sum]", sum(t.scalar, {0, -1}))
  REFUSES("[argmax]", argmax(t.scalar, 1))
  REFUSES("[softmax]", softmax(t.scalar, -2))
  REFUSES("[flatten]", flatten(t.scalar, 0, 1))
  REFUSES("[permute]", permute(t.scalar, {0}))
  REFUSES("[gather]", gather(t.a, 0, scalar_tensor(0, {i64})))
  REFUSES("[index_select]", index_select(t.scalar, 0, t.whole))
  REFUSES("[scatter_add]", scatter_add(t.a, 0, t.index, t.scalar))
  REFUSES("size", t.scalar.size(0))
#undef REFUSES
}

TEST_CASE("an error deep in a composite names what was called", "[bad-input]") {
  Things t;
  const Tensor elsewhere = meta({3}, {.device = cuda()}), rows = meta({3, 3}, {.device = cuda()});
#define REFUSES(op, call) refuses(t, #call, [&] { call; }, {op, "expected", "got"});
  REFUSES("[layer_norm]", layer_norm(t.a, 1, elsewhere))
  REFUSES("[rms_norm]", rms_norm(t.a, 1, elsewhere))
  REFUSES("[stack]", stack({t.v, elsewhere}))
  REFUSES("[linear]", linear(t.a, rows))
  REFUSES("[linear]", linear(t.a, cast(t.square, f64)))
  REFUSES("[embedding]", embedding(rows, t.index))
  REFUSES("[masked_fill]", masked_fill(t.v, elsewhere, 1))
  REFUSES("[masked_fill]", masked_fill(t.a, t.v, 1))
  REFUSES("[masked_fill]", masked_fill(t.whole, t.flags, 1.5))
  REFUSES("[masked_fill_]", masked_fill_(t.v, t.flags, 1))
  REFUSES("[clamp_min]", clamp_min(t.v, elsewhere))
  REFUSES("[clamp_max_]", clamp_max_(t.whole, 1.5))
  REFUSES("[addcmul]", addcmul(t.a, t.a, t.b, 2))
  REFUSES("[addcdiv_]", addcdiv_(t.a, t.b, t.a, 2))
  REFUSES("[rand_like]", rand_like(t.whole))
  REFUSES("[randn_like]", randn_like(t.whole))
  REFUSES("[eye]", eye(3, {.device = cuda(15)}))
  REFUSES("[linspace]", linspace(0, 1, 3, {.device = cuda(15)}))
  REFUSES("[std]", brrr::std(t.a, Dims{2}))
  REFUSES("[repeat]", repeat(t.a, {2}))
  REFUSES("[repeat]", repeat(t.a, {2, -1}))
  REFUSES("[tile]", tile(t.nothing, {std::int64_t{1} << 62, 4, 4}))
  REFUSES("[roll]", roll(t.a, 1, 2))
  REFUSES("[movedim]", movedim(t.a, 0, 2))
#undef REFUSES
  // The name goes with the composite.
  refuses(t, "max after a softmax", [&] { max(t.nothing); }, {"[max]"});
}

TEST_CASE("meta tensors of two devices", "[bad-input]") {
  Things t;
  const Tensor here = meta({3}), there = meta({3}, {.device = cuda()});
  const Parts parts = {"[add]", "expected all tensors on one device", "cpu and cuda:0"};
  refuses(
      t, "add of two", [&] { add(here, there); }, parts);
  refuses(
      t, "add of a real one", [&] { add(t.v, there); }, parts);
  refuses(t, "matmul of two",
          [&] {
            matmul(meta({2, 3}), meta({3, 2}, {.device = cuda()}));
          },
          {"[matmul]", "one device"});
  CHECK(add(there, there).device() == cuda());
}

TEST_CASE("sizes and counts", "[bad-input]") {
  Things t;
  const std::int64_t huge = std::int64_t{1} << 40;
  refuses(t, "zeros negative", [&] { zeros({2, -1}); }, {"[zeros]", "expected", "-1"});
  refuses(t, "empty negative", [&] { empty({-5}); }, {"[empty]", "expected", "-5"});
  refuses(t, "empty past 64 bits",
          [&] {
            empty({huge, huge});
          },
          {"[empty]", "[1099511627776, 1099511627776]"});
  refuses(t, "full past 63 bits of bytes",
          [&] {
            full({huge, huge >> 18}, 1.0, {.dtype = f64});
          },
          {"[full]", "1099511627776"});
  refuses(t, "expand past 63 bits",
          [&] {
            expand(ones({1}), {huge, huge});
          },
          {"[expand]", "expected", "1099511627776"});
  refuses(t, "reshape of nothing past 63 bits",
          [&] {
            reshape(empty({0}), {0, huge, huge});
          },
          {"[reshape]", "expected", "1099511627776"});
  refuses(t, "rand negative", [&] { rand({-1}); }, {"[rand]", "expected", "-1"});
  refuses(t, "meta negative", [&] { meta({-1}); }, {"[meta]", "expected", "-1"});
  refuses(t, "eye negative", [&] { eye(-2); }, {"[eye]", "expected", "-2"});
  refuses(t, "arange step 0", [&] { arange(0, 5, 0); }, {"[arange]", "expected", "step", "0"});
  refuses(t, "arange float step 0", [&] { arange(0.0, 5.0, 0.0); },
          {"[arange]", "expected", "step", "0"});
  refuses(t, "linspace negative", [&] { linspace(0, 1, -1); }, {"[linspace]", "expected", "-1"});
  refuses(t, "randint of nothing", [&] { randint(3, 3, {2}); }, {"[randint]", "expected", "3"});
  refuses(t, "dropout below", [&] { dropout(t.a, -0.1); }, {"[dropout]", "expected", "-0.1"});
  refuses(t, "dropout above", [&] { dropout(t.a, 1.5); }, {"[dropout]", "expected", "1.5"});
  refuses(t, "one_hot no classes", [&] { one_hot(t.index, -1); }, {"[one_hot]", "expected", "-1"});
  refuses(t, "tensor of too few",
          [&] {
            tensor(std::vector<float>{1, 2, 3}, {2, 2});
          },
          {"[tensor]", "expected", "[2, 2]", "3"});
}

TEST_CASE("shapes and sizes of parts", "[bad-input]") {
  Things t;
  refuses(t, "view of other size", [&] { view(t.a, {5}); },
          {"[view]", "expected", "[2, 3]", "[5]"});
  refuses(t, "view of strided", [&] { view(transpose(t.a, 0, 1), {6}); },
          {"[view]", "expected", "[6]", "[3, 2]"});
  refuses(t, "reshape of other size",
          [&] {
            reshape(t.a, {4, 2});
          },
          {"[reshape]|[view]", "expected", "[2, 3]", "[4, 2]"});
  refuses(t, "reshape two -1",
          [&] {
            reshape(t.a, {-1, -1});
          },
          {"[reshape]|[view]", "expected", "-1"});
  refuses(t, "reshape -2", [&] { reshape(t.a, {-2, 3}); }, {"[reshape]|[view]", "expected", "-2"});
  refuses(
      t, "reshape 0 and -1",
      [&] {
        reshape(t.nothing, {0, -1});
      },
      {"[reshape]", "expected sizes that determine the one for -1, got [0, -1] for", "ambiguous"});
  refuses(t, "view 0 and -1", [&] { view(t.nothing, {-1, 0}); }, {"[view]", "ambiguous"});
  refuses(t, "reshape of elements to 0 and -1",
          [&] {
            reshape(t.a, {0, -1});
          },
          {"[reshape]", "expected a shape of 6 elements", "[0, -1]"});
  refuses(t, "reshape -1 that does not divide",
          [&] {
            reshape(t.a, {4, -1});
          },
          {"[reshape]|[view]", "expected", "[2, 3]"});
  refuses(t, "expand of 3",
          [&] {
            expand(t.a, {2, 4});
          },
          {"[expand]", "expected", "[2, 3]", "[2, 4]"});
  refuses(t, "expand new -1", [&] { expand(t.a, {-1, 2, 3}); }, {"[expand]", "expected", "-1"});
  refuses(t, "expand negative", [&] { expand(t.a, {2, -3}); }, {"[expand]", "expected", "-3"});
  refuses(t, "split by 0", [&] { split(t.a, 0); }, {"[split]", "expected", "0"});
  refuses(t, "split by -1", [&] { split(t.a, -1); }, {"[split]", "expected", "-1"});
  refuses(t, "split sizes",
          [&] {
            split(t.b, std::vector<std::int64_t>{1, 2});
          },
          {"[split]", "expected", "4"});
  refuses(t, "split sizes negative",
          [&] {
            split(t.b, std::vector<std::int64_t>{5, -1});
          },
          {"[split]", "expected", "f32[4, 5]"});
  refuses(t, "chunk 0", [&] { chunk(t.a, 0); }, {"[chunk]", "expected", "0"});
  refuses(t, "narrow negative", [&] { narrow(t.a, 0, 0, -1); }, {"[narrow]", "expected", "-1"});
  refuses(t, "narrow beyond", [&] { narrow(t.a, 1, 2, 2); }, {"[narrow]", "expected", "3"});
}

TEST_CASE("joins, and reductions of nothing", "[bad-input]") {
  Things t;
  refuses(t, "slice step 0", [&] { slice(t.a, 0, 0, 2, 0); }, {"[slice]", "expected", "step", "0"});
  refuses(t, "cat of none", [&] { cat({}); }, {"[cat]", "expected"});
  refuses(t, "stack of none", [&] { stack({}); }, {"[stack]", "expected"});
  refuses(t, "cat of shapes", [&] { cat({t.a, t.b}); }, {"[cat]", "expected", "[2, 3]", "[4, 5]"});
  refuses(t, "cat of ranks", [&] { cat({t.a, t.v}); }, {"[cat]", "expected", "[2, 3]", "[3]"});
  refuses(t, "cat of 0-d", [&] { cat({t.scalar, t.scalar}); }, {"[cat]", "expected"});
  refuses(t, "stack of shapes",
          [&] {
            stack({t.a, t.b});
          },
          {"[stack]", "expected", "2, 3]", "4, 5]"});
  refuses(t, "max of nothing", [&] { max(t.nothing); }, {"[max]", "expected", "[0]"});
  refuses(t, "min of nothing", [&] { min(t.nothing); }, {"[min]", "expected", "[0]"});
  refuses(t, "max over no elements", [&] { max(t.hollow, {1}); },
          {"[max]", "expected", "[2, 0, 3]"});
  refuses(t, "argmax of nothing", [&] { argmax(t.nothing); }, {"[argmax]", "expected", "[0]"});
  refuses(t, "argmin over no elements", [&] { argmin(t.hollow, 1); },
          {"[argmin]", "expected", "[2, 0, 3]"});
}

TEST_CASE("places that may not be written to", "[bad-input]") {
  Things t;
  refuses(t, "add_ into an expanded", [&] { add_(t.spread, 1); }, {"[add", "expected"});
  refuses(t, "add_ tensor into an expanded", [&] { add_(t.spread, t.v); }, {"[add", "expected"});
  refuses(t, "relu_ of an expanded", [&] { relu_(t.spread); }, {"[relu", "expected"});
  refuses(t, "clamp_ of an expanded", [&] { clamp_(t.spread, 0, 1); }, {"[clamp", "expected"});
  refuses(t, "copy_ into an expanded", [&] { copy_(t.spread, t.v); }, {"[copy", "expected"});
  refuses(t, "fill_ an expanded", [&] { fill_(t.spread, 1); }, {"[fill_]", "expected"});
  refuses(t, "zero_ an expanded", [&] { zero_(t.spread); }, {"[zero_]", "expected"});
  Tensor head = slice(t.b, 0, 0, 3), tail = slice(t.b, 0, 1, 4);
  refuses(t, "add_ of a neighbour", [&] { add_(head, tail); }, {"[add", "expected", "overlap"});
  refuses(t, "mul_ of a neighbour", [&] { mul_(tail, head); }, {"[mul", "expected", "overlap"});
  refuses(t, "addcmul_ of a neighbour", [&] { addcmul_(head, tail, 2); },
          {"[addcmul", "expected", "overlap"});
  refuses(t, "add_ of its transpose", [&] { add_(t.square, transpose(t.square, 0, 1)); },
          {"[add", "expected", "overlap"});
  refuses(t, "add_ of its row", [&] { add_(t.square, select(t.square, 0, 1)); },
          {"[add", "expected", "overlap"});
  refuses(t, "copy_ of a neighbour", [&] { copy_(head, tail); }, {"[copy", "expected", "overlap"});
}

TEST_CASE("undefined tensors", "[bad-input]") {
  Things t;
#define REFUSES(op, call) refuses(t, #call, [&] { call; }, {op, "undefined"});
  REFUSES("[add]", add(t.undefined, t.a))
  REFUSES("[add]", add(t.a, t.undefined))
  REFUSES("[add]", add(t.undefined, 1))
  REFUSES("[add", add_(t.undefined, t.a))
  REFUSES("[add", add_(t.a, t.undefined))
  REFUSES("[neg]", neg(t.undefined))
  REFUSES("[where]", where(t.flags, t.a, t.undefined))
  REFUSES("[sum]", sum(t.undefined))
  REFUSES("[sum]", sum(t.undefined, {0}))
  REFUSES("[argmax]", argmax(t.undefined, 0))
  REFUSES("[matmul]", matmul(t.a, t.undefined))
  REFUSES("[matmul]", matmul(t.undefined, t.a))
  REFUSES("[linear]", linear(t.a, t.undefined))
  REFUSES("[reshape]", reshape(t.undefined, {1}))
  REFUSES("[permute]", permute(t.undefined, {}))
  REFUSES("[slice]", slice(t.undefined, 0, 0, 1))
  REFUSES("[cat]", cat({t.a, t.undefined}))
  REFUSES("[stack]", stack({t.undefined, t.a}))
  REFUSES("[gather]", gather(t.a, 0, t.undefined))
  REFUSES("[embedding]", embedding(t.undefined, t.index))
  REFUSES("[softmax]", softmax(t.undefined, 0))
  REFUSES("[layer_norm]", layer_norm(t.undefined, 1))
  REFUSES("[cumsum]", cumsum(t.undefined, 0))
  REFUSES("[clone]", clone(t.undefined))
  REFUSES("[contiguous]", contiguous(t.undefined))
  REFUSES("[to]", to(t.undefined, cpu))
  REFUSES("[to]|[cast]", to(t.undefined, f64))
  REFUSES("[copy", copy_(t.a, t.undefined))
  REFUSES("[copy", copy_(t.undefined, t.a))
  REFUSES("[item]", item(t.undefined))
  REFUSES("[to_vector]", to_vector<float>(t.undefined))
  REFUSES("[zeros_like]", zeros_like(t.undefined))
#undef REFUSES
}

TEST_CASE("reading what cannot be read", "[bad-input]") {
  Things t;
  refuses(t, "item of many", [&] { item(t.a); }, {"[item]", "expected", "f32[2, 3]"});
  refuses(t, "item of none", [&] { item(t.nothing); }, {"[item]", "expected", "f32[0]"});
  refuses(t, "item of meta", [&] { item(meta({})); }, {"[item]", "meta"});
  refuses(t, "typed item of many", [&] { item<float>(t.a); }, {"[item]", "expected", "f32[2, 3]"});
  refuses(t, "values of meta", [&] { to_vector<float>(t.shadow); }, {"[to_vector]", "meta"});
  refuses(t, "nonzero of meta", [&] { nonzero(t.shadow); }, {"[nonzero]", "meta"});
  refuses(t, "a write of what has no values", [&] { add_(t.a, t.shadow); }, {"[add", "meta"});
}

TEST_CASE("devices that are not there", "[bad-input]") {
  Things t;
  const Device none = cuda(15);
  const char* const missing =
      cuda_is_available() ? "got cuda:15" : "expected a CUDA device, got none";
  refuses(t, "to", [&] { to(t.a, none); }, {"[to]", missing});
  refuses(t, "zeros", [&] { zeros({2}, {.device = none}); }, {"[zeros]", missing});
  refuses(t, "empty", [&] { empty({2}, {.device = none}); }, {"[empty]", missing});
  refuses(t, "randn", [&] { randn({2}, {.device = none}); }, {"[randn]", missing});
  refuses(t, "arange", [&] { arange(4, {.device = none}); }, {"[arange]", missing});
  refuses(t, "tensor", [&] { tensor({1, 2}, none); }, {"[tensor]", missing});
  refuses(t, "stream", [&] { Stream stream(none); }, {missing});
  refuses(t, "synchronize", [&] { synchronize(none); }, {missing});
  refuses(t, "no name", [&] { Device::parse(""); }, {"expected", "cpu"});
  refuses(t, "another name", [&] { Device::parse("gpu"); }, {"expected", "gpu"});
  refuses(t, "no number", [&] { Device::parse("cuda:"); }, {"expected", "cuda:"});
  refuses(t, "not a number", [&] { Device::parse("cuda:x"); }, {"expected", "cuda:x"});
  refuses(t, "a number too far", [&] { Device::parse("cuda:999"); }, {"expected", "cuda:999"});
  refuses(t, "a negative number", [&] { Device::parse("cuda:-1"); }, {"expected", "cuda:-1"});
  std::printf("bad input: %ld cases\n", cases);
}
