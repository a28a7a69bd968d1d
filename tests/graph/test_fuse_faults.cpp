// What goes wrong while kernels for the CPU are compiled: every step has eager's bits, and says
// once what is wrong.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "tests/harness/captured_stderr.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/environment.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/jit_rows.h"
#include <brrr/ops/jit/cpu_compiler.h>

namespace brrr::test {
namespace {

using testing::CacheDirectory;

Tensors body(const Tensors& a) {
  const Tensor x = a[0] * 2.0 - a[1], y = softmax(tanh(x), 1);
  return {y, sum(y * x, {0}), where(x > 0.0, x, y), cast(x, bf16) * cast(y, bf16)};
}

// A program of the shell in place of a compiler.
std::string compiler_of(const CacheDirectory& directory, const std::string& commands) {
  std::filesystem::create_directories(directory.path());
  const std::string path = directory.path() / "compiler.sh";
  std::ofstream(path) << "#!/bin/sh\n" << commands << "\n";
  ::chmod(path.c_str(), 0700);
  return path;
}

// Two steps, traced and compiled anew each. How many lines they wrote to stderr, all of which have
// `why`.
int lines_of_steps(const std::string& why, std::int64_t size) {
  const Tensors arguments = {noise({6, size}, 1), noise({6, size}, 2)}, wanted = body(arguments);
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 2; ++i) {
      auto step = compile([](const Tensors& a) { return body(a); }, {.mode = Mode::fused});
      const Tensors got = step(arguments);
      for (std::size_t k = 0; k < wanted.size(); ++k) CHECK(bits_of(got[k]) == bits_of(wanted[k]));
      CHECK(step.report().entries.at(0).nodes > 8);  // not fused
    }
  });
  INFO(text);
  int lines = 0;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line); ++lines) {
    CHECK(line.starts_with(
        "[fuse] replays fused steps on the CPU call by call, since kernels cannot be compiled: "));
    CHECK(line.find(why) != std::string::npos);
  }
  return lines;
}

}  // namespace

// Sizes differ, so that no kernel is known from the test before.
TEST_CASE("a step without a compiler is replayed call by call, and says so once", "[fuse]") {
  const CacheDirectory directory;
  const EnvironmentVariable chosen("CXX", "/nonexistent/c++");
  CHECK(lines_of_steps("\"/nonexistent/c++\" cannot be run", 40) == 1);
  CHECK(lines_of_steps("", 41) == 0);  // for the same reason
}

TEST_CASE("a compiler that fails does not fail the step", "[fuse]") {
  const CacheDirectory directory;
  SECTION("with a message") {
    const EnvironmentVariable chosen("CXX",
                                     compiler_of(directory, "echo out of order; echo x; exit 1"));
    CHECK(lines_of_steps("got exit status 1 from /", 50) == 1);
  }
  SECTION("with the first line of a message") {
    const EnvironmentVariable chosen("CXX",
                                     compiler_of(directory, "echo out of mind; echo x; exit 1"));
    CHECK(lines_of_steps("compiler.sh: out of mind", 55) == 1);
  }
  SECTION("without a message") {
    const EnvironmentVariable chosen("CXX", compiler_of(directory, "exit 3"));
    CHECK(lines_of_steps("compiler.sh, which printed nothing", 56) == 1);
  }
  SECTION("by a signal") {
    const EnvironmentVariable chosen("CXX", compiler_of(directory, "kill -9 $$"));
    CHECK(lines_of_steps("expected a kernel that compiles, got signal 9 from /", 51) == 1);
  }
  SECTION("and succeeds with nothing to show") {
    const EnvironmentVariable chosen("CXX", compiler_of(directory, "exit 0"));
    CHECK(lines_of_steps("got exit status 0 and no shared object from /", 52) == 1);
  }
  SECTION("with what is no object") {
    const EnvironmentVariable chosen(
        "CXX",
        compiler_of(directory, "while [ \"$1\" != -o ]; do shift; done; echo no object > \"$2\""));
    CHECK(lines_of_steps("compiler.sh compiled cannot be loaded: it is no whole shared object",
                         53) == 1);
    CHECK(directory.files().size() == 1);  // the script: nothing is kept
  }
  SECTION("with half an object, for which the same may be said already") {
    const EnvironmentVariable chosen(
        "CXX", compiler_of(directory,
                           "c++ \"$@\"; while [ \"$1\" != -o ]; do shift; done; "
                           "truncate -s 5000 \"$2\""));
    CHECK(lines_of_steps("no whole shared object", 54) <= 1);
  }
}

