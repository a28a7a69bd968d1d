// Generated kernels as far as they need no CUDA: geometries, bodies, the disk cache, kernels that
// the system's compiler makes.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "brrr/ops/jit/cpu_compiler.h"
#include "brrr/ops/jit/cpu_kernel.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render.h"
#include "brrr/tensor/error.h"
#include "tests/harness/catch.h"
#include "tests/harness/environment.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/jit_rows.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

// --- Geometries ---------------------------------------------------------------------------------

TEST_CASE("a geometry for vectors counts the last dimension in vectors", "[jit]") {
  StridedSpace space;
  space.add_dim(3);
  space.add_dim(8);
  add_operand(space, Dims{3, 8}, Dims{16, 1});
  add_operand(space, Dims{3, 1}, Dims{1, 1});
  Geometry geometry;
  fill(geometry, space, 4);
  CHECK(geometry.count == 6);
  CHECK(geometry.size[0] == 3);
  CHECK(geometry.size[1] == 2);
  CHECK(geometry.stride[0][0] == 16);
  CHECK(geometry.stride[0][1] == 4);
  CHECK(geometry.stride[1][0] == 1);
  CHECK(geometry.stride[1][1] == 0);
}

TEST_CASE("multipliers divide", "[jit]") {
  for (std::int64_t size :
       {1, 2, 3, 7, 10, 64, 100, 641, 65535, 65537, 1000003, 0x3fffffff, 0x7fffffff}) {
    StridedSpace space;
    space.add_dim(size);
    space.operands = 1;
    space.stride[0][0] = 1;
    Geometry geometry;
    fill(geometry, space, 1);
    for (std::int64_t n :
         {std::int64_t{0}, size - 1, size, size + 1, 2 * size - 1, std::int64_t{12345678},
          std::int64_t{0x7ffffffe}, std::int64_t{0x7fffffff}}) {
      if (n < 0 || n > 0x7fffffff) continue;
      const std::uint64_t high = (static_cast<std::uint64_t>(n) * geometry.multiplier[0]) >> 32;
      REQUIRE(static_cast<std::int64_t>(
                  (static_cast<std::uint32_t>(high) + static_cast<std::uint32_t>(n)) >>
                  geometry.shift[0]) == n / size);
    }
  }
}

TEST_CASE("a body that cannot be rendered is refused", "[jit]") {
  Body body = body_of(row_named("add"), f32);
  body.values[2].operands[0] = 2;
  CHECK_THROWS_WITH(render_cuda(body, {}), "[add_f32] expected a body with values in order");
  Body sum = reduction_body(row_named("sum"), f32, f32);
  CHECK_THROWS_WITH(render_cuda(sum, {}), "[sum_f32] expected a schedule with a walk for its body");
  sum.outputs[0].value = 0;
  CHECK_THROWS_WITH(verify(sum),
                    "[sum_f32] expected a body with outputs of the scope of their values");
}

// --- The disk cache -----------------------------------------------------------------------------

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
      disk_cache::write(key, "test", written);
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

