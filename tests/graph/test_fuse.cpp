// Fused steps on the CPU have eager's bits.
#include <algorithm>

#include <regex>
#include <brrr/autograd/autograd.h>
#include <brrr/graph/compile.h>
#include <brrr/nn/optim/optimizer.h>
#include <brrr/nn/optim/optimizers.h>
#include <brrr/ops/functions.h>

#include "tests/harness/body_interpreter.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_random.h"
#include "tests/harness/environment.h"
#include "tests/harness/fused_programs.h"

namespace brrr::test {

TEST_CASE("fused programs give what eager ones do", "[fuse]") { check_fused_programs(cpu); }

TEST_CASE("fast rounding keeps what is inside a kernel in f32", "[fuse]") {
  const auto chain = [](const Tensor& x) { return tanh(x * 1.37 + 0.3) * x - 0.7; };
  for (const DType dtype : {bf16, f16}) {
    INFO(name_of(dtype));
    const Tensor x = cast(noise({500}, 3, f32), dtype);
    auto fast = compile(chain, {.mode = Mode::fused, .rounding = Rounding::fast});
    const Tensor wanted = cast(chain(cast(x, f32)), dtype);
    CHECK(bits_of(fast(x)) == bits_of(wanted));
    CHECK(bits_of(chain(x)) != bits_of(wanted));
    CHECK_THAT(fast.explain(), Catch::Contains("1 generated kernels (fast rounding):"));
  }
}

TEST_CASE("fast programs give what eager ones do, nearly", "[fuse]") {
  check_fused_programs(cpu, Rounding::fast);
}

TEST_CASE("products beside fused kernels are within bounds of those in f64", "[fuse]") {
  check_fused_products(cpu);
  check_fused_tile_products(cpu);
}

TEST_CASE("random programs have eager's bits when they are fused", "[fuse][sanitized]") {
  check_random_programs(cpu, 60, Mode::fused);
}

TEST_CASE("random programs have eager's bits when they are fused and computed again",
          "[fuse][remat]") {
  check_random_programs(cpu, 40, Mode::fused, true);
}

TEST_CASE("random programs have eager's bits when they are interpreted and computed again",
          "[fuse][remat]") {
  const Interpreted interpreted;
  check_random_programs(cpu, 1000, Mode::fused, true);
}

TEST_CASE("kernels of short rows, of few columns and of all widths have eager's bits", "[fuse]") {
  const auto results = [](const Tensors& a) {
    const Tensor &x = a[0], &y = a[1];
    const Tensor leaf = requires_grad_(detach(x));
    return Tensors{sum(exp(x) * y, {0}), sum(x * y, {1}),
                   max(x * y, 1),        argmax(x - y, 0),
                   softmax(x, 1),        softmax(x, 0),
                   layer_norm(x, 1),     grad(sum(softmax(leaf, 1) * y), leaf)};
  };
  struct Shape {
    std::int64_t rows, columns;
    DType dtype;
  };
  // Fewer rows than a group and a tile, blocks of columns, tiles of columns with a rest.
  for (const auto& [rows, columns, dtype] :
       {Shape{5, 3, f32}, Shape{300, 2, f64}, Shape{131, 17, f32}, Shape{70, 17, bf16},
        Shape{50001, 3, f32}, Shape{600, 514, f32}, Shape{9, 1001, f32}}) {
    INFO(rows << " x " << columns << " " << name_of(dtype));
    const Tensors arguments = {noise({rows, columns}, 1, dtype), noise({rows, columns}, 2, dtype)};
    auto step = compile(results, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    const Tensors got = step(arguments), wanted = results(arguments);
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i);
      CHECK(bits_of(got[i]) == bits_of(wanted[i]));
    }
  }
  // The same of dimensions between others, whose tiles have all elements of their rows.
  const Tensor x = noise({6, 17, 5}, 3, f32);
  const auto between = [](const Tensor& of) { return Tensors{softmax(of, 1), sum(exp(of), {1})}; };
  auto step = compile(between, {.mode = Mode::fused, .fallback = OnFallback::refuse});
  const Tensors got = step(x), wanted = between(x);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(bits_of(got[i]) == bits_of(wanted[i]));
}

TEST_CASE("a sum of slices' gradients reads each where it lies", "[fuse]") {
  // Along rows and across them, contiguous or not, within one row and over several.
  for (const Dims& shape : {Dims{40, 6}, Dims{3, 700}, Dims{5, 4, 6}}) {
    for (int dim = 0; dim < shape.size(); ++dim) {
      INFO(shape[0] << " x " << shape[1] << " along " << dim);
      const auto sums = [&](const Tensors& a) {
        const std::int64_t n = a[0].shape()[static_cast<std::size_t>(dim)];
        return Tensors{unslice(a[0], dim, 0, 3 * n) + unslice(a[1], dim, n + 1, 3 * n),
                       unslice(transpose(transpose(a[0], 0, 1), 0, 1), dim, 2, n + 3) +
                           unslice(a[1], dim, 1, n + 3)};
      };
      const Tensors arguments = {noise(shape, 1, f32), noise(shape, 2, f32)};
      auto step = compile(sums, {.mode = Mode::fused, .fallback = OnFallback::refuse});
      const Tensors got = step(arguments), wanted = sums(arguments);
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(bits_of(got[i]) == bits_of(wanted[i]));
      CHECK(step.report().entries.at(0).nodes == 2);
    }
  }
}