TEST_CASE("a compiler that hangs is ended with its children", "[fuse]") {
  const CacheDirectory directory;
  const std::string pid = directory.path() / "pid";
  const EnvironmentVariable chosen(
      "CXX", compiler_of(directory, "sleep 1000 & echo $! > " + pid + "; wait"));
  const EnvironmentVariable limit("BRRR_COMPILE_SECONDS", "0.3");
  CHECK(lines_of_steps("to compile within 0.3 s", 60) == 1);
  int child = 0;
  std::ifstream(pid) >> child;
  REQUIRE(child > 0);
  for (int i = 0; i < 1000 && ::kill(child, 0) == 0; ++i) ::usleep(1000);
  std::ifstream status("/proc/" + std::to_string(child) + "/stat");
  std::string number, name, state = "gone";
  status >> number >> name >> state;
  CHECK((state == "gone" || state == "Z"));  // a zombie where nobody reaps orphans
}

TEST_CASE("a full disk does not fail the step", "[fuse]") {
  const CacheDirectory directory;
  struct rlimit before;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit { 4096, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const int lines = lines_of_steps("cannot write", 70);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(lines == 1);
  std::signal(SIGXFSZ, handler);
}

TEST_CASE("a directory for the compiler that is not there does not fail the step", "[fuse]") {
  const CacheDirectory directory;
  const EnvironmentVariable temporary("TMPDIR", "/nonexistent");
  CHECK(lines_of_steps("expected a directory to compile in", 80) == 1);
}

TEST_CASE("a step without a compiler is refused, or unfused in silence, where that is asked for",
          "[fuse]") {
  const CacheDirectory directory;
  const EnvironmentVariable chosen("CXX", "/nonexistent/c++");
  const auto step = [](OnFallback fallback) {
    const Tensors arguments = {noise({6, 90}, 1), noise({6, 90}, 2)};
    auto compiled = compile([](const Tensors& a) { return body(a); },
                            {.mode = Mode::fused, .fallback = fallback});
    return bits_of(compiled(arguments)) == bits_of(body(arguments));
  };
  CHECK_THROWS_WITH(step(OnFallback::refuse), Catch::Contains("needs a C++ compiler"));
  CHECK(stderr_of([&] { CHECK(step(OnFallback::ignore)); }) == "");
}

// What is drawn is in memory where it is not fused.
TEST_CASE("a budget that is missed without a compiler is refused with the compiler's reason",
          "[fuse][remat]") {
  const CacheDirectory directory;
  const EnvironmentVariable chosen("CXX", compiler_of(directory, "exit 4"));
  const Tensor w = requires_grad_(noise({64, 64}, 1));
  auto step = compile(
      [&] {
        zero_grad(w);
        const Tensor loss = sum(square(dropout(tanh(w), 0.3)));
        backward(loss);
        return detach(loss);
      },
      {.mode = Mode::fused, .remat = Remat::budget(1), .name = "train"});
  std::string error;
  const std::string line = stderr_of([&] { error = error_of([&] { step(); }); });
  INFO(line);
  CHECK_THAT(error,
             Catch::StartsWith("[train] expected memory of at most ") &&
                 Catch::Contains(", since its kernels are not compiled: ") &&
                 Catch::Contains("got exit status 4 from /") &&
                 Catch::EndsWith("compiler.sh, which printed nothing; install a C++ compiler "
                                 "or set CXX"));
}

// --- The cache of kernels -----------------------------------------------------------------------

namespace {

std::string kernel_that_gives(int number) {
  return "extern \"C\" int this_kernel() { return " + std::to_string(number) + "; }\n";
}
int result_of(void* kernel) { return reinterpret_cast<int (*)()>(kernel)(); }

}  // namespace

TEST_CASE("equal kernels are one, and only new ones are compiled", "[fuse][jit]") {
  const CacheDirectory directory;
  std::vector<std::string> texts = {kernel_that_gives(101), kernel_that_gives(102),
                                    kernel_that_gives(101)};
  const std::vector<void*> first = jit::load_cpu_kernels(texts);
  CHECK(result_of(first[0]) == 101);
  CHECK(result_of(first[1]) == 102);
  CHECK(first[0] == first[2]);
  const std::size_t files = directory.files().size();
  CHECK(files == 3);  // two kernels in one object
  texts.push_back(kernel_that_gives(103));
  const std::vector<void*> second = jit::load_cpu_kernels(texts);
  CHECK(second[0] == first[0]);
  CHECK(result_of(second[3]) == 103);
  CHECK(directory.files().size() == files + 2);
}

TEST_CASE("compiling for over a second is shown on a terminal alone", "[fuse][jit]") {
  const CacheDirectory directory;
  const EnvironmentVariable chosen("CXX", compiler_of(directory, "sleep 1.3; exec c++ \"$@\""));
  CHECK(stderr_of([] {
          const std::string text = kernel_that_gives(301);
          CHECK(result_of(jit::load_cpu_kernels({&text, 1})[0]) == 301);
        }) == "");
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return;  // none here
  const int end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY), before = ::dup(2);
  REQUIRE(end >= 0);
  ::dup2(end, 2);
  const std::string text = kernel_that_gives(302);
  const int result = result_of(jit::load_cpu_kernels({&text, 1})[0]);
  ::dup2(before, 2);
  char shown[256] = {};
  CHECK(::read(terminal, shown, sizeof shown - 1) > 0);
  for (const int file : {before, end, terminal}) ::close(file);
  CHECK(result == 302);
  CHECK(std::string(shown).find("[jit] compiling 1 CPU kernel, 1 s") != std::string::npos);
}

