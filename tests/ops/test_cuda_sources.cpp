// Every text of a generated kernel that eager asks for compiles for both architectures. The op
// table is called over types and layouts on a fake device, whose compiler keeps what it is given;
// NVRTC then gets each text once, many to a program. Nothing here needs a GPU.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "brrr/ops/cuda/programmatic_launch.h"
#include "brrr/ops/cuda/transpose.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/random_state.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/kernel_sources.h"
#include "tests/harness/op_harness.h"
#include "tests/harness/skip.h"
#include "tests/harness/source_tree.h"

using namespace brrr;

namespace {

const Device device = cuda(0);

Tensor made(DType dtype, const Dims& shape) { return make_tensor(dtype, shape, device); }

// --- Layouts: the operand number `which` of `arity` ---

using Layout = Tensor (*)(DType, int which, int arity);

Tensor contiguous_small(DType dtype, int, int) { return made(dtype, {48, 64}); }
Tensor contiguous_large(DType dtype, int, int) { return made(dtype, {1 << 21}); }
// The first operand starts N elements after a boundary.
template <int N>
Tensor shifted(DType dtype, int which, int) {
  return which > 0 ? made(dtype, {3072}) : slice(made(dtype, {3072 + N}), 0, N, 3072 + N);
}
Tensor strided_vectors(DType dtype, int, int) { return slice(made(dtype, {48, 64}), 1, 0, 32); }
Tensor strided_elements(DType dtype, int, int) { return slice(made(dtype, {48, 64}), 1, 0, 31); }
Tensor strided_large(DType dtype, int, int) { return slice(made(dtype, {2048, 2048}), 1, 0, 1024); }
Tensor strided_deep(DType dtype, int, int) {
  return slice(slice(slice(made(dtype, {4, 6, 6, 8}), 1, 0, 5), 2, 0, 5), 3, 0, 6);
}
Tensor strided_wide(DType dtype, int, int) {
  const std::int64_t shape[] = {2, 64}, strides[] = {std::int64_t{1} << 31, 1};
  return make_view(made(dtype, {64}), shape, strides);
}
// Only the first or only the last operand is broadcast or transposed; a single one is both.
bool is_first(int which, int) { return which == 0; }
bool is_last(int which, int arity) { return which == arity - 1; }
bool is_any(int, int) { return true; }
template <auto is_chosen>
Tensor one_row(DType dtype, int which, int arity) {
  return is_chosen(which, arity) ? expand(made(dtype, {64}), {48, 64}) : made(dtype, {48, 64});
}
template <auto is_chosen>
Tensor one_column(DType dtype, int which, int arity) {
  return is_chosen(which, arity) ? expand(made(dtype, {48, 1}), {48, 64}) : made(dtype, {48, 64});
}
template <auto is_chosen>
Tensor transposed(DType dtype, int which, int arity) {
  return is_chosen(which, arity) ? transpose(made(dtype, {64, 48}), 0, 1) : made(dtype, {48, 64});
}

constexpr Layout kLayouts[] = {contiguous_small,     contiguous_large,     shifted<1>,
                               shifted<2>,           shifted<4>,           shifted<8>,
                               strided_vectors,      strided_elements,     strided_large,
                               strided_deep,         strided_wide,         one_row<is_first>,
                               one_row<is_last>,     one_column<is_first>, one_column<is_last>,
                               transposed<is_first>, transposed<is_last>,  transposed<is_any>};
constexpr Layout kLayoutsBesideNumbers[] = {contiguous_small, contiguous_large, shifted<1>,
                                            strided_elements, transposed<is_first>};

// --- Calls ---

std::vector<DType> dtypes_of(Op op) {
  std::vector<DType> list;
  for (const DType dtype : test::kAllDTypes) {
    if (contains(op_info(op).types, dtype)) list.push_back(dtype);
  }
  return list;
}

// Which of a row's operands its public functions take as numbers, as bits.
std::vector<unsigned> numbers_of(int arity) {
  if (arity == 1) return {0};
  return arity == 2 ? std::vector<unsigned>{0, 1, 2} : std::vector<unsigned>{0, 2, 4, 6};
}

void call_pointwise(const test::Pointwise& row, DType dtype, unsigned numbers, Layout layout) {
  const bool selects = op_info(row.op).rule == DTypeRule::select;
  std::vector<test::Operand> operands;
  for (int i = 0; i < row.arity; ++i) {
    if (numbers >> i & 1) {
      operands.push_back({{}, dtype == boolean ? Scalar(true) : Scalar(1)});
    } else {
      operands.push_back({layout(selects && i == 0 ? boolean : dtype, i, row.arity), {}});
    }
  }
  row.call(operands);
}

void call_pointwise_rows(testing::FakeCuda& fake) {
  for (const test::Pointwise& row : test::pointwise_ops()) {
    for (const DType dtype : dtypes_of(row.op)) {
      for (const unsigned numbers : numbers_of(row.arity)) {
        const std::span<const Layout> layouts =
            numbers ? std::span<const Layout>(kLayoutsBesideNumbers) : kLayouts;
        for (const Layout layout : layouts) {
          call_pointwise(row, dtype, numbers, layout);
          fake.run_all();
        }
      }
    }
  }
}

void call_conversions(testing::FakeCuda& fake) {
  for (const DType from : test::kAllDTypes) {
    for (const DType to : test::kAllDTypes) {
      for (const Layout layout : kLayouts) {
        const Tensor x = layout(from, 0, 1);
        Tensor contiguous_result = empty(Dims(x.shape()), {.dtype = to, .device = device});
        copy_(contiguous_result, x);
        fake.run_all();
      }
    }
  }
}

void call_creations(testing::FakeCuda& fake) {
  for (const DType dtype : test::kAllDTypes) {
    for (const std::int64_t size : {48, 2048}) {
      Tensor x = full({size, size}, 1, {.dtype = dtype, .device = device});
      Tensor part = slice(x, 1, 1, size);
      fill_(part, 0);
      tril(x);
      triu(x);
      if (dtype != boolean) arange(0, size * size, {.dtype = dtype, .device = device});
      fake.run_all();
    }
  }
}

// One operand and the dimensions that are reduced.
struct Reduced {
  Tensor x;
  Dims dims;
};
std::vector<Reduced> reduced_layouts(DType dtype) {
  const auto plain = [dtype](const Dims& shape) { return made(dtype, shape); };
  return {
      {plain({5, 32768}), {1}},                     // blocks a row
      {plain({300, 512}), {1}},                     // warps a row
      {plain({300, 12}), {1}},                      // parts of a warp
      {slice(plain({300, 101}), 1, 1, 100), {1}},   // rows of single elements
      {plain({4096, 1024}), {0, 1}},                // all, in parts
      {plain({4096, 1024}), {0}},                   // columns
      {plain({4, 1024}), {0}},                      // short columns, side by side
      {plain({100, 33}), {0}},                      // columns of single elements
      {plain({7, 9, 16}), {1}},                     // columns of two dimensions
      {slice(plain({6, 9, 16}), 1, 0, 8), {0, 2}},  // two dimensions reduced
      {transpose(plain({64, 100}), 0, 1), {1}},     // columns that look like rows
      {expand(plain({1}), {std::int64_t{1} << 16, std::int64_t{1} << 16}),
       {0, 1}},  // more than 2^31
      {expand(plain({3, 1, 1}), {3, std::int64_t{1} << 16, std::int64_t{1} << 16}), {1, 2}},
  };
}

void call_reductions(testing::FakeCuda& fake) {
  for (const test::Reduction& row : test::reduction_ops()) {
    for (const DType dtype : dtypes_of(row.op)) {
      for (const Reduced& reduced : reduced_layouts(dtype))
        row.over(reduced.x, reduced.dims, false);
      fake.run_all();
    }
  }
  for (const DType dtype : test::kAllDTypes) {
    sum(made(dtype, {2, 0, 3}), {1});
    for (const Reduced& reduced : reduced_layouts(dtype)) {
      argmax(reduced.x, static_cast<int>(reduced.dims[0]));
      argmin(reduced.x, static_cast<int>(reduced.dims[0]));
    }
    fake.run_all();
  }
}

// Numbers and tensors in their place change what the kernel takes; layouts how it walks, which one
// row shows for all.
void call_formulas(testing::FakeCuda& fake) {
  for (const test::FormulaRow& row : test::formula_rows()) {
    const Formula& body = op_info(row.op).formula;
    for (const auto& [first, other] :
         {std::pair{f32, f32}, std::pair{f64, f64}, std::pair{f16, f32}, std::pair{bf16, bf16}}) {
      const Tensor one = made(other, {});
      const std::vector<brrr::Operand> numbers(static_cast<std::size_t>(body.numbers()), 0.1),
          tensors(numbers.size(), one);
      const bool all_layouts = &row == &test::formula_rows().front();
      for (const Layout layout : std::span(kLayouts).first(all_layouts ? std::size(kLayouts) : 1)) {
        const Tensor written = contiguous(layout(first, 0, 4));
        std::vector<Tensor> elements = {written};
        for (int k = 1; k < body.elements; ++k) {
          elements.push_back(k < body.written ? made(other, Dims(written.shape()))
                                              : layout(first, 0, 1));
        }
        row.call(elements, numbers);
        row.call(elements, tensors);
        fake.run_all();
      }
    }
  }
}

// Every file of hand-written kernels but those of matrix products, which have tests of their own,
// in every form of its text.
void call_hand_written(testing::FakeCuda& fake) {
  const std::int64_t far = std::int64_t{1} << 31, two = 2, strides[] = {far, 1, 1, 1, 1, 1, 1, 1};
  const Dims eight = Dims::filled(8, two);
  for (const DType dtype : test::kAllDTypes) {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const Tensor x = made(dtype, {100, 4});
    checked(x, 0, 1);
    cumsum(x, 0);
    for (std::int64_t width = 1; width * size <= 16; width *= 2)
      index_select(made(dtype, {8, width}), 0, made(i64, {8}));
    const Tensor far_apart = make_view(made(dtype, {64}), eight, strides);
    const Tensor index = permute(made(i32, eight), {7, 6, 5, 4, 3, 2, 1, 0});
    gather(far_apart, 7, index);
    scatter_add(x, 0, made(i64, {100, 4}), x);
    scatter_add(made(dtype, eight), 0, index, far_apart);
    if (dtype == i32 || dtype == i64) matmul(x, transpose(x, 0, 1));
    if (is_floating(dtype)) {
      on_cuda::transpose_matrices({x.data(), x.data(), 4, 100, 4, 100, 0, 0, 1}, dtype,
                                  cu::current_stream(device));
      rand({64}, {dtype, device});
      randn({64}, {dtype, device});
    }
    fake.run_all();
    release_random_state();
  }
  for (std::int64_t bytes = 1; bytes <= 16; bytes *= 2) {
    const Tensor part = made(boolean, {2, bytes});
    cat({part, part}, 1);
  }
  fake.run_all();
}

// --- Compiling ---

// The texts that the fake device's compiler gets from some calls.
std::vector<std::string> texts_of(std::span<void (*const)(testing::FakeCuda&)> calls,
                                  int major = 9) {
  ::setenv("BRRR_CACHE", "off", 1);
  std::vector<std::string> texts;
  {
    testing::FakeCuda fake({.major = major, .with_nvrtc = true});
    for (const auto call : calls) call(fake);
    std::set<std::string> known;
    for (const std::string& whole : fake.compiled()) {
      if (known.insert(whole).second) texts.push_back(testing::own_text(whole));
    }
  }
  ::unsetenv("BRRR_CACHE");
  return texts;
}

std::vector<std::string> texts_of_eager(int major = 9) {
  constexpr void (*kCalls[])(testing::FakeCuda&) = {call_pointwise_rows, call_conversions,
                                                    call_creations, call_reductions, call_formulas};
  return texts_of(kCalls, major);
}

// The number of kernels; a program that does not compile is looked at text by text.
std::size_t compile(std::span<const std::string> texts, int architecture) {
  std::string cubin;
  try {
    cubin = jit::compile_to_cubin(testing::joined(texts), architecture);
  } catch (const Error& error) {
    if (texts.size() == 1) FAIL_CHECK(error.what());
    for (std::size_t i = 0; texts.size() > 1 && i < texts.size(); ++i)
      compile(texts.subspan(i, 1), architecture);
    return 0;
  }
  const auto kernels = testing::resources_of(cubin);
  for (const testing::KernelResources& kernel : kernels) {
    INFO(kernel.entry << " for sm_" << architecture);
    CHECK(kernel.registers > 0);
    CHECK(kernel.registers <= 255);
    CHECK(kernel.shared_bytes <= 48 * 1024);
  }
  return kernels.size();
}

}  // namespace

