// A measurement of matrix products that does not come to its end: a call into CUDA fails, the disk
// is full, the process is killed while it measures or while it writes. Then there is no entry in
// the disk cache or a whole one, and the next process computes the right step.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "brrr/graph/compile.h"
#include "brrr/ops/cuda/matmul_plan.h"
#include "brrr/ops/cuda/matmul_tuning.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "tests/fake_cuda/driver.h"
#include "tests/fake_cuda/kernels.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_op_faults.h"
#include "tests/harness/environment.h"
#include "tests/harness/jit_rows.h"

namespace brrr::on_cuda {
namespace {

using testing::CacheDirectory;
using Values = std::vector<float>;

constexpr testing::FakeOptions kDriver{.with_nvrtc = true, .with_cublaslt = true};

Tensor ramp(const Dims& shape) {
  const Tensor x = empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(i * 7 % 11 - 5);
  return x;
}

std::vector<Tensor> step_of(const std::vector<Tensor>& a) {
  return {matmul(matmul(a[0], a[1]), a[2])};
}
std::vector<Tensor> arguments() { return {ramp({5, 3}), ramp({3, 8}), ramp({8, 6})}; }
const Values& expected() {
  static const Values values = to_vector<float>(step_of(arguments())[0]);
  return values;
}

// One process that runs a fused step: a driver of its own, no plan from before.
class Process {
 public:
  Process() : fake_(kDriver) { testing::define_kernels(fake_); }
  ~Process() {
    cu::clear_faults();
    release_matmul();
  }

  Values result(MatmulChoice choice = MatmulChoice::measured) {
    const MatmulChoiceGuard guard(choice);
    std::vector<Tensor> given;
    for (const Tensor& x : arguments()) given.push_back(to(x, cuda()));
    auto step = compile(step_of, {.mode = Mode::fused, .fallback = OnFallback::refuse});
    return to_vector<float>(step(given)[0]);
  }
  // The same, and how many measurements there were.
  std::pair<Values, long> counted_result() {
    cu::count_calls(true);
    Values values = result();
    const long looks = cu::call_count("cublasLtMatmulPreferenceCreate");
    cu::count_calls(false);
    return {std::move(values), looks};
  }

 private:
  testing::FakeCuda fake_;
};

// Leaves the compiled kernels of the step on disk, so that what comes next writes its measurements.
void compile_kernels() {
  Process process;
  CHECK(process.result(MatmulChoice::first) == expected());
}

// How many entries there are; each is whole, and there are no other files.
int entries_of(const CacheDirectory& directory) {
  int count = 0;
  for (const std::filesystem::path& file : directory.files()) {
    if (file.extension() == ".cubin") continue;
    INFO(file);
    REQUIRE(file.extension() == ".matmul");
    const std::string name = file.stem();
    const jit::Hash128 key{std::stoull(name.substr(16), nullptr, 16),
                           std::stoull(name.substr(0, 16), nullptr, 16)};
    std::string bytes;
    CHECK(jit::disk_cache::read(key, "matmul", bytes) == jit::disk_cache::Found::yes);
    CHECK(tuned_from(bytes));
    ++count;
  }
  return count;
}

// The next process measures what is not there, and the one after it nothing.
void check_later_processes(const CacheDirectory& directory) {
  const int before = entries_of(directory);
  for (const long measured : {2 - before, 0}) {
    Process process;
    const auto [values, looks] = process.counted_result();
    CHECK(values == expected());
    CHECK(looks == measured);
    CHECK(entries_of(directory) == 2);
  }
}

struct FileLimit {
  explicit FileLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before);
    const struct rlimit limit { bytes, before.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before); }
  struct rlimit before;
};

// Runs a step in a child that a signal ends, and gives the signal; 0 if none did.
template <class Prepare>
int signal_that_ends(Prepare prepare) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const struct rlimit no_core { 0, 0 };
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::alarm(60);
    for (const int signal : {SIGXFSZ, SIGABRT, SIGSEGV}) std::signal(signal, SIG_DFL);
    try {
      Process process;
      prepare();
      ::_exit(process.result() == expected() ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return WTERMSIG(status);
  CHECK(WEXITSTATUS(status) == 0);
  return 0;
}

// Ends the process at a launch of a graph of products: only a measurement makes them in the first
// call of a step.
int launches_left = 0;
cu::Table living;
CUresult launch_and_die(CUgraphExec graph, CUstream stream) {
  if (--launches_left == 0) ::kill(::getpid(), SIGKILL);
  return living.cuGraphLaunch(graph, stream);
}

}  // namespace

