// Generated kernels: every row of the op table compiles for every type, layout and architecture; the caches; the
// kernels that the system's compiler makes. Nothing here needs a GPU; what needs NVRTC is skipped without it.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "ops/jit/cpu_compiler.h"
#include "ops/jit/disk_cache.h"
#include "ops/jit/geometry.h"
#include "ops/jit/render.h"
#include "tensor/error.h"
#include "tests/catch.h"
#if BRRR_HAS_CUDA
#include "ops/jit/compiler.h"
#include "tensor/cuda_api.h"
#endif

using namespace brrr;
using namespace brrr::jit;

namespace {

OpInfo row(const char* name, OpKind kind, int arity, DTypeSet types, DTypeRule rule, const char* expression) {
  OpInfo info;
  info.name = name;
  info.kind = kind;
  info.arity = static_cast<std::int8_t>(arity);
  info.types = types;
  info.rule = rule;
  info.expression = expression;
  return info;
}

// The rows as the table has them, without their kernels.
std::vector<OpInfo> all_rows() {
  std::vector<OpInfo> rows;
#define POINTWISE(name, arity, types, rule, expression) \
  rows.push_back(row(#name, OpKind::pointwise, arity, dtype_sets::types, DTypeRule::rule, #expression));
#define UNARY(name, types, rule, low, high, expression) POINTWISE(name, 1, types, rule, expression)
#define BINARY(name, types, rule, low, high, expression) POINTWISE(name, 2, types, rule, expression)
#define TERNARY(name, types, rule, low, high, expression) POINTWISE(name, 3, types, rule, expression)
#define REDUCTION(name, types, rule, map, identity_, combine_, finish_)                             \
  rows.push_back(row(#name, OpKind::reduction, 1, dtype_sets::types, DTypeRule::rule, #map)); \
  rows.back().identity = #identity_;                                                                \
  rows.back().combine = #combine_;                                                                  \
  rows.back().finish = #finish_;
#define ARG_REDUCTION(name, before) \
  rows.push_back(row(#name, OpKind::arg_reduction, 1, dtype_sets::all, DTypeRule::same, #before));
#include "dispatch/ops.def"
#undef POINTWISE
  return rows;
}

const OpInfo& row_named(std::string_view name) {
  static const std::vector<OpInfo> rows = all_rows();
  for (const OpInfo& info : rows) {
    if (info.name == name) return info;
  }
  throw Error("no row " + std::string(name));
}

std::vector<DType> dtypes_of(const OpInfo& info) {
  std::vector<DType> list;
  for (int i = 0; i < kDTypes; ++i) {
    if (contains(info.types, static_cast<DType>(i))) list.push_back(static_cast<DType>(i));
  }
  return list;
}

DType result_of(const OpInfo& info, DType dtype) {
  if (info.rule == DTypeRule::predicate) return boolean;
  if (info.rule == DTypeRule::widened && !is_floating(dtype)) return i64;
  return dtype;
}

KernelSpec flat_spec(const OpInfo& info, DType dtype, std::uint8_t scalars = 0) {
  std::vector<DType> inputs;
  for (int i = 0; i < info.arity; ++i) {
    if (!(scalars >> i & 1)) inputs.push_back(i == 0 && info.rule == DTypeRule::select ? boolean : dtype);
  }
  KernelSpec spec = pointwise_spec(info, dtype, scalars, inputs, result_of(info, dtype));
  spec.width = widest_access(spec);
  spec.unroll = 2;
  return spec;
}

// A directory for one test's cache; the environment is as before when it goes.
class CacheDirectory {
 public:
  CacheDirectory() : path_(std::filesystem::temp_directory_path() / ("brrr-test-" + std::to_string(::getpid()))) {
    if (const char* before = std::getenv("BRRR_CACHE_DIR")) before_ = before;
    std::filesystem::remove_all(path_);
    ::setenv("BRRR_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheDirectory() {
    if (before_.empty()) {
      ::unsetenv("BRRR_CACHE_DIR");
    } else {
      ::setenv("BRRR_CACHE_DIR", before_.c_str(), 1);
    }
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> list;
    if (!std::filesystem::exists(path_)) return list;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) list.push_back(entry.path());
    return list;
  }

 private:
  std::filesystem::path path_;
  std::string before_;
};

}  // namespace

// --- Spaces ----------------------------------------------------------------------------------------------------------

TEST_CASE("spaces take their simplest form", "[jit]") {
  const auto space_of = [](Dims shape, std::vector<std::pair<Dims, Dims>> operands) {
    Space space;
    for (std::int64_t size : shape) space.add_dim(size);
    for (const auto& [dims, strides] : operands) add_operand(space, dims, strides);
    sort_dims(space);
    coalesce(space);
    return space;
  };
  SECTION("contiguous operands have one dimension") {
    const Space space = space_of({2, 3, 4}, {{{2, 3, 4}, {12, 4, 1}}, {{2, 3, 4}, {12, 4, 1}}});
    CHECK(space.rank == 1);
    CHECK(space.size[0] == 24);
    CHECK(space.stride[1][0] == 1);
  }
  SECTION("so have operands that are permuted alike") {
    const Space space = space_of({4, 3, 2}, {{{4, 3, 2}, {1, 4, 12}}, {{4, 3, 2}, {1, 4, 12}}});
    CHECK(space.rank == 1);
    CHECK(space.size[0] == 24);
  }
  SECTION("a row that is broadcast keeps two") {
    const Space space = space_of({5, 6, 7}, {{{5, 6, 7}, {42, 7, 1}}, {{7}, {1}}});
    CHECK(space.rank == 2);
    CHECK(space.size[0] == 30);
    CHECK(space.size[1] == 7);
    CHECK(space.stride[1][0] == 0);
    CHECK(space.stride[1][1] == 1);
  }
  SECTION("nothing but ones is one element") {
    const Space space = space_of({1, 1}, {{{1, 1}, {1, 1}}, {{}, {}}});
    CHECK(space.rank == 1);
    CHECK(space.count() == 1);
  }
  SECTION("vectors want sizes, strides and addresses that are multiples") {
    Space space = space_of({5, 12}, {{{5, 12}, {16, 1}}, {{5, 1}, {1, 1}}});
    const std::uint8_t sizes[] = {4, 4};
    const void* aligned[] = {reinterpret_cast<void*>(64), reinterpret_cast<void*>(4)};
    const void* shifted[] = {reinterpret_cast<void*>(72), reinterpret_cast<void*>(4)};
    CHECK(vector_width(space, aligned, sizes, 8) == 4);
    CHECK(vector_width(space, shifted, sizes, 8) == 2);
    space.stride[0][0] = 17;
    CHECK(vector_width(space, aligned, sizes, 8) == 1);
  }
}

TEST_CASE("multipliers divide", "[jit]") {
  for (std::int64_t size : {1, 2, 3, 7, 10, 64, 100, 641, 65535, 65537, 1000003, 0x3fffffff, 0x7fffffff}) {
    Space space;
    space.add_dim(size);
    space.operands = 1;
    space.stride[0][0] = 1;
    Geometry geometry;
    fill(geometry, space, 1);
    for (std::int64_t n : {std::int64_t{0}, size - 1, size, size + 1, 2 * size - 1, std::int64_t{12345678},
                           std::int64_t{0x7ffffffe}, std::int64_t{0x7fffffff}}) {
      if (n < 0 || n > 0x7fffffff) continue;
      const std::uint64_t high = (static_cast<std::uint64_t>(n) * geometry.multiplier[0]) >> 32;
      REQUIRE(static_cast<std::int64_t>((static_cast<std::uint32_t>(high) + static_cast<std::uint32_t>(n)) >> geometry.shift[0]) ==
              n / size);
    }
  }
}

TEST_CASE("a spec that cannot be rendered is refused", "[jit]") {
  KernelSpec spec = flat_spec(row_named("add"), f32);
  spec.values[2].operands[0] = 2;
  CHECK_THROWS_WITH(render_cuda(spec), "[add_f32] expected a kernel spec with values in order");
  KernelSpec sum = reduction_spec(row_named("sum"), f32, f32);
  sum.outputs[0].value = 0;
  CHECK_THROWS_WITH(render_cuda(sum), "[sum_f32] expected a kernel spec with outputs that are results");
}

// --- The disk cache --------------------------------------------------------------------------------------------------

TEST_CASE("entries of the disk cache come back whole or not at all", "[jit]") {
  CacheDirectory directory;
  const Hash128 key = hash_of("a key");
  std::string content;
  CHECK(disk_cache::read(key, "test", content) == disk_cache::Found::no);
  const std::string written(100000, 'x');
  disk_cache::write(key, "test", written);
  REQUIRE(disk_cache::read(key, "test", content) == disk_cache::Found::yes);
  CHECK(content == written);
  CHECK(disk_cache::read(hash_of("another"), "test", content) == disk_cache::Found::no);
  CHECK(directory.files().size() == 1);

  const std::string path = disk_cache::path_of(key, "test");
  SECTION("a changed byte") {
    for (const int at : {0, 9, 30, 500, 99999}) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.put('y');
      file.close();
      CHECK(disk_cache::read(key, "test", content) == disk_cache::Found::damaged);
      disk_cache::write(key, "test", written);
      CHECK(disk_cache::read(key, "test", content) == disk_cache::Found::yes);
    }
  }
  SECTION("a truncated or longer file") {
    for (const int size : {0, 10, 48, 50000, 100001, 200000}) {
      std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));
      CHECK(disk_cache::read(key, "test", content) == disk_cache::Found::damaged);
    }
  }
  SECTION("an entry of another key under this name") {
    disk_cache::write(hash_of("another"), "test", written);
    std::filesystem::copy_file(disk_cache::path_of(hash_of("another"), "test"), path,
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(disk_cache::read(key, "test", content) == disk_cache::Found::damaged);
  }
}

TEST_CASE("a cache that is off, or a directory that cannot be made, is not an error", "[jit]") {
  CacheDirectory directory;
  std::string content;
  ::setenv("BRRR_CACHE", "off", 1);
  disk_cache::write(hash_of("k"), "test", "content");
  CHECK(disk_cache::read(hash_of("k"), "test", content) == disk_cache::Found::no);
  CHECK(directory.files().empty());
  ::unsetenv("BRRR_CACHE");
  const std::string file = directory.path().string() + "-file";
  std::ofstream(file) << "in the way";
  ::setenv("BRRR_CACHE_DIR", (file + "/below").c_str(), 1);
  disk_cache::write(hash_of("k"), "test", "content");
  CHECK(disk_cache::read(hash_of("k"), "test", content) == disk_cache::Found::no);
  std::filesystem::remove(file);
}

TEST_CASE("many processes write one entry at a time", "[jit]") {
  CacheDirectory directory;
  const Hash128 key = hash_of("shared");
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool good = true;
      const std::string mine(50000, static_cast<char>('a' + i));
      for (int round = 0; round < 50; ++round) {
        disk_cache::write(key, "test", mine);
        std::string content;
        good &= disk_cache::read(key, "test", content) == disk_cache::Found::yes && content.size() == 50000 &&
                content.find_first_not_of(content[0]) == std::string::npos;
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(directory.files().size() == 1);
}

// --- Kernels for the CPU ---------------------------------------------------------------------------------------------

TEST_CASE("a pointwise op becomes a loop on the CPU", "[jit]") {
  CacheDirectory directory;
  OpInfo op = row("twice_and_one", OpKind::pointwise, 2, dtype_sets::numbers, DTypeRule::same, "a * K(2) + b");
  const auto loop = pointwise_loop(op, f32);
  const float a[] = {1, 2, 3}, b[] = {0.5f, 0.25f, -1};
  float out[3];
  const void* in[] = {a, b};
  loop(out, in, 3);
  CHECK(out[0] == 2.5f);
  CHECK(out[1] == 4.25f);
  CHECK(out[2] == 5.0f);
  CHECK(directory.files().size() == 1);
  CHECK(pointwise_loop(op, f32) == loop);

  const auto integers = pointwise_loop(op, i64);
  std::int64_t whole[] = {1, std::int64_t{1} << 40};
  const void* both[] = {whole, whole};
  integers(whole, both, 2);
  CHECK(whole[0] == 3);
  CHECK(whole[1] == 3 * (std::int64_t{1} << 40));
}

TEST_CASE("loops on the CPU convert halves as tensor/half.h does", "[jit]") {
  CacheDirectory directory;
  KernelSpec spec = copy_spec(f32, bf16);
  spec.name = "to_bf16";
  KernelSpec back = copy_spec(f16, f32);
  back.name = "from_f16";
  KernelSpec forth = copy_spec(f32, f16);
  forth.name = "to_f16";
  // Wrapped in namespaces, since each has functions of the same names.
  const std::string source = "namespace k0 {\n" + render_cpu(spec) + "}\nnamespace k1 {\n" + render_cpu(back) + "}\nnamespace k2 {\n" +
                             render_cpu(forth) + "}\n";
  using Loop = void (*)(void*, const void* const*, std::int64_t);
  const auto to_bf16 = reinterpret_cast<Loop>(load_cpu_function("to_bf16", source));
  const auto from_f16 = reinterpret_cast<Loop>(load_cpu_function("from_f16", source));
  const auto to_f16 = reinterpret_cast<Loop>(load_cpu_function("to_f16", source));
  std::vector<float> values;
  for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); u += 65521) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
  for (float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65504.0f, 65519.9f, 65520.0f, 1e-8f, 0x1p-24f, 0x1p-25f}) values.push_back(special);
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::uint16_t> halves(values.size());
  const void* in[] = {values.data()};
  to_bf16(halves.data(), in, n);
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) wrong += halves[i] != BFloat16(values[i]).bits;
  to_f16(halves.data(), in, n);
  for (std::size_t i = 0; i < values.size(); ++i) wrong += halves[i] != Float16(values[i]).bits;
  CHECK(wrong == 0);
  std::vector<std::uint16_t> all(65536);
  std::vector<float> widened(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const void* from[] = {all.data()};
  from_f16(widened.data(), from, 65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Float16 half;
    half.bits = all[i];
    const auto expected = static_cast<float>(half);
    wrong += std::isnan(expected) ? !std::isnan(widened[i]) : std::bit_cast<std::uint32_t>(widened[i]) != std::bit_cast<std::uint32_t>(expected);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a missing compiler and a text that does not compile are explained", "[jit]") {
  CacheDirectory directory;
  const std::string before = std::getenv("CXX") ? std::getenv("CXX") : "";
  ::setenv("CXX", "no-such-compiler", 1);
  CHECK_THROWS_WITH(load_cpu_function("f", "extern \"C\" void f() {}\n"),
                    Catch::Contains("needs a C++ compiler for its CPU kernel, but \"no-such-compiler\" cannot be run"));
  before.empty() ? ::unsetenv("CXX") : ::setenv("CXX", before.c_str(), 1);
  CHECK_THROWS_WITH(load_cpu_function("f", "extern \"C\" void f() { this is not C++ }\n"),
                    Catch::Contains("expected a kernel that compiles") && Catch::Contains("this is not C++"));
}

// --- Kernels for CUDA ------------------------------------------------------------------------------------------------

#if BRRR_HAS_CUDA

namespace {

bool has_nvrtc() { return cu::open_library(cu::Library::nvrtc).empty(); }

// Many kernels in one source: NVRTC's start costs more than most of them.
class Batch {
 public:
  explicit Batch(int architecture) : architecture_(architecture) {}
  ~Batch() { flush(); }

  void add(KernelSpec spec) {
    spec.name += "_" + std::to_string(number_++);
    text_ += "namespace k" + std::to_string(number_) + " {\n" + render_cuda(spec) + "}\n";
    if (++waiting_ == 24) flush();
  }
  void flush() {
    if (waiting_ == 0) return;
    std::string cubin;
    CHECK_NOTHROW(cubin = compile_to_cubin(text_, architecture_));
    for (const KernelResources& kernel : resources_of(cubin)) {
      ++kernels;
      INFO(kernel.entry);
      CHECK(kernel.registers > 0);
      CHECK(kernel.registers <= 255);
      CHECK(kernel.shared_bytes <= 48 * 1024);
    }
    text_.clear();
    waiting_ = 0;
  }
  int kernels = 0;

 private:
  int architecture_, number_ = 0, waiting_ = 0;
  std::string text_;
};

enum class Variant { flat, scalars, narrow, rows, wide, turned };
constexpr int kVariants = 6;

KernelSpec variant_of(const OpInfo& info, DType dtype, Variant variant) {
  if (variant == Variant::scalars) {
    KernelSpec spec = flat_spec(info, dtype, static_cast<std::uint8_t>(((1 << info.arity) - 1) & ~1));
    return spec;
  }
  KernelSpec spec = flat_spec(info, dtype);
  switch (variant) {
    case Variant::narrow:
      spec.width = std::max(1, spec.width / 2);
      spec.unroll = 1;
      break;
    case Variant::rows:
      spec.walk = Walk::strided;
      spec.rank = 2;
      spec.inputs.back().access = Access::broadcast;
      break;
    case Variant::wide:
      spec.walk = Walk::strided;
      spec.rank = 5;
      spec.width = 1;
      spec.wide = true;
      break;
    case Variant::turned:
      spec.walk = Walk::tiled;
      spec.rank = 3;
      spec.width = 1;
      spec.tile = size_of(dtype) <= 4 ? 64 : 32;
      spec.inputs.back().access = Access::transposed;
      break;
    default: break;
  }
  return spec;
}

}  // namespace

TEST_CASE("every pointwise row compiles for every type and layout", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  // All combinations take minutes: each row and type is compiled for both architectures in layouts that take turns.
  const bool all = std::getenv("BRRR_TEST_ALL") != nullptr;
  Batch old(80), now(90);
  int turn = 0;
  for (const OpInfo& info : all_rows()) {
    if (info.kind != OpKind::pointwise) continue;
    for (const DType dtype : dtypes_of(info)) {
      for (int v = 0; v < kVariants; ++v) {
        const auto variant = static_cast<Variant>(v);
        if (all || turn % kVariants == v) old.add(variant_of(info, dtype, variant));
        if (all || (turn + 3) % kVariants == v) now.add(variant_of(info, dtype, variant));
      }
      ++turn;
    }
  }
  old.flush();
  now.flush();
  CHECK(old.kernels >= turn);
  CHECK(now.kernels >= turn);
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("every reduction row compiles for every type and walk", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  const bool all = std::getenv("BRRR_TEST_ALL") != nullptr;
  Batch old(80), now(90);
  int turn = 0;
  for (const OpInfo& info : all_rows()) {
    if (info.kind == OpKind::pointwise) continue;
    for (const DType dtype : dtypes_of(info)) {
      for (int v = 0; v < 4; ++v) {
        KernelSpec spec = info.kind == OpKind::reduction ? reduction_spec(info, dtype, result_of(info, dtype))
                                                         : arg_reduction_spec(info, dtype);
        spec.walk = v < 2 ? Walk::rows : Walk::columns;
        const bool single = info.kind == OpKind::arg_reduction;
        spec.width = v % 2 == 0 ? std::min(widest_access(spec), single ? 8 : 16) : 1;
        spec.unroll = 4;
        spec.lanes = v == 0 ? 256 : v == 1 ? 8 : 32;
        spec.rank = v == 3 ? 3 : 1;
        spec.reduced_rank = v == 1 && !single ? 2 : 1;
        spec.wide = v == 3;
        if (all || turn % 4 == v) old.add(spec);
        if (all || (turn + 2) % 4 == v) now.add(spec);
      }
      ++turn;
    }
  }
  old.flush();
  now.flush();
  CHECK(old.kernels >= 3 * turn);
  CHECK(now.kernels >= 3 * turn);
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("conversions between all types compile", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  Batch batch(90);
  for (int from = 0; from < kDTypes; ++from) {
    for (int to = 0; to < kDTypes; ++to) {
      KernelSpec spec = copy_spec(static_cast<DType>(from), static_cast<DType>(to));
      spec.width = widest_access(spec);
      batch.add(spec);
    }
  }
  batch.flush();
  CHECK(batch.kernels == kDTypes * kDTypes);
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("specs of many ops are one kernel", "[jit]") {
  if (!has_nvrtc()) return;
  ::setenv("BRRR_CACHE", "off", 1);
  SECTION("a chain shares the function of equal expressions") {
    KernelSpec spec;
    spec.name = "cos_cos";
    int x = spec.add_input(f32);
    for (int i = 0; i < 2; ++i) x = add_pointwise(spec, row_named("cos"), f32, f32, {x});
    spec.add_output(x, f32);
    spec.width = 4;
    const std::string text = render_cuda(spec);
    CHECK(text.find("cos(a)") == text.rfind("cos(a)"));
    CHECK_FALSE(compile_to_cubin(text, 90).empty());
  }
  SECTION("x * 2 + 1, over and over, needs no more registers") {
    KernelSpec spec;
    spec.name = "linear";
    int x = spec.add_input(f32);
    const int two = spec.add_scalar(f32), one = spec.add_scalar(f32);
    for (int i = 0; i < 64; ++i) {
      x = add_pointwise(spec, row_named("mul"), f32, f32, {x, two});
      x = add_pointwise(spec, row_named("add"), f32, f32, {x, one});
    }
    spec.add_output(x, f32);
    spec.width = 4;
    spec.unroll = 2;
    const auto resources = resources_of(compile_to_cubin(render_cuda(spec), 90));
    REQUIRE(resources.size() == 1);
    CHECK(resources[0].registers <= 32);
    CHECK(resources[0].local_bytes == 0);
  }
  SECTION("several outputs, halves rounded as if stored") {
    KernelSpec spec;
    spec.name = "two";
    spec.strict = true;
    const int x = spec.add_input(bf16), y = spec.add_input(bf16);
    const int product = add_pointwise(spec, row_named("mul"), bf16, bf16, {x, y});
    const int sum = add_pointwise(spec, row_named("add"), bf16, bf16, {product, x});
    const int test = add_pointwise(spec, row_named("gt"), bf16, bf16, {sum, y});
    spec.add_output(sum, bf16);
    spec.add_output(test, boolean);
    spec.width = 8;
    const std::string text = render_cuda(spec);
    CHECK(text.find("rounded<bf16>") != std::string::npos);
    CHECK_FALSE(compile_to_cubin(text, 90).empty());
  }
  SECTION("expressions before and after two reductions") {
    KernelSpec spec;
    spec.name = "deviation";
    spec.walk = Walk::rows;
    const int x = spec.add_input(f32);
    const int square = add_pointwise(spec, row_named("square"), f32, f32, {x});
    const int mean = add_reduction(spec, row_named("mean"), f32, x);
    const int mean_square = add_reduction(spec, row_named("mean"), f32, square);
    const int mean_squared = add_pointwise(spec, row_named("square"), f32, f32, {mean});
    const int variance = add_pointwise(spec, row_named("sub"), f32, f32, {mean_square, mean_squared});
    spec.add_output(mean, f32);
    spec.add_output(add_pointwise(spec, row_named("sqrt"), f32, f32, {variance}), f32);
    spec.width = 4;
    spec.lanes = 256;
    CHECK(partial_size(spec) == 8);
    CHECK_FALSE(compile_to_cubin(render_cuda(spec), 90).empty());
    spec.walk = Walk::columns;
    spec.lanes = 32;
    CHECK_FALSE(compile_to_cubin(render_cuda(spec), 80).empty());
  }
  ::unsetenv("BRRR_CACHE");
}

TEST_CASE("a kernel that does not compile is shown with its lines", "[jit]") {
  if (!has_nvrtc()) return;
  CacheDirectory directory;
  CHECK_THROWS_WITH(compile_to_cubin("\nextern \"C\" __global__ void f(float* x) {\n  *x = nothing;\n}\n", 90),
                    Catch::Contains("expected a kernel that compiles for sm_90") && Catch::Contains("kernel(3)") &&
                        Catch::Contains("   3   *x = nothing;"));
  CHECK(directory.files().empty());
}

TEST_CASE("cubins are compiled once, and again when an entry is damaged", "[jit]") {
  if (!has_nvrtc()) return;
  CacheDirectory directory;
  const std::string source = "extern \"C\" __global__ void f(float* x) { *x = 1; }\n";
  const CompilerStats before = compiler_stats();
  const std::string cubin = compile_to_cubin(source, 90);
  CHECK(compile_to_cubin(source, 90) == cubin);
  CHECK(compiler_stats().compiled == before.compiled + 1);
  CHECK(compiler_stats().disk_hits == before.disk_hits + 1);
  REQUIRE(directory.files().size() == 1);

  SECTION("what decides the code is in the key") {
    compile_to_cubin(source, 80);
    compile_to_cubin(source, 90, {.fmad = true});
    compile_to_cubin(source + " ", 90);
    CHECK(compiler_stats().compiled == before.compiled + 4);
    CHECK(directory.files().size() == 4);
  }
  SECTION("damage") {
    std::filesystem::resize_file(directory.files()[0], 1000);
    CHECK(compile_to_cubin(source, 90) == cubin);
    CHECK(compiler_stats().compiled == before.compiled + 2);
    CHECK(compiler_stats().disk_refused == before.disk_refused + 1);
    CHECK(compile_to_cubin(source, 90) == cubin);
    CHECK(compiler_stats().compiled == before.compiled + 2);
  }
}

#endif  // BRRR_HAS_CUDA