// Kernels of ours may be launched early: what they do before they wait is a race.
TEST_CASE("every kernel of ours begins by waiting for the one before it", "[cuda_sources]") {
  int kernels = 0;
  const auto check = [&](const std::string& text, const std::string& name) {
    constexpr std::string_view kEntry = "extern \"C\" __global__",
                               kWait = ") {\n  wait_for_previous_kernel();\n";
    for (std::size_t at = 0; (at = text.find(kEntry, at)) != std::string::npos; ++kernels) {
      at = text.find(") {\n", at);
      INFO(name << ": " << text.substr(at, 80));
      CHECK(text.compare(at, kWait.size(), kWait) == 0);
    }
  };
  for (const char* folder : {"ops/cuda", "graph"}) {
    for (const auto& file : std::filesystem::directory_iterator(testing::source_path(folder))) {
      if (file.path().extension() != ".cu") continue;
      std::ifstream in(file.path());
      check({std::istreambuf_iterator<char>(in), {}}, file.path().filename().string());
    }
  }
  CHECK(kernels >= 20);
  for (const std::string& text : texts_of_eager()) check(text, text.substr(0, 60));
  CHECK(kernels > 5000);
}

TEST_CASE("launches are early where the device can do it and the thread allows it",
          "[cuda_sources]") {
  using on_cuda::ProgrammaticLaunch;
  using on_cuda::ProgrammaticScope;
  const auto early_of_three = [](int major, std::optional<ProgrammaticLaunch> allowed) {
    testing::FakeCuda fake({.major = major, .with_nvrtc = true});
    long early = 0;
    {
      const Tensor x = made(f32, {64});
      synchronize(cuda(0));
      std::optional<ProgrammaticScope> here;
      if (allowed) here.emplace(*allowed);
      cu::count_calls(true);
      for (int i = 0; i < 3; ++i) cos(x);
      early = cu::call_count("cuLaunchKernelEx");
      CHECK(early + cu::call_count("cuLaunchKernel") == 3);
      cu::count_calls(false);
    }
    return early;
  };
  CHECK(early_of_three(9, {}) == 3);
  CHECK(early_of_three(9, ProgrammaticLaunch::never) == 0);
  CHECK(early_of_three(9, ProgrammaticLaunch::after_first) == 2);
  CHECK(early_of_three(8, {}) == 0);
  CHECK(early_of_three(8, ProgrammaticLaunch::always) == 0);
}