TEST_CASE("interpreted kernels give what eager ops do", "[fuse]") {
  const Interpreted interpreted;
  check_interpreted_programs();
  check_random_programs(cpu, 60, Mode::fused);
}

namespace {

// The lines of a step that have all of `pieces`.
int lines_with(const std::string& text, std::initializer_list<std::string_view> pieces) {
  int lines = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    lines += std::ranges::all_of(
        pieces, [&](std::string_view piece) { return line.find(piece) != line.npos; });
    begin = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("row kernels write in the memory of operands that end there", "[fuse]") {
  const Tensor a = noise({512, 16}, 1, f32), b = noise({16, 9000}, 2, f32);
  const Tensor c = noise({9000, 8}, 3, f32);
  const std::size_t bytes = 512 * 9000 * sizeof(float);  // more than a CPU kernel keeps of a row
  const auto check = [&](auto function, std::size_t least, std::size_t most) {
    auto fused = compile(function, {.mode = Mode::fused});
    for (int call = 0; call < 3; ++call) {
      const bool same = bits_of(fused(a)) == bits_of(function(a));  // not printed
      CHECK(same);
    }
    const std::size_t arena = fused.report().entries.front().arena_bytes;
    CHECK(arena >= least);
    CHECK(arena < most);
  };
  const auto softmaxed = [&](const Tensor& x) { return matmul(softmax(matmul(x, b), 1), c); };
  check(softmaxed, bytes, bytes * 5 / 4);
  // `doubled` is written in the first pass over a row; the second one reads the scores again.
  const auto centred = [&](const Tensor& x) {
    const Tensor scores = matmul(x, b), doubled = scores * 2;
    return matmul(doubled, c) + matmul(scores - mean(doubled, {1}, true), c);
  };
  check(centred, bytes * 2, bytes * 9 / 4);
  // Threads of a CUDA kernel that have no row check the last one again, at any time.
  const auto checked_scores = [&](const Tensor& x) {
    return matmul(softmax(checked(matmul(x, b), -1e6, 1e6), 1), c);
  };
  check(checked_scores, bytes * 2, bytes * 9 / 4);
}

TEST_CASE("a fused step on the CPU computes exponentials once", "[fuse]") {
  const auto function = [](const Tensors& a) {
    const Tensor scores = requires_grad_(detach(a[0]));
    const Tensor weights = cast(softmax(cast(scores, f32), 1), bf16);
    const Tensor loss = sum(square(matmul(weights, a[1])) * a[2]);
    return Tensors{grad(loss, scores), loss};
  };
  const Tensors arguments = {noise({96, 64}, 1, bf16), noise({64, 32}, 2, bf16),
                             noise({96, 32}, 3, bf16)};
  auto step = compile(function, {.mode = Mode::fused});
  const Tensors got = step(arguments);
  CHECK(bits_of(got) == bits_of(function(arguments)));
  const std::string text = step.graph_text();
  INFO(text);
  // The CPU computes exponentials once: the gradient reads the quotients in f32.
  CHECK(lines_with(text, {"f32[96, 64] = fused"}) == 0);
  CHECK(lines_with(text, {"f32[96, 64],", "= fused", "max", "exp"}) == 1);
  CHECK(lines_with(text, {"= fused", "exp"}) == 1);
}

// How often a kernel's text computes a function of one element.
std::ptrdiff_t times_computed(const std::string& source, const std::string& name) {
  const std::regex definition(R"(BRRR_FN T (op\d+)\(T a\) \{\s*return )" + name + R"(\(a\);)");
  std::ptrdiff_t times = 0;
  for (std::sregex_iterator at(source.begin(), source.end(), definition), end; at != end; ++at) {
    const std::regex use((*at)[1].str() + "<");
    times += std::distance(std::sregex_iterator(source.begin(), source.end(), use), end);
  }
  return times;
}

TEST_CASE("the CPU computes a function of an element once, however long the row", "[fuse]") {
  std::ptrdiff_t generated = 0;
  for (const auto& [shape, dim] : std::vector<std::pair<Dims, int>>{
           {{40000, 7}, 0}, {{3, 70, 9}, 1}, {{2, 140000}, 1}, {{64, 9000}, 1}}) {
    for (const DType dtype : {f32, bf16}) {
      const auto function = [dim = dim](const Tensors& a) {
        return Tensors{softmax(tanh(a[0]), dim)};
      };
      const Tensors arguments = {noise(shape, 1, dtype)};
      auto step = compile(function, {.mode = Mode::fused});
      CHECK(bits_of(step(arguments)) == bits_of(function(arguments)));
      INFO(step.graph_text());
      for (const GeneratedKernel& kernel : step.kernels()) {
        for (const char* name : {"tanh", "exp"}) {
          const std::ptrdiff_t times = times_computed(kernel.source, name);
          CHECK(times <= 1);
          generated += times;
        }
      }
    }
  }
  CHECK(generated >= 8);  // of 16: the others are kernels of their own
}

TEST_CASE("the gradient of a softmax reads its result alone", "[fuse]") {
  for (const DType dtype : {f32, bf16}) {
    const auto function = [](const Tensors& a) {
      const Tensor scores = requires_grad_(a[0] * 2.0);
      const Tensor loss = sum(square(matmul(softmax(scores, 1), a[1])) * a[2]);
      return Tensors{grad(loss, scores), loss};
    };
    const Tensors arguments = {noise({96, 64}, 1, dtype), noise({64, 32}, 2, dtype),
                               noise({96, 32}, 3, dtype)};
    auto step = compile(function, {.mode = Mode::fused});
    CHECK(bits_of(step(arguments)) == bits_of(function(arguments)));
    const std::vector<GeneratedKernel> kernels = step.kernels();
    INFO(step.graph_text());
    CHECK(std::ranges::count_if(kernels, [](const GeneratedKernel& kernel) {
            return std::ranges::count(kernel.calls, "exp") > 0;
          }) == 1);
  }
}

// Exponentials stay, since a product reads them; the gradient's kernel still has no use for them.
TEST_CASE("a kernel does not read what follows from its other operands", "[fuse]") {
  const auto function = [](const Tensors& a) {
    const Tensor x = requires_grad_(detach(a[0]));
    const Tensor loss = sum(square(matmul(relu(x), a[1])) * a[2]) + sum(sin(x));
    return Tensors{grad(loss, x), loss};
  };
  const Tensors arguments = {noise({96, 64}, 1), noise({64, 32}, 2), noise({96, 32}, 3)};
  auto step = compile(function, {.mode = Mode::fused});
  const Tensors got = step(arguments);
  CHECK(bits_of(got) == bits_of(function(arguments)));
  const std::vector<GeneratedKernel> kernels = step.kernels();
  const auto gradient = std::ranges::find_if(kernels, [](const GeneratedKernel& kernel) {
    return std::ranges::count(kernel.calls, "cos") > 0;
  });
  REQUIRE(gradient != kernels.end());
  INFO(step.graph_text());
  CHECK(std::ranges::count(gradient->calls, "relu") == 1);
  CHECK(std::ranges::count_if(gradient->reads, [](const std::string& read) {
          return read.find("f32[96, 64]") != std::string::npos &&
                 read.find("by [") == std::string::npos;
        }) == 2);  // x and the gradient of relu
}

// The gradient of a sum does not depend on the sum.
TEST_CASE("a chain and its gradient are one kernel that keeps nothing", "[fuse]") {
  const Tensor x = requires_grad_(noise({300, 70}, 1));
  const auto function = [&] {
    zero_grad(x);
    Tensor h = x;
    for (int round = 0; round < 10; ++round) h = tanh(h) * 1.5 + sin(h);
    const Tensor loss = sum(h);
    backward(loss);
    return detach(loss);
  };
  const Tensors wanted = {clone(function()), clone(grad(x))};
  auto step = compile(function, {.mode = Mode::fused});
  const Tensor loss = step();
  CHECK(bits_of({loss, grad(x)}) == bits_of(wanted));
  INFO(step.explain());
  const CompiledEntry entry = step.report().entries.at(0);
  CHECK(entry.nodes == 1);
  CHECK(entry.arena_bytes < 4096);
}

TEST_CASE("a sum in f64 of what is transposed has eager's bits", "[fuse]") {
  const auto check = [](auto function) {
    const Tensors arguments = {noise({70, 50}, 1, f64), noise({50, 70}, 2, f64)};
    auto step =
        compile([&](const Tensors& a) { return Tensors{function(a)}; }, {.mode = Mode::fused});
    CHECK(bits_of(step(arguments)) == bits_of(Tensors{function(arguments)}));
    CHECK(step.report().entries.at(0).nodes == 1);
  };
  check([](const Tensors& a) { return sum(transpose(a[0], 0, 1) * 1.7, {1}); });
  check([](const Tensors& a) { return sum(contiguous(transpose(exp(a[0]), 0, 1)), {1}); });
  check([](const Tensors& a) { return sum(transpose(a[0], 0, 1) * a[1], {0, 1}); });
}

// Eager sums squares of a contiguous temporary by columns, but the transposed tensor by rows.
TEST_CASE("reductions that eager takes in different orders have eager's bits", "[fuse]") {
  const auto check = [](auto function, int nodes) {
    const Tensors arguments = {noise({64, 130}, 1, f64), noise({130, 64}, 2, f64)};
    auto step =
        compile([&](const Tensors& a) { return Tensors{function(a)}; }, {.mode = Mode::fused});
    CHECK(bits_of(step(arguments)) == bits_of(Tensors{function(arguments)}));
    INFO(step.explain());
    CHECK(step.report().entries.at(0).nodes == nodes);
  };
  check([](const Tensors& a) { return var(transpose(a[0], 0, 1), {0}); }, 2);
  check([](const Tensors& a) { return var(a[1], {0}); }, 1);
  // A row is 64 adjacent elements in both, whatever the distance to the next.
  check([](const Tensors& a) { return var(slice(a[0], 1, 5, 69), {1}); }, 1);
}

TEST_CASE("a result in the memory of an operand is stored after all reads of the operand",
          "[fuse]") {
  for (const std::int64_t n : {64, 65}) {  // in whole vectors, and not
    for (const DType dtype : {f32, f64, bf16}) {
      INFO(n << " " << name_of(dtype));
      const Tensor start = abs(noise({n, 8}, 1, dtype));
      const auto in_place = [](Tensor& state) {
        const Tensor before = clone(state);
        exp_(state);
        return pow(state, before);
      };
      Tensor eager_state = clone(start), fused_state = clone(start);
      auto step = compile([&] { return in_place(fused_state); }, {.mode = Mode::fused});
      for (int call = 0; call < 2; ++call) {
        const bool same = bits_of(step()) == bits_of(in_place(eager_state)) &&
                          bits_of(fused_state) == bits_of(eager_state);
        CHECK(same);
      }
      const Tensor w = noise({8, 64}, 2, dtype) * 0.1, a = noise({64, 8}, 3, dtype);
      const auto planned = [&](const Tensor& x) {
        const Tensor u = matmul(x, w), y = exp(u * 1.0);
        return matmul(y, a) + matmul(pow(y, u), a);
      };
      const auto of_two_types = [&](const Tensor& x) {
        const Tensor u = matmul(x, w), y = exp(u);
        return matmul(y, a) + cast(matmul(exp(cast(u, f64)), cast(a, f64)), dtype);
      };
      const auto check = [&](auto function) {
        auto fused = compile(function, {.mode = Mode::fused});
        const bool same = bits_of(fused(start)) == bits_of(function(start));
        CHECK(same);
      };
      check(planned);
      check(of_two_types);
    }
  }
}

TEST_CASE("a number that a kernel stores is stored in every tile", "[fuse]") {
  const Tensor x = noise({300, 16}, 1);  // several tiles
  Tensor state = noise({300, 16}, 2);
  auto step = compile(
      [&](const Tensor& v) {
        fill_(state, 3.0);
        return v + state;
      },
      {.mode = Mode::fused});
  const Tensor sum = step(x);
  REQUIRE(step.kernels().size() == 1);
  const bool stored = bits_of(state) == bits_of(full({300, 16}, 3.0));
  const bool read = bits_of(sum) == bits_of(x + 3.0);
  CHECK(stored);
  CHECK(read);
}

TEST_CASE("eight dimensions are reduced in one kernel", "[fuse]") {
  // Each repeated dimension is two of the kernel's.
  const auto function = [](const Tensor& x) { return sum(abs(repeat(x, {2, 2, 2, 2}))); };
  const Tensor x = noise({3, 3, 17, 3}, 1);
  auto step = compile(function, {.mode = Mode::fused});
  const Tensor fused = step(x);
  REQUIRE(step.kernels().size() == 1);
  const bool same = bits_of(fused) == bits_of(function(x));
  CHECK(same);
}

TEST_CASE("Adam fuses with the gradients that it reads, without a compiler as well", "[fuse]") {
  const Interpreted interpreted;
  const Tensor x = noise({64}, 1);
  const auto trained = [&](Mode mode) {
    Tensor p = requires_grad_(noise({64}, 2));
    optim::Optimizer optimizer({p}, optim::adam(1e-2));
    auto step = compile(
        [&] {
          optimizer.zero_grad();
          const Tensor loss = sum(p * x);
          backward(loss);
          optimizer.step();
          return detach(loss);
        },
        {.mode = mode, .fallback = OnFallback::refuse});
    for (int i = 0; i < 3; ++i) step();
    return bits_of(p);
  };
  const bool same = trained(Mode::fused) == trained(Mode::eager);
  CHECK(same);
}

}  // namespace brrr::test
