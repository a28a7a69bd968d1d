// Owns the compilation of CUDA kernels: NVRTC, cubins on disk, modules in memory.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/tensor/cuda_relaxed_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::jit {
namespace {

std::atomic<std::int64_t> compiled{0}, memory_hits{0}, disk_hits{0}, disk_refused{0}, serialized{0};

std::string whole_source(std::string_view source, const KernelOptions& options) {
  std::string text;
  text.reserve(32768 + source.size());
  text += sources::functions_def;
  text += sources::prelude_inl;
  text += sources::scalar_inl;
  if (options.random) text += sources::philox_inl;
  // Line numbers of errors are those of the kernel's own source.
  text += "\n#line 1 \"kernel\"\n";
  text += source;
  text += "\n}  // namespace brrr\n";
  return text;
}

// Without contraction to fma a chain rounds alike whether it runs as many kernels or as one.
std::vector<std::string> flags_of(int architecture, const KernelOptions& options) {
  std::vector<std::string> flags = {
      fmt::format("--gpu-architecture=sm_{}{}", architecture,
                  options.architecture_specific ? "a" : ""),
      "--std=c++17", options.fast ? "--fmad=true" : "--fmad=false",
      fmt::format("--define-macro=THREADS_AT_ONCE={}", options.threads_at_once),
      "--diag-suppress=177"};  // functions of the prelude that a kernel does not use
  if (options.fast) flags.insert(flags.end(), {"--prec-div=false", "--prec-sqrt=false"});
  return flags;
}

std::string with_line_numbers(std::string_view source) {
  std::string text;
  int line = 0;
  while (!source.empty()) {
    const std::size_t end = source.find('\n');
    text += fmt::format("{:4} {}\n", ++line, source.substr(0, end));
    if (end == std::string_view::npos) break;
    source.remove_prefix(end + 1);
  }
  return text;
}

// One program of NVRTC; destroyed whatever happens.
class NvrtcProgram {
 public:
  explicit NvrtcProgram(const std::string& text) {
    BRRR_CUDA(nvrtcCreateProgram, &program_, text.c_str(), "brrr.cu", 0, nullptr, nullptr);
  }
  ~NvrtcProgram() { (void)BRRR_CUDA_TRY(nvrtcDestroyProgram, &program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  nvrtcResult compile(const std::vector<std::string>& flags) {
    std::vector<const char*> pointers;
    for (const std::string& flag : flags) pointers.push_back(flag.c_str());
    return BRRR_CUDA_TRY(nvrtcCompileProgram, program_, static_cast<int>(pointers.size()),
                         pointers.data());
  }
  std::string log() {
    std::size_t size = 0;
    if (BRRR_CUDA_TRY(nvrtcGetProgramLogSize, program_, &size) != NVRTC_SUCCESS || size < 2)
      return "";
    std::string text(size, '\0');
    if (BRRR_CUDA_TRY(nvrtcGetProgramLog, program_, text.data()) != NVRTC_SUCCESS) return "";
    text.resize(std::strlen(text.c_str()));
    return text;
  }
  std::string cubin() {
    std::size_t size = 0;
    BRRR_CUDA(nvrtcGetCUBINSize, program_, &size);
    std::string bytes(size, '\0');
    BRRR_CUDA(nvrtcGetCUBIN, program_, bytes.data());
    return bytes;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

std::string run_nvrtc(const std::string& text, std::string_view source, int architecture,
                      const KernelOptions& options) {
  NvrtcProgram program(text);
  const nvrtcResult result = program.compile(flags_of(architecture, options));
  if (result == NVRTC_ERROR_COMPILATION) {
    throw Error(fmt::format(
        "[{}] expected a kernel that compiles for sm_{}, got {} from NVRTC:\n{}\nThe kernel:\n{}",
        op_or("jit"), architecture, cu::describe(cu::Library::nvrtc, result),
        shortened(program.log()), with_line_numbers(source)));
  }
  cu::check<cu::Fn::k_nvrtcCompileProgram>(result);  // the machine's fault, not the source's
  compiled.fetch_add(1, std::memory_order_relaxed);
  if (program.log().find("serialized") != std::string::npos)
    serialized.fetch_add(1, std::memory_order_relaxed);
  return program.cubin();
}

Hash128 key_of(const std::string& text, int architecture, const KernelOptions& options) {
  std::string key = fmt::format("cubin nvrtc {}", cu::nvrtc_version());
  for (const std::string& flag : flags_of(architecture, options)) key += " " + flag;
  key += '\n';
  key += text;
  return hash_of(key);
}

struct LessHash {
  bool operator()(const Hash128& a, const Hash128& b) const {
    return std::tie(a.low, a.high) < std::tie(b.low, b.high);
  }
};

// Cubins that were compiled ahead of their first load, until that load.
struct Ahead {
  std::mutex mutex;
  std::map<Hash128, std::string, LessHash> cubins;

  void put(const Hash128& key, std::string cubin) {
    const std::lock_guard lock(mutex);
    cubins.emplace(key, std::move(cubin));
  }
  // "": there is none.
  std::string take(const Hash128& key) {
    const std::lock_guard lock(mutex);
    const auto found = cubins.find(key);
    if (found == cubins.end()) return "";
    return std::move(cubins.extract(found).mapped());
  }
};
Ahead& ahead() {
  static Ahead* instance = new Ahead;
  return *instance;
}

std::string cubin_of(const std::string& text, std::string_view source, int architecture,
                     const KernelOptions& options, const Hash128& key, bool& from_disk) {
  std::string cubin = ahead().take(key);
  if (!cubin.empty()) return cubin;
  switch (disk_cache::read(key, "cubin", cubin)) {
    case disk_cache::Found::yes:
      disk_hits.fetch_add(1, std::memory_order_relaxed);
      from_disk = true;
      return cubin;
    case disk_cache::Found::untrusted:
    case disk_cache::Found::damaged: disk_refused.fetch_add(1, std::memory_order_relaxed); break;
    case disk_cache::Found::no: break;
  }
  cubin = run_nvrtc(text, source, architecture, options);
  disk_cache::write(key, "cubin", cubin);
  return cubin;
}

// Modules stay loaded as long as their device runs: kernels that callers have point into them. A
// device that was shut down and started again has a new state, so what was loaded before is not
// found.
struct Modules {
  using Key = std::pair<Hash128, const cu::DeviceState*>;
  struct Less {
    bool operator()(const Key& a, const Key& b) const {
      return std::tie(a.first.low, a.first.high, a.second) <
             std::tie(b.first.low, b.first.high, b.second);
    }
  };
  std::mutex mutex;
  std::map<Key, CUmodule, Less> loaded;
};
Modules& modules() {
  static Modules* instance = new Modules;
  return *instance;
}

KernelOptions on_device(KernelOptions options, Device device) {
  options.threads_at_once = threads_at_once(device);
  return options;
}

}  // namespace

int architecture_of(Device device) {
  const cu::DeviceState& state = cu::device_state(device.index);
  return state.major * 10 + state.minor;
}

int multiprocessors_of(Device device) { return cu::device_state(device.index).multiprocessors; }

DeviceShape shape_of(Device device) {
  const auto& state = cu::device_state(device.index);
  return {state.multiprocessors, state.major >= 9 ? 8 : 1};
}

std::int64_t threads_at_once(Device device) {
  const cu::DeviceState& state = cu::device_state(device.index);
  return std::int64_t{state.multiprocessors} *
         state.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
}

std::string compile_to_cubin(std::string_view source, int architecture,
                             const KernelOptions& options) {
  const std::string text = whole_source(source, options);
  bool from_disk;
  return cubin_of(text, source, architecture, options, key_of(text, architecture, options),
                  from_disk);
}

KernelCollection::KernelCollection(Device device) : device_(device) {
  thread_context.kernel_collection = this;
}
KernelCollection::~KernelCollection() { thread_context.kernel_collection = nullptr; }

void KernelCollection::add(std::string_view source, const KernelOptions& given) {
  const KernelOptions options = on_device(given, device_);
  std::string text = whole_source(source, options);
  const Hash128 key = key_of(text, architecture_of(device_), options);
  if (std::ranges::find(sources_, key, &CollectedSource::key) == sources_.end())
    sources_.push_back({std::string(source), std::move(text), options, key});
}

int KernelCollection::compile() {
  is_collecting_ = false;
  const cu::DeviceState* const state = &cu::device_state(device_.index);
  std::erase_if(sources_, [&](const CollectedSource& item) {
    std::string cubin;
    Modules& cache = modules();
    const std::lock_guard lock(cache.mutex);
    return cache.loaded.contains({item.key, state}) ||
           disk_cache::read(item.key, "cubin", cubin) == disk_cache::Found::yes;
  });
  const int architecture = architecture_of(device_);
  std::atomic<std::size_t> next{0};
  std::atomic<int> made{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < sources_.size(); i = next++) {
      try {
        std::string cubin =
            run_nvrtc(sources_[i].whole, sources_[i].source, architecture, sources_[i].options);
        disk_cache::write(sources_[i].key, "cubin", cubin);
        ahead().put(sources_[i].key, std::move(cubin));
        ++made;
      } catch (const Error&) {
      }
    }
  };
  {
    constexpr std::size_t kMostThreads = 16;
    const std::size_t threads =
        std::min({sources_.size(), static_cast<std::size_t>(available_processors()), kMostThreads});
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  return made;
}

std::vector<CUfunction> load_kernels(Device device, const std::vector<const char*>& entries,
                                     std::string_view source, const KernelOptions& given) {
  KernelCollection* const collection = thread_context.kernel_collection;
  if (collection && collection->is_collecting()) {
    collection->add(source, given);
    return std::vector<CUfunction>(entries.size(), nullptr);
  }
  cu::DeviceState& state = cu::device_state(device.index);
  cu::make_current(state);
  const KernelOptions options = on_device(given, device);
  const int architecture = architecture_of(device);
  const std::string text = whole_source(source, options);
  const Hash128 key = key_of(text, architecture, options);
  const Modules::Key place(key, &state);
  const cu::RelaxedCapture relaxed;  // the first load may be during a capture
  Modules& cache = modules();
  CUmodule module = nullptr;
  {
    std::lock_guard lock(cache.mutex);
    if (const auto found = cache.loaded.find(place); found != cache.loaded.end())
      module = found->second;
  }
  if (module) {
    memory_hits.fetch_add(1, std::memory_order_relaxed);
  } else {
    bool from_disk = false;
    std::string cubin = cubin_of(text, source, architecture, options, key, from_disk);
    CUmodule mine = nullptr;
    CUresult loaded = BRRR_CUDA_TRY(cuModuleLoadData, &mine, cubin.data());
    if (loaded == CUDA_ERROR_INVALID_IMAGE && from_disk) {
      // The cached file is intact but no cubin for this device: compile again.
      disk_refused.fetch_add(1, std::memory_order_relaxed);
      cubin = run_nvrtc(text, source, architecture, options);
      disk_cache::write(key, "cubin", cubin);
      loaded = BRRR_CUDA_TRY(cuModuleLoadData, &mine, cubin.data());
    }
    cu::check<cu::Fn::k_cuModuleLoadData>(loaded);
    std::lock_guard lock(cache.mutex);
    const auto [at, first] = cache.loaded.emplace(place, mine);
    module = at->second;
    // Another thread was faster: one module serves all.
    if (!first) (void)BRRR_CUDA_TRY(cuModuleUnload, mine);
  }
  std::vector<CUfunction> functions;
  for (const char* entry : entries) {
    CUfunction function = nullptr;
    const CUresult code = BRRR_CUDA_TRY(cuModuleGetFunction, &function, module, entry);
    if (code != CUDA_SUCCESS) cu::throw_failed(cu::Fn::k_cuModuleGetFunction, code, entry);
    functions.push_back(function);
  }
  if (LoadedKernels* const loaded = thread_context.loaded_kernels)
    *loaded = {device, std::string(source), functions};
  return functions;
}

CUfunction load_kernel(Device device, const char* entry, std::string_view source,
                       const KernelOptions& options) {
  return load_kernels(device, {entry}, source, options)[0];
}

CompilerStats compiler_stats() {
  return {compiled.load(), memory_hits.load(), disk_hits.load(), disk_refused.load(),
          serialized.load()};
}

}  // namespace brrr::jit