TEST_CASE("a cache says why nothing can be written to it", "[jit]") {
  const CacheDirectory directory;
  CHECK(disk_cache::why_unusable() == "");  // the first write makes the folder
  disk_cache::write(hash_of("k"), "test", "content");
  CHECK(disk_cache::why_unusable() == "");
  const std::string file = disk_cache::path_of(hash_of("k"), "test");
  const auto problem_of = [](const std::string& chosen) {
    const test::EnvironmentVariable variable("BRRR_CACHE_DIR", chosen);
    return disk_cache::why_unusable();
  };
  CHECK(problem_of(file) == file + " is not a folder");
  CHECK(problem_of(file + "/below/it") == file + " is not a folder");
  CHECK(problem_of("relative/not-there") == "");
  const std::string folder = directory.path();
  std::filesystem::permissions(folder, std::filesystem::perms::owner_read);
  if (::access(folder.c_str(), W_OK) != 0)  // permissions do not bind root
    CHECK(problem_of(folder + "/below") == "cannot write in " + folder + ": Permission denied");
  const test::EnvironmentVariable off("BRRR_CACHE", "off");
  CHECK(problem_of(file) == "");
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
        good &= disk_cache::read(key, "test", content) == disk_cache::Found::yes &&
                content.size() == 50000 &&
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

// --- Kernels for the CPU ------------------------------------------------------------------------

TEST_CASE("a pointwise op becomes a loop on the CPU", "[jit]") {
  CacheDirectory directory;
  OpInfo op = row("twice_and_one", OpKind::pointwise, 2, dtype_sets::numbers, DTypeRule::same,
                  "a * K(2) + b");
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
  const std::string source = render_cpu(copy_body(f32, bf16)) + render_cpu(copy_body(f16, f32)) +
                             render_cpu(copy_body(f32, f16));
  const auto convert = [&](const char* entry, void* out, const void* in, std::int64_t n) {
    StridedSpace space;
    space.add_dim(n);
    space.operands = 2;
    space.stride[0][0] = space.stride[1][0] = 1;
    CpuArguments arguments;
    arguments.outputs = &out;
    arguments.inputs = &in;
    arguments.space = &space;
    reinterpret_cast<CpuFunction>(load_cpu_function(entry, source))(arguments, 0, n);
  };
  std::vector<float> values;
  for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); u += 65521)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
  for (float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65504.0f, 65519.9f, 65520.0f, 1e-8f,
                        0x1p-24f, 0x1p-25f})
    values.push_back(special);
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::uint16_t> halves(values.size());
  convert("copy_f32_bf16", halves.data(), values.data(), n);
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) wrong += halves[i] != BFloat16(values[i]).bits;
  convert("copy_f32_f16", halves.data(), values.data(), n);
  for (std::size_t i = 0; i < values.size(); ++i) wrong += halves[i] != Float16(values[i]).bits;
  CHECK(wrong == 0);
  std::vector<std::uint16_t> all(65536);
  std::vector<float> widened(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  convert("copy_f16_f32", widened.data(), all.data(), 65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Float16 half;
    half.bits = all[i];
    const auto expected = static_cast<float>(half);
    wrong += std::isnan(expected) ? !std::isnan(widened[i])
                                  : std::bit_cast<std::uint32_t>(widened[i]) !=
                                        std::bit_cast<std::uint32_t>(expected);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a missing compiler and a text that does not compile are explained", "[jit]") {
  CacheDirectory directory;
  const std::string before = std::getenv("CXX") ? std::getenv("CXX") : "";
  ::setenv("CXX", "no-such-compiler", 1);
  CHECK_THROWS_WITH(
      load_cpu_function("f", "extern \"C\" void f() {}\n"),
      Catch::Contains(
          "needs a C++ compiler for its CPU kernel, but \"no-such-compiler\" cannot be run"));
  before.empty() ? ::unsetenv("CXX") : ::setenv("CXX", before.c_str(), 1);
  CHECK_THROWS_WITH(
      load_cpu_function("f", "extern \"C\" void f() { this is not C++ }\n"),
      Catch::Contains("expected a kernel that compiles") && Catch::Contains("this is not C++"));
}

TEST_CASE("a compiler that is not whole is named, without the kernel", "[jit]") {
  const CacheDirectory directory;
  std::filesystem::create_directories(directory.path());
  const std::string script = directory.path() / "compiler.sh";
  std::ofstream(script) << "#!/bin/sh\necho \"c++: cannot execute 'cc1plus'\"; exit 1\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const test::EnvironmentVariable chosen("CXX", script);
  const std::string text =
      test::error_of([] { load_cpu_function("f", "extern \"C\" void f() { int not_shown; }\n"); });
  CHECK_THAT(text, Catch::Contains("cannot execute 'cc1plus'") &&
                       Catch::Contains("; install a C++ compiler or set CXX"));
  CHECK(text.find("not_shown") == std::string::npos);
}

TEST_CASE("a shared object on disk that cannot be loaded is compiled again", "[jit]") {
  const CacheDirectory directory;
  int number = 0;
  const auto check = [&](const char* what, auto spoil) {
    INFO(what);
    const std::string value = std::to_string(++number);
    const std::string source = "extern \"C\" int answer() { return " + value + "; }\n";
    const Hash128 key = cpu_object_key(source);
    spoil(key);
    const auto answer = reinterpret_cast<int (*)()>(load_cpu_function("answer", source));
    CHECK(answer() == number);
    std::string kept;
    CHECK(disk_cache::read(key, "so", kept) == disk_cache::Found::yes);
    CHECK(kept.substr(0, 4) == "\177ELF");
  };
  check("nothing there", [](const Hash128&) {});
  CHECK(directory.files().size() == 1);
  const auto whole = [&] {
    std::string object;
    disk_cache::read(cpu_object_key("extern \"C\" int answer() { return 1; }\n"), "so", object);
    return object;
  };
  check("not a library", [](const Hash128& key) { disk_cache::write(key, "so", "no library"); });
  check("half a library", [&](const Hash128& key) {
    const std::string object = whole();
    disk_cache::write(key, "so", object.substr(0, object.size() / 2));
  });
  check("of another machine", [&](const Hash128& key) {
    std::string object = whole();
    object[18] = 0x77;  // e_machine
    disk_cache::write(key, "so", object);
  });
  check("a file cut short", [&](const Hash128& key) {
    disk_cache::write(key, "so", whole());
    std::filesystem::resize_file(disk_cache::path_of(key, "so"), 500);
  });
}