TEST_CASE("damaged entries of kernels are compiled again", "[fuse][jit]") {
  const CacheDirectory directory;
  int number = 200;
  const auto check = [&](const char* what, auto spoil) {
    INFO(what);
    const std::string text = kernel_that_gives(++number);
    const jit::Hash128 key = jit::cpu_object_key(text);
    spoil(key);
    CHECK(result_of(jit::load_cpu_kernels({&text, 1})[0]) == number);
    std::string kept;
    CHECK(jit::disk_cache::read(key, "kernel", kept) == jit::disk_cache::Found::yes);
    CHECK(kept.size() == sizeof(jit::Hash128));
  };
  const auto point_to = [](const jit::Hash128& key, const jit::Hash128& object) {
    jit::disk_cache::write(key, "kernel", {reinterpret_cast<const char*>(&object), sizeof object});
  };
  check("no entry", [](const jit::Hash128&) {});
  check("an entry that is no key",
        [](const jit::Hash128& key) { jit::disk_cache::write(key, "kernel", "short"); });
  check("an object that is not there",
        [&](const jit::Hash128& key) { point_to(key, jit::hash_of("nothing")); });
  check("an object that is damaged", [&](const jit::Hash128& key) {
    const jit::Hash128 object = jit::hash_of("damaged");
    jit::disk_cache::write(object, "so", "no library");
    point_to(key, object);
  });
  check("an object without the kernel", [&](const jit::Hash128& key) {
    std::string other;
    jit::disk_cache::read(jit::cpu_object_key(kernel_that_gives(201)), "kernel", other);
    REQUIRE(other.size() == sizeof(jit::Hash128));
    jit::Hash128 object;
    std::memcpy(&object, other.data(), sizeof object);
    point_to(key, object);
  });
  check("a file cut short", [&](const jit::Hash128& key) {
    point_to(key, jit::hash_of("damaged"));
    std::filesystem::resize_file(jit::disk_cache::path_of(key, "kernel"), 20);
  });
}

}  // namespace brrr::test