TEST_CASE("every text that eager asks for compiles for sm_80 and sm_90", "[kernels]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  std::vector<std::string> texts = texts_of_eager();
  CHECK(texts.size() > 5000);
  // Every kind of walk and access is among them.
  for (const char* piece :
       {"W = 16, U = 1,", "W = 8, U = 2,", "W = 1, U = 2,", "i64 count)", "RANK = 4,", "spread<W>",
        "TILE = 32,", "TILE = 64,", "locate<RANK, true>(space", "LANES = 4,", "LANES = 32,",
        "LANES = 256,", "REDUCED = 2,", "locate<RANK, true>(kept", "compute(float x0, bool& y0)",
        "stands_before", "one4", "__cluster_dims__(1, 8, 1)", "adam_step_f16"}) {
    INFO(piece);
    CHECK(std::any_of(texts.begin(), texts.end(), [piece](const std::string& text) {
      return text.find(piece) != std::string::npos;
    }));
  }
  constexpr std::size_t kTogether = 32;  // NVRTC reads its preludes once a program
  for (const int architecture : {90, 80}) {
    if (architecture == 80) texts = texts_of_eager(8);
    const std::size_t all = texts.size();
    std::erase_if(texts, [](const std::string& text) { return !test::in_this_part(text); });
    ::setenv("BRRR_CACHE", "off", 1);
    std::size_t kernels = 0;
    for (std::size_t i = 0; i < texts.size(); i += kTogether) {
      const std::span<const std::string> rest = std::span(texts).subspan(i);
      kernels += compile(rest.first(std::min(kTogether, rest.size())), architecture);
    }
    CHECK(kernels >= texts.size());
    std::printf("%zu of %zu texts: %zu kernels for sm_%d\n", texts.size(), all, kernels,
                architecture);
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("every hand-written kernel compiles", "[cuda_sources]") {
  if (const std::string why = cu::open_library(cu::Library::nvrtc); !why.empty()) {
    testing::skip(why);
    return;
  }
  constexpr void (*kCalls[])(testing::FakeCuda&) = {call_hand_written};
  const std::vector<std::string> texts = texts_of(kCalls);
  for (const auto& file : std::filesystem::directory_iterator(testing::source_path("ops/cuda"))) {
    // Products and attention have tests of their own.
    const std::string stem = file.path().stem().string();
    if (file.path().extension() != ".cu" || stem == "matmul_small" || stem == "matmul_tiles" ||
        stem.starts_with("attention"))
      continue;
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    INFO(file.path());
    CHECK(
        std::ranges::any_of(texts, [&](const std::string& each) { return each.ends_with(text); }));
  }
  for (const int architecture : {80, 90}) {
    for (const std::string& text : texts) {
      jit::KernelOptions options;
      options.random = text.find("#define DRAW") != std::string::npos;
      CHECK(jit::compile_to_cubin(text, architecture, options).size() > 0);
    }
  }
}
