// Owns the table. An entry opens its library at the first call, or throws if the library lacks the
// function; other entries count calls, or make them fail in tests. A published table is never
// changed or freed, so callers need no lock.
#include "brrr/tensor/cuda_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::cu {
namespace {

#define BRRR_TEXT(name) #name
#define BRRR_MAPPED_TEXT(name) BRRR_TEXT(name)

struct Row {
  std::string_view name;  // as callers write it
  const char* symbol;     // as the library exports it
};
constexpr Row kRows[] = {
#define X(fn) {#fn, BRRR_MAPPED_TEXT(fn)},
    BRRR_CUDA_CALLS(X)
#undef X
};

#define X(fn) +1
constexpr int kCallsOf[] = {BRRR_DRIVER_CALLS(X), BRRR_NVRTC_CALLS(X), BRRR_CUBLASLT_CALLS(X),
                            0 BRRR_CUPTI_CALLS(X)};
#undef X
constexpr int kLibraries = static_cast<int>(std::size(kCallsOf));

constexpr Library library_of(Fn call) {
  int index = static_cast<int>(call), library = 0;
  while (index >= kCallsOf[library]) index -= kCallsOf[library++];
  return static_cast<Library>(library);
}

// A table seen as an array of its entries.
using Slots = std::array<void*, kFns>;
static_assert(sizeof(Slots) == sizeof(Table));

template <Fn F, class Signature>
struct EntryPoint;  // the three functions that may be in the table in place of a call

void* slot_of(const Table& table, Fn call) {
  void* slot;
  std::memcpy(&slot, reinterpret_cast<const char*>(&table) + static_cast<int>(call) * sizeof slot,
              sizeof slot);
  return slot;
}
void set_slot(Table& table, Fn call, void* slot) {
  std::memcpy(reinterpret_cast<char*>(&table) + static_cast<int>(call) * sizeof slot, &slot,
              sizeof slot);
}

[[noreturn]] void throw_absent(Fn call, const std::string& why) {
  throw CudaError(fmt::format("[{}] {} cannot be called: {}", op_or("cuda"), name_of(call), why),
                  0);
}

// The state of hooked entries, which forward to the table `behind`.
struct Hook {
  std::atomic<long> calls{0};
  std::atomic<long> countdown{0};  // the call that takes it from 1 to 0 fails
  std::atomic<int> code{0};
};
Hook hooks[kFns];
std::atomic<const Table*> behind{nullptr};

// Counts the call; returns whether it is the one that must fail.
bool note_call(Hook& hook) {
  hook.calls.fetch_add(1, std::memory_order_relaxed);
  long left = hook.countdown.load(std::memory_order_relaxed);
  while (left > 0 && !hook.countdown.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

template <Fn F, class R, class... A>
struct EntryPoint<F, R (*)(A...)> {
  static R opening(A... arguments) {
    const std::string why = open_library(library_of(F));
    if (!why.empty()) throw_absent(F, why);
    return reinterpret_cast<R (*)(A...)>(slot_of(*behind.load(), F))(arguments...);
  }
  static R missing(A...) {
    throw_absent(
        F, fmt::format("this version of the library has no {}", kRows[static_cast<int>(F)].symbol));
  }
  static R hooked(A... arguments) {
    Hook& hook = hooks[static_cast<int>(F)];
    if (note_call(hook)) {
      if constexpr (std::is_enum_v<R>) return static_cast<R>(hook.code.load());
    }
    return reinterpret_cast<R (*)(A...)>(slot_of(*behind.load(), F))(arguments...);
  }
};

constexpr Table kOpening = {
#define X(fn) &EntryPoint<Fn::k_##fn, decltype(&::fn)>::opening,
    BRRR_CUDA_CALLS(X)
#undef X
};
constexpr Table kMissing = {
#define X(fn) &EntryPoint<Fn::k_##fn, decltype(&::fn)>::missing,
    BRRR_CUDA_CALLS(X)
#undef X
};
constexpr Table kHooked = {
#define X(fn) &EntryPoint<Fn::k_##fn, decltype(&::fn)>::hooked,
    BRRR_CUDA_CALLS(X)
#undef X
};

// The parts of the published table, guarded by `mutex`.
struct TableParts {
  std::mutex mutex;
  Table libraries = kOpening;
  Table installed = {};
  bool has_installed = false;
  bool hooking = false;
  bool tried[kLibraries] = {};
  std::string problem[kLibraries];
  std::vector<const Table*> published;  // never freed
};
TableParts& parts() {
  static TableParts* made = new TableParts;
  return *made;
}

// Whether the installed table (a fake driver) replaces the library: if it has any call of it.
bool replaced(const TableParts& s, Library library) {
  for (int i = 0; s.has_installed && i < kFns; ++i) {
    if (library_of(Fn(i)) == library && slot_of(s.installed, Fn(i))) return true;
  }
  return false;
}

void publish(TableParts& s) {
  Table* full = new Table(s.libraries);
  for (int i = 0; i < kFns; ++i) {
    if (!replaced(s, library_of(Fn(i)))) continue;
    void* slot = slot_of(s.installed, Fn(i));
    set_slot(*full, Fn(i), slot ? slot : slot_of(kMissing, Fn(i)));
  }
  s.published.push_back(full);
  behind.store(full);
  active_table.store(s.hooking ? &kHooked : full, std::memory_order_release);
}

// --- Opening ---

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable); home && *home) {
      folders.push_back(fmt::format("{}/lib64/", home));
      folders.push_back(fmt::format("{}/lib/", home));
      folders.push_back(fmt::format("{}/extras/CUPTI/lib64/", home));
    }
  }
  for (const char* home : {"/usr/local/cuda", "/opt/cuda"}) {
    folders.push_back(fmt::format("{}/lib64/", home));
    folders.push_back(fmt::format("{}/targets/x86_64-linux/lib/", home));
    folders.push_back(fmt::format("{}/extras/CUPTI/lib64/", home));
  }
  return folders;
}

