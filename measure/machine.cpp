// Describes this machine from /proc, the C library and the CUDA runtime.
#include "brrr/measure/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "brrr/graph/ceilings.h"
#include "brrr/ops/cpu/blas.h"
#include "brrr/ops/cpu/isa.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/tensor/runtime.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

std::string vector_instructions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  if (__builtin_cpu_supports("avx")) return "avx";
  return "sse2";
#elif defined(__aarch64__)
  return "neon";
#else
  return "";
#endif
}

Processor describe_processor() {
  Processor p;
  p.model = graph::processor_model();
  p.isa = vector_instructions();
  p.kernels = on_cpu::selected_isas();
  p.threads = available_processors();
  p.used = num_threads();
  p.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return p;
}

// The BLAS that the dynamic linker resolved, which may differ from the one at build time.
Library describe_blas() {
  Library blas{"BLAS", blas_is_openblas() ? openblas_get_config() : BRRR_BLAS, ""};
  blas.version.erase(blas.version.find_last_not_of(' ') + 1);
  Dl_info product{};
  if (dladdr(reinterpret_cast<void*>(cblas_sgemm), &product)) {
    std::error_code error;
    const auto file = std::filesystem::canonical(product.dli_fname, error);
    blas.file = error ? product.dli_fname : file.string();
  }
  return blas;
}

std::string system_name() {
  std::string name;
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    name = line.substr(12);
    std::erase(name, '"');
  }
  utsname kernel{};
  uname(&kernel);
  return fmt::format("{}, {} {}, {}", name.empty() ? "unknown" : name, kernel.sysname,
                     kernel.release, kernel.machine);
}

// "NVIDIA H200" becomes "nvidia-h200".
std::string tag_of(std::string_view name) {
  std::string tag;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      tag += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!tag.empty() && tag.back() != '-') {
      tag += '-';
    }
  }
  while (!tag.empty() && tag.back() == '-') tag.pop_back();
  return tag.empty() ? "unknown" : tag;
}

std::vector<Cache> describe_caches() {
  const std::string directory = jit::disk_cache::directory();
  Cache cache{.name = "compiled kernels",
              .path = directory.empty() ? "off" : directory,
              .problem = jit::disk_cache::why_unusable(),
              .refused = jit::disk_cache::refused()};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    std::error_code gone;
    if (!entry.is_regular_file(gone)) continue;
    const auto size = entry.file_size(gone);
    if (gone) continue;
    ++cache.entries;
    cache.bytes += static_cast<std::int64_t>(size);
  }
  return {cache};
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::int64_t processor_mhz() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("cpu MHz")) return std::atoll(line.c_str() + line.find(':') + 1);
  }
  return 0;
}

Machine describe_machine() {
  Machine m;
  m.version = BRRR_VERSION;
  m.build_type = BRRR_BUILD_TYPE;
#if defined(__clang__)
  m.compiler = "clang " __clang_version__;
#else
  m.compiler = "g++ " __VERSION__;
#endif
  m.date = utc_now();
  m.system = system_name();
  m.processor = describe_processor();
  if (cuda_is_available()) {
    m.gpus = describe_gpus();
  } else {
    m.why_no_cuda = cuda_runtime().why_none();
  }
  m.libraries = describe_cuda_libraries();
  m.libraries.push_back(describe_blas());
  m.caches = describe_caches();
  const auto add_ceilings = [&](Device device) {
    const auto ceilings = graph::ceilings_of(device);
    m.ceilings.push_back({to_string(device), ceilings->date, ceilings->why_defaults,
                          ceilings->clock_mhz, ceilings->software, ceilings->doubts});
  };
  add_ceilings(cpu);
  for (const Gpu& gpu : m.gpus) add_ceilings(cuda(gpu.index));
  m.tag = tag_of(m.gpus.empty() ? m.processor.model : m.gpus.front().name);
  return m;
}

}  // namespace brrr::measure
