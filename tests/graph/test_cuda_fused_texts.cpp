// The texts of generated kernels of fused steps: a fixed set is compared with files, and every
// kernel of the fused test programs compiles for both architectures. Nothing here needs a GPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

#include "brrr/graph/compile.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/cuda_api.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/cubin.h"
#include "tests/harness/fused_programs.h"
#include "tests/harness/golden_file.h"
#include "tests/harness/kernel_sources.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/skip.h"

namespace brrr::test {
namespace {

struct Golden {
  const char* name;  // of the files
  DType dtype;
  std::vector<Dims> arguments;
  std::function<Tensors(const Tensors&)> function;
  bool on_cpu = true;  // else the CPU walks it as it does another one, or the library does
};

// One for each walk: rows, elements, columns, tiles of a transposed operand; small products and
// products in tiles.
const std::vector<Golden> kGolden = {
    {"softmax", f32, {{64, 256}}, [](const Tensors& a) { return Tensors{softmax(a[0], 1)}; }},
    {"gelu_chain",
     bf16,
     {{64, 256}, {256}, {64, 256}},
     [](const Tensors& a) { return Tensors{gelu_tanh(a[0] + a[1]) * 0.5 + a[2]}; },
     false},
    {"sum_of_columns",
     bf16,
     {{1024, 512}, {1024, 512}},
     [](const Tensors& a) { return Tensors{sum(a[0] * tanh(a[1]), {0})}; }},
    {"transposed",
     f32,
     {{512, 512}, {512, 512}},
     [](const Tensors& a) { return Tensors{transpose(exp(a[0]), 0, 1) + a[1]}; },
     false},
    {"small_product_of_computed_factors",
     f32,
     {{64, 32}, {48, 32}, {48, 1}},
     [](const Tensors& a) {
       const Tensor weight = cast(a[1] * a[2], bf16);
       return Tensors{matmul(cast((a[0] - 0.5) * 2.0, bf16), transpose(weight, 0, 1))};
     },
     false},
    {"product_in_tiles_and_residual",
     bf16,
     {{256, 512}, {512, 512}, {512}, {256, 512}},
     [](const Tensors& a) { return Tensors{affine(a[0], transpose(a[1], 0, 1), a[2]) + a[3]}; },
     false},
};

const std::pair<const char*, const char*> kHandWritten[] = {
    {sources::matmul_tiles_instructions_inl, "matmul_tiles_instructions.inl"},
    {sources::matmul_tiles_geometry_inl, "matmul_tiles_geometry.inl"},
    {sources::matmul_tiles_a_in_shared_inl, "matmul_tiles_a_in_shared.inl"},
    {sources::matmul_tiles_a_in_registers_inl, "matmul_tiles_a_in_registers.inl"},
    {sources::matmul_tiles_epilogue_inl, "matmul_tiles_epilogue.inl"},
    {sources::matmul_tiles_product_inl, "matmul_tiles_product.inl"},
    {sources::matmul_tiles_cu, "matmul_tiles.cu"},
    {sources::matmul_small_cu, "matmul_small.cu"}};

// With the name of a text in place of it.
void name_text(std::string& source, std::string_view text, std::string_view name) {
  for (std::size_t at = 0; (at = source.find(text, at)) != source.npos; at += name.size())
    source.replace(at, text.size(), "// [" + std::string(name) + "]\n");
}

// The texts of a fused step's kernels, without what is written by hand in them.
std::string text_of(const Golden& golden, Device device) {
  Tensors arguments;
  for (const Dims& shape : golden.arguments)
    arguments.push_back(empty(shape, {.dtype = golden.dtype, .device = device}));
  if (device.is_cpu()) {
    for (Tensor& x : arguments) fill_(x, 0);
  }
  auto step = compile(golden.function, {.mode = Mode::fused, .fallback = OnFallback::refuse});
  step(arguments);
  std::string text;
  for (const GeneratedKernel& kernel : step.kernels()) {
    text += "// kernel of";
    for (const std::string& call : kernel.calls) text += " " + call;
    text += "\n" + kernel.source;
  }
  for (const auto& [hand_written, name] : kHandWritten) name_text(text, hand_written, name);
  CHECK_FALSE(text.empty());
  return text;
}

// Of "_ZN4brrr3k12...", an entry of joined texts: 12.
std::size_t number_of(const std::string& entry) {
  const std::size_t at = entry.find("4brrr") + 5, k = entry.find('k', at);
  const std::size_t digits = std::stoul(entry.substr(at, k - at)) - 1;
  return std::stoul(entry.substr(k + 1, digits));
}

void check_kernels(const std::string& name, const std::string& text) {
  testing::check_golden("kernels/" + name, text, "golden_kernels");
}

}  // namespace

TEST_CASE("kernels of a fixed set of steps have the texts of their files on the CPU",
          "[fuse][golden_kernels]") {
  for (const Golden& golden : kGolden) {
    if (golden.on_cpu) check_kernels(std::string(golden.name) + ".cpu", text_of(golden, cpu));
  }
}

TEST_CASE("kernels of a fixed set of steps have the texts of their files on CUDA",
          "[fuse][golden_kernels]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  for (const Golden& golden : kGolden) {
    check_kernels(std::string(golden.name) + ".cuda", text_of(golden, cuda(0)));
  }
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("there is no file of a text that nobody compares", "[fuse][golden_kernels]") {
  std::set<std::string> wanted;
  for (const Golden& golden : kGolden) {
    if (golden.on_cpu) wanted.insert(std::string(golden.name) + ".cpu.txt");
    wanted.insert(std::string(golden.name) + ".cuda.txt");
  }
  CHECK(testing::golden_files_in("kernels") == wanted);
}

TEST_CASE("fused programs and products become as many kernels on CUDA as they say", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  count_fused_kernels(cuda(0));
  CHECK(fake.problem() == "");
}

TEST_CASE("sums of what is drawn and gathered are scheduled on CUDA", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  for (const int dim : {0, 1}) {
    auto step = compile(
        [dim](const Tensor& x, const Tensor& index) {
          return std::tuple(sum(dropout(x, 0.5), {dim}), sum(gather(x, 1, index), {dim}),
                            sum(rand_like(x), {dim}));
        },
        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    step(empty({640, 96}, {.device = cuda(0)}),
         empty({640, 96}, {.dtype = i64, .device = cuda(0)}));
    CHECK(step.report().entries.at(0).nodes == 4);
  }
  release_random_state();
  CHECK(fake.problem() == "");
}

TEST_CASE("functions with a guard compile in all passes over rows and columns", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  for (const DType dtype : {f32, bf16, f64}) {
    for (const int dim : {0, 1}) {
      auto step = compile(
          [dim](const Tensor& x) {
            return std::tuple(sum(cos(x), {dim}), softmax(sin(x) * 2.0, dim) * cos(x),
                              transpose(sin(cos(x)), 0, 1));
          },
          {.mode = Mode::fused, .fallback = OnFallback::refuse});
      step(empty({640, 96}, {.dtype = dtype, .device = cuda(0)}));
      bool guarded = false;
      for (const GeneratedKernel& kernel : step.kernels())
        guarded |= kernel.source.find("Exact guard;") != std::string::npos;
      CHECK(guarded == (dtype != f64));
    }
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("vectors of whole Philox blocks draw without looking for their block", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  // The first columns of what is drawn.
  const auto draws_whole_blocks = [](const Dims& shape, DType dtype, std::int64_t more = 0) {
    auto step = compile(
        [more](const Tensor& x) {
          Dims drawn(x.shape());
          drawn[drawn.size() - 1] += more;
          const int last = x.rank() - 1;
          return narrow(rand(drawn, {x.dtype(), x.device()}), last, 0, x.size(last)) * x;
        },
        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    step(empty(shape, {.dtype = dtype, .device = cuda()}));
    const std::string source = step.kernels().at(0).source;
    CHECK(source.find("DrawCaches caches") != std::string::npos);
    return source.find("brrr_next_block") != std::string::npos;
  };
  for (const DType dtype : {f32, f64, bf16, f16}) {
    CHECK(draws_whole_blocks({64, 128}, dtype));
    CHECK(draws_whole_blocks({8}, dtype));
    CHECK_FALSE(draws_whole_blocks({9, 37}, dtype));
    CHECK(draws_whole_blocks({16, 8}, dtype, 4));
    CHECK_FALSE(draws_whole_blocks({16, 8}, dtype, 5));
  }
  release_random_state();
}

TEST_CASE("loops over long bodies are not unrolled", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  const auto is_unrolled = [](int rounds, bool reduces) {
    auto step = compile(
        [=](const Tensor& x) {
          Tensor h = x;
          for (int round = 0; round < rounds; ++round) h = tanh(h) * 1.5 + sin(h);
          return reduces ? std::pair(h, sum(h)) : std::pair(h, h * 2.0);
        },
        {.mode = Mode::fused, .fallback = OnFallback::refuse});
    step(empty({2048, 1024}, {.device = cuda()}));
    const std::vector<GeneratedKernel> kernels = step.kernels();
    REQUIRE(kernels.size() == 1);
    const std::string& source = kernels[0].source;
    const std::size_t loop = source.find("for (int e = 0;");
    REQUIRE(loop != std::string::npos);
    const std::size_t directive = source.rfind("#pragma unroll", loop);
    return source.compare(directive, 16, "#pragma unroll 1") != 0;
  };
  for (const bool reduces : {false, true}) {
    CHECK(is_unrolled(1, reduces));
    CHECK_FALSE(is_unrolled(20, reduces));
  }
}

TEST_CASE("a fused kernel on CUDA has registers and a source", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  {
    auto step = compile([](const Tensor& x) { return tanh(x * 2.0); }, {.mode = Mode::fused});
    step(empty({64}, {.device = cuda(0)}));
    const std::vector<GeneratedKernel> kernels = step.kernels();
    REQUIRE(kernels.size() == 1);
    CHECK(kernels[0].registers == 40);
    CHECK(kernels[0].local_bytes == 0);
    CHECK_THAT(kernels[0].source, Catch::Contains("extern \"C\" __global__"));
    CHECK_THAT(step.explain(), Catch::Contains(" us, 40 registers, no spills (at "));
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("on CUDA a short reduction does not store what others wait for", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  {
    auto step = compile(
        [](const Tensor& x) {
          const Tensor y = tanh(x);
          return std::pair(cumsum(y, 0), sum(y, {0}));
        },
        {.mode = Mode::fused});
    step(empty({40, 12}, {.device = cuda(0)}));
    CHECK(std::ranges::any_of(step.unfused(), [](const UnfusedEdge& edge) {
      return edge.why == WhyNotFused::delays_readers;
    }));
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("collected kernels are compiled together, and found by the loads that follow", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  {
    const Device device = cuda(0);
    const auto text_of = [](const char* name) {
      return std::string("extern \"C\" __global__ void ") + name + "() {}";
    };
    const char* const names[] = {"first", "second", "third"};
    jit::load_kernel(device, "first", text_of("first"));  // loaded before
    const std::size_t before = fake.compiled().size();
    jit::KernelCollection collection(device);
    for (int i = 0; i < 2; ++i) {
      for (const char* name : names) CHECK_FALSE(jit::load_kernel(device, name, text_of(name)));
    }
    CHECK(fake.compiled().size() == before);
    CHECK(collection.compile() == 2);
    CHECK(fake.compiled().size() == before + 2);
    for (const char* name : names) CHECK(jit::load_kernel(device, name, text_of(name)));
    CHECK(fake.compiled().size() == before + 2);
  }
  {
    // A text that does not compile is left to the load.
    jit::KernelCollection collection(cuda(0));
    jit::load_kernel(cuda(0), "bad", "#error");
    CHECK(collection.compile() == 0);
    CHECK_THROWS_WITH(jit::load_kernel(cuda(0), "bad", "#error"),
                      Catch::Contains("expected a kernel that compiles for sm_90"));
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("kernels of a fused step are compiled once, before the first is launched", "[fuse]") {
  const testing::NoDiskCache off;
  testing::FakeCuda fake({.with_nvrtc = true});
  testing::define_kernels(fake);  // of a graph's edges; generated ones do nothing
  {
    constexpr int kKernels = 6;  // a slice of what is also returned begins another one
    auto step = compile(
        [](const Tensor& x) {
          Tensors results;
          Tensor y = x;
          for (int i = 0; i < kKernels; ++i) {
            y = narrow(y, 0, 1, 20 - i);
            for (int k = 0; k <= i + 1; ++k) y = tanh(y);
            results.push_back(y);
          }
          return results;
        },
        {.mode = Mode::fused});
    const Tensor x = empty({21, 8}, {.device = cuda(0)});
    const auto generated = [&] {
      return std::ranges::count_if(fake.compiled(), [](const std::string& text) {
        return text.find("namespace of_fused") != std::string::npos;
      });
    };
    cu::count_calls(true);
    step(x);
    const std::int64_t launches =
        cu::call_count("cuLaunchKernelEx") + cu::call_count("cuLaunchKernel");
    cu::count_calls(false);
    CHECK(step.kernels().size() == kKernels);
    CHECK(generated() == kKernels);
    CHECK(launches >= kKernels);
    CHECK(launches < 2 * kKernels);  // some are copies of the argument and the results
    for (int i = 0; i < 2; ++i) step(x);
    CHECK(generated() == kKernels);
    for (const GeneratedKernel& kernel : step.kernels()) CHECK(kernel.registers == 40);
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("NVRTC gives the same cubins to threads side by side", "[fuse]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  const testing::NoDiskCache off;
  constexpr std::size_t kTexts = 4;
  std::string texts[kTexts], alone[kTexts], together[kTexts];
  for (std::size_t i = 0; i < kTexts; ++i) {
    texts[i] = "extern \"C\" __global__ void scale(float* x) { x[threadIdx.x] *= " +
               std::to_string(i + 2) + "; }";
    alone[i] = jit::compile_to_cubin(texts[i], 90);
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < kTexts; ++i)
      threads.emplace_back([&, i] { together[i] = jit::compile_to_cubin(texts[i], 90); });
  }
  for (std::size_t i = 0; i < kTexts; ++i) {
    CHECK_FALSE(alone[i].empty());
    CHECK(together[i] == alone[i]);
  }
}

TEST_CASE("every kernel of the fused programs compiles for sm_80 and sm_90", "[fuse][kernels]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  if (!in_this_part("fused")) return;  // all of them are one part
  std::vector<std::string> texts, names;
  {
    const testing::NoDiskCache off;
    testing::FakeCuda fake({.with_nvrtc = true});
    std::size_t seen = 0;
    std::set<std::string> known;
    run_fused_programs(cuda(0), [&](const std::string& name) {
      fake.run_all();
      const std::vector<std::string> all = fake.compiled();
      for (; seen < all.size(); ++seen) {
        if (!known.insert(all[seen]).second) continue;
        texts.push_back(testing::own_text(all[seen]));
        names.push_back(name);
      }
    });
    CHECK(fake.problem() == "");
  }
  CHECK(texts.size() > 40);
  const testing::NoDiskCache off;
  for (const int architecture : {80, 90}) {
    int registers = 0, local_bytes = 0, kernels = 0;
    std::string widest;
    constexpr std::size_t kTogether = 32;  // NVRTC reads its preludes once a program
    for (std::size_t i = 0; i < texts.size(); i += kTogether) {
      const std::size_t end = std::min(i + kTogether, texts.size());
      std::string cubin;
      CHECK_NOTHROW(cubin = jit::compile_to_cubin(
                        testing::joined(std::span(texts).subspan(i, end - i)), architecture));
      for (const testing::KernelResources& kernel : testing::resources_of(cubin)) {
        const std::string& name = names[i + number_of(kernel.entry)];
        INFO(name << " for sm_" << architecture);
        ++kernels;
        CHECK(kernel.registers <= 255);
        CHECK(kernel.shared_bytes <= 48 * 1024);
        CHECK(kernel.local_bytes <= 32);  // around the slow paths of a division and of sin
        if (kernel.registers > registers) widest = name;
        registers = std::max(registers, kernel.registers);
        local_bytes = std::max(local_bytes, kernel.local_bytes);
      }
    }
    CHECK(kernels >= static_cast<int>(texts.size()));
    std::printf(
        "%d kernels of fused programs for sm_%d: at most %d registers (%s), %d bytes of "
        "stack and spills\n",
        kernels, architecture, registers, widest.c_str(), local_bytes);
  }
}

}  // namespace brrr::test