TEST_CASE("a measurement with a call that fails keeps nothing or all of it", "[tuning_faults]") {
  std::vector<std::pair<std::string_view, long>> calls;
  {
    const CacheDirectory directory;
    Process process;
    cu::count_calls(true);
    CHECK(process.result() == expected());
    calls = cu::call_counts();
    cu::count_calls(false);
    CHECK(entries_of(directory) == 2);
  }
  int thrown = 0;
  for (const auto& [call, count] : calls) {
    const bool measures = call.starts_with("cublasLt") || call.starts_with("cuGraph") ||
                          call.starts_with("cuEvent") || call.starts_with("cuStream");
    if (!measures || call.find("Destroy") != call.npos) continue;
    // The first and the last, and some in between.
    for (long k = 1; k <= count; k += std::max(1L, k == 1 ? 1 : count / 5)) {
      INFO(call << " number " << k << " of " << count);
      const CacheDirectory directory;
      {
        Process process;
        cu::fail_call(call, k, test::codes_of(call).second);
        try {
          const Values got = process.result();
          CHECK(got == expected());
        } catch (const CudaError&) {
          ++thrown;
        }
        cu::clear_faults();
        entries_of(directory);
        CHECK(process.result() == expected());  // the same process tries again
      }
      check_later_processes(directory);
    }
  }
  CHECK(thrown > 20);
}

TEST_CASE("a measurement that cannot be written does not fail the step", "[tuning_faults]") {
  const CacheDirectory directory;
  SECTION("on a full disk") {
    compile_kernels();
    const std::size_t kernels = directory.files().size();
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    for (const rlim_t bytes : {0, 20, 48, 100}) {
      INFO(bytes << " bytes are left");
      const FileLimit limit(bytes);
      Process process;
      CHECK(process.result() == expected());
      CHECK(directory.files().size() == kernels);
    }
    std::signal(SIGXFSZ, handler);
    check_later_processes(directory);
  }
  SECTION("in a folder that cannot be made") {
    std::filesystem::create_directories(directory.path());
    const std::string file = directory.path() / "file";
    std::ofstream(file) << "no folder";
    const test::EnvironmentVariable below("BRRR_CACHE_DIR", file + "/below");
    for (int i = 0; i < 2; ++i) {
      Process process;
      CHECK(process.counted_result() == std::pair(expected(), 2L));
    }
    CHECK(directory.files().size() == 1);
  }
}

TEST_CASE("a measurement that is cut off leaves no part of an entry", "[tuning_faults]") {
  expected();
  int killed = 0;
  // 48 bytes are a header, and 48 + 88 an entry.
  for (const rlim_t bytes : {0, 1, 30, 48, 49, 120, 135}) {
    INFO("a file may have " << bytes << " bytes");
    const CacheDirectory directory;
    compile_kernels();
    const std::size_t kernels = directory.files().size();
    const int signal = signal_that_ends([&] {
      const struct rlimit limit { bytes, bytes };
      ::setrlimit(RLIMIT_FSIZE, &limit);
    });
    CHECK(signal == 0);  // the limit is an error of the write, and nothing is kept
    CHECK(directory.files().size() == kernels);
    for (const std::filesystem::path& file : directory.files()) CHECK(file.extension() == ".cubin");
    check_later_processes(directory);
  }
  for (const int launches : {1, 3, 9, 20, 1000}) {
    INFO("killed at the launch " << launches << " of a graph");
    const CacheDirectory directory;
    const int signal = signal_that_ends([&] {
      launches_left = launches;
      cu::Table dying = living = cu::table();
      dying.cuGraphLaunch = launch_and_die;
      cu::install_table(dying);
    });
    CHECK((signal == SIGKILL || launches == 1000));
    killed += signal == SIGKILL;
    check_later_processes(directory);
  }
  CHECK(killed == 4);
}

TEST_CASE("a part of an entry is measured again, and so is what the library refuses",
          "[tuning_faults]") {
  const CacheDirectory directory;
  { CHECK(Process().result() == expected()); }
  const auto spoil = [&](const char* what, auto change) {
    INFO(what);
    for (const std::filesystem::path& file : directory.files()) {
      if (file.extension() == ".matmul") change(file);
    }
    {
      Process process;
      CHECK(process.counted_result() == std::pair(expected(), 2L));
    }
    check_later_processes(directory);
  };
  for (const int size : {0, 7, 48, 80, 135}) {
    spoil("cut short",
          [&](const std::filesystem::path& file) { std::filesystem::resize_file(file, size); });
  }
  spoil("a changed byte", [](const std::filesystem::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file.put('x');
  });
  spoil("another algorithm", [](const std::filesystem::path& path) {
    const std::string name = path.stem();
    const jit::Hash128 key{std::stoull(name.substr(16), nullptr, 16),
                           std::stoull(name.substr(0, 16), nullptr, 16)};
    jit::disk_cache::write(key, "matmul", to_bytes({}));
  });
}

}  // namespace brrr::on_cuda