// A toolkit library newer than the driver may produce code that the driver cannot load: prefer the
// driver's own version.
std::vector<std::string> versions_of(const char* name, int driver_major) {
  std::vector<std::string> names;
  if (driver_major == 12) names.push_back(fmt::format("{}.12", name));
  names.push_back(fmt::format("{}.13", name));
  if (driver_major != 12) names.push_back(fmt::format("{}.12", name));
  names.push_back(name);
  return names;
}

void* open_file(Library library, int driver_major, std::string& why) {
  if (library == Library::driver) {
    for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
      if (void* file = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return file;
    }
    why = "libcuda.so.1 not found: is an NVIDIA driver installed?";
    return nullptr;
  }
  if (library == Library::cupti && !BRRR_HAS_CUPTI) {
    why = "brrr was built without cupti.h: install CUPTI's headers and build again";
    return nullptr;
  }
  const char* name = library == Library::nvrtc      ? "libnvrtc.so"
                     : library == Library::cublaslt ? "libcublasLt.so"
                                                    : "libcupti.so";
  const std::vector<std::string> folders = toolkit_folders();
  for (const std::string& version : versions_of(name, driver_major)) {
    if (void* file = dlopen(version.c_str(), RTLD_NOW | RTLD_LOCAL)) return file;
    for (const std::string& folder : folders) {
      if (void* file = dlopen((folder + version).c_str(), RTLD_NOW | RTLD_LOCAL)) return file;
    }
  }
  why = fmt::format(
      "{} not found: install the CUDA toolkit 12.4 or newer, or set CUDA_HOME or LD_LIBRARY_PATH",
      name);
  return nullptr;
}

void take_symbols(Table& table, Library library, void* file) {
  for (int i = 0; i < kFns; ++i) {
    if (library_of(Fn(i)) != library) continue;
    void* symbol = dlsym(file, kRows[i].symbol);
    // Drivers before 12.8 have it under the first name only, with the same signature.
    if (!symbol && Fn(i) == Fn::k_cuEventElapsedTime) symbol = dlsym(file, "cuEventElapsedTime");
    set_slot(table, Fn(i), symbol ? symbol : slot_of(kMissing, Fn(i)));
  }
}

Fn find(std::string_view name) {
  for (int i = 0; i < kFns; ++i) {
    if (kRows[i].name == name) return Fn(i);
  }
  fail("[cuda] expected the name of a call in the table, got \"{}\"", name);
}

void set_hooking(bool on) {
  TableParts& s = parts();
  std::lock_guard lock(s.mutex);
  s.hooking = on;
  if (s.published.empty()) {
    publish(s);
  } else {
    active_table.store(on ? &kHooked : s.published.back(), std::memory_order_release);
  }
}

}  // namespace

constinit std::atomic<const Table*> active_table{&kOpening};

std::string_view name_of(Fn call) { return kRows[static_cast<int>(call)].name; }

std::string open_library(Library library) {
  const int driver_major = library == Library::driver ? 0 : driver_version() / 1000;
  TableParts& s = parts();
  std::lock_guard lock(s.mutex);
  const int index = static_cast<int>(library);
  if (replaced(s, library)) return {};
  if (!s.tried[index]) {
    s.tried[index] = true;
    if (void* file = open_file(library, driver_major, s.problem[index])) {
      take_symbols(s.libraries, library, file);
      publish(s);
    }
  }
  return s.problem[index];
}

int driver_version() {
  if (!open_library(Library::driver).empty()) return 0;
  int version = 0;
  return BRRR_CUDA_TRY(cuDriverGetVersion, &version) == CUDA_SUCCESS ? version : 0;
}

int nvrtc_version() {
  if (!open_library(Library::nvrtc).empty()) return 0;
  int major = 0, minor = 0;
  return BRRR_CUDA_TRY(nvrtcVersion, &major, &minor) == NVRTC_SUCCESS ? major * 1000 + minor * 10
                                                                      : 0;
}

std::string driver_problem() {
  if (std::string why = open_library(Library::driver); !why.empty()) return why;
  const int version = driver_version();
  if (version != 0 && version < kOldestDriver) {
    return fmt::format(
        "the NVIDIA driver supports CUDA {}.{}, brrr needs 12.4 or newer: update the driver",
        version / 1000, version % 1000 / 10);
  }
  const CUresult started = BRRR_CUDA_TRY(cuInit, 0);
  int count = 0;
  if (started == CUDA_SUCCESS && BRRR_CUDA_TRY(cuDeviceGetCount, &count) == CUDA_SUCCESS &&
      count > 0)
    return {};
  if (started != CUDA_SUCCESS && started != CUDA_ERROR_NO_DEVICE) {
    return fmt::format("the NVIDIA driver did not start: {}", describe(Library::driver, started));
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format("the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES=\"{}\")",
                               visible)
                 : "the NVIDIA driver shows no device";
}

std::string describe(Library library, int code) {
  // Bypasses the hooks: tests must not count or fail the calls that describe an error.
  const Table& quiet = behind.load() ? *behind.load() : table();
  const char *name = nullptr, *text = nullptr;
  switch (library) {
    case Library::driver:
      if (quiet.cuGetErrorName(static_cast<CUresult>(code), &name) != CUDA_SUCCESS) name = nullptr;
      if (quiet.cuGetErrorString(static_cast<CUresult>(code), &text) != CUDA_SUCCESS)
        text = nullptr;
      break;
    case Library::nvrtc: name = quiet.nvrtcGetErrorString(static_cast<nvrtcResult>(code)); break;
    case Library::cublaslt:
      name = quiet.cublasLtGetStatusName(static_cast<cublasStatus_t>(code));
      text = quiet.cublasLtGetStatusString(static_cast<cublasStatus_t>(code));
      break;
    case Library::cupti:
#if BRRR_HAS_CUPTI
      if (quiet.cuptiGetResultString(static_cast<CUptiResult>(code), &name) != CUPTI_SUCCESS)
        name = nullptr;
#endif
      break;
  }
  if (!name) return fmt::format("error {}", code);
  return text ? fmt::format("{} ({}): {}", name, code, text) : fmt::format("{} ({})", name, code);
}

void throw_failed(Fn call, int code, std::string_view about) {
  throw CudaError(fmt::format("[{}] {} failed{}: {}", op_or("cuda"), name_of(call),
                              about.empty() ? "" : fmt::format(" for \"{}\"", about),
                              describe(library_of(call), code)),
                  code);
}

void count_calls(bool on) {
  for (Hook& hook : hooks) hook.calls.store(0);
  set_hooking(on);
}

long call_count(std::string_view name) { return hooks[static_cast<int>(find(name))].calls.load(); }

std::vector<std::pair<std::string_view, long>> call_counts() {
  std::vector<std::pair<std::string_view, long>> counts;
  for (int i = 0; i < kFns; ++i) {
    if (const long calls = hooks[i].calls.load()) counts.emplace_back(kRows[i].name, calls);
  }
  return counts;
}

// --- For tests: cuda_testing.h ---

void fail_call(std::string_view name, long k, int code) {
  Hook& hook = hooks[static_cast<int>(find(name))];
  hook.code.store(code);
  hook.countdown.store(k);
  set_hooking(true);
}

void clear_faults() {
  for (Hook& hook : hooks) hook.countdown.store(0);
  set_hooking(false);
}

void install_table(const Table& entries) {
  TableParts& s = parts();
  std::lock_guard lock(s.mutex);
  s.installed = entries;
  s.has_installed = true;
  publish(s);
}

void uninstall_table() {
  TableParts& s = parts();
  std::lock_guard lock(s.mutex);
  s.installed = {};
  s.has_installed = false;
  publish(s);
}

}  // namespace brrr::cu
