// Owns the shared objects of generated kernels: their sources, their places on disk and in memory.
#include "brrr/ops/jit/cpu_compiler.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "brrr/ops/cpu/loops.h"
#include "brrr/ops/cpu/vector_math.h"
#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/sources.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/thread_context.h"
#include "brrr/tensor/thread_pool.h"

#if BRRR_VECTOR_MATH
// Of ops/cpu/vector_math.cpp: known by their addresses here, their types are vectors.
using VectorFunction = void (*)();
extern "C" {
#define BRRR_FUNCTIONS(name)      \
  void _ZGVbN4v_brrr_##name##f(); \
  void _ZGVbN2v_brrr_##name();    \
  void _ZGVdN8v_brrr_##name##f(); \
  void _ZGVdN4v_brrr_##name();
BRRR_FUNCTIONS(exp)
BRRR_FUNCTIONS(expm1)
BRRR_FUNCTIONS(log)
}
#endif

namespace brrr::jit {
namespace {

bool uses_v3() { return std::strcmp(on_cpu::loops->isa, "v3") == 0; }

// dlopen maps the sizes in the headers and crashes if the file is shorter. The table of sections is
// at its end.
bool is_whole(const std::string& object) {
  ElfW(Ehdr) header;
  if (object.size() < sizeof header) return false;
  std::memcpy(&header, object.data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_shoff <= object.size() &&
         object.size() - header.e_shoff >=
             std::size_t{header.e_shnum} * std::size_t{header.e_shentsize};
}

// Loaded from a private file of a new name: dlopen takes one name twice for one library. Null, and
// why, when the system refuses it.
void* open_object(const std::string& object, std::string& why) {
  if (!is_whole(object)) {
    why = "it is no whole shared object";
    return nullptr;
  }
  const DelayedSignals signals;
  const WorkPlace place;
  const std::string path = place.file("kernel.so");
  write_file(path, object);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = ::dlerror();
    why = reason ? reason : "no reason given";
  }
  return library;
}

// Gives a library the functions of ops/cpu/vector_math.cpp.
void connect(void* library) {
#if BRRR_VECTOR_MATH
  auto* functions = static_cast<VectorFunction*>(::dlsym(library, "brrr_vector_functions"));
  if (!functions) return;
  const VectorFunction baseline[] = {_ZGVbN4v_brrr_expf,  _ZGVbN2v_brrr_exp,  _ZGVbN4v_brrr_expm1f,
                                     _ZGVbN2v_brrr_expm1, _ZGVbN4v_brrr_logf, _ZGVbN2v_brrr_log};
  std::copy(std::begin(baseline), std::end(baseline), functions);
#if BRRR_HAS_ISA_V3
  const VectorFunction v3[] = {_ZGVdN8v_brrr_expf,  _ZGVdN4v_brrr_exp,  _ZGVdN8v_brrr_expm1f,
                               _ZGVdN4v_brrr_expm1, _ZGVdN8v_brrr_logf, _ZGVdN4v_brrr_log};
  if (uses_v3()) std::copy(std::begin(v3), std::end(v3), functions);
#endif
#else
  (void)library;
#endif
}

struct Less {
  bool operator()(const Hash128& a, const Hash128& b) const {
    return std::tie(a.low, a.high) < std::tie(b.low, b.high);
  }
};

const std::string& prelude() {
  static const auto* text = [] {
    auto* all = new std::string;
#if BRRR_VECTOR_MATH
    *all += "#define BRRR_VECTOR_MATH 1\n";
#endif
    for (const char* part :
         {sources::cpu_prelude_inl, sources::strided_space_inl, sources::functions_def,
          sources::scalar_math_inl, sources::philox_inl, sources::scalar_inl, sources::half_inl,
          sources::convert_inl, sources::vector_exp_inl, sources::lanes_inl,
          sources::draw_batches_inl, sources::cpu_tiles_inl, sources::cpu_bounds_inl}) {
      *all += part;
    }
    *all += "\n#line 1 \"kernel\"\n";
    return all;
  }();
  return *text;
}

std::string whole_source(std::string_view source) {
  return fmt::format("{}{}\n}}  // namespace brrr::generated\n", prelude(), source);
}

}  // namespace

Hash128 cpu_object_key(std::string_view source) {
  static const std::string of_prelude = to_hex(hash_of(prelude()));
  std::string key = "shared object";
  for (const std::string& word : compiler_command()) key += " " + word;
  return hash_of(fmt::format("{} {}\n{}", key, of_prelude, source));
}

namespace {

// Objects that are loaded, and the kernels in them, of all sources so far.
class Libraries {
 public:
  static Libraries& instance() {
    static auto* libraries = new Libraries;
    return *libraries;
  }

  void* function(const char* entry, std::string_view source) {
    std::lock_guard lock(mutex_);
    const Hash128 key = cpu_object_key(source);
    void* library = loaded(key);
    if (!library) {
      const std::string text = whole_source(source);
      library = keep(key, compile_objects({&text, 1}, 1)[0]);
    }
    return entry_of(library, entry);
  }

  std::vector<void*> kernels(std::span<const std::string> sources) {
    std::lock_guard lock(mutex_);
    std::vector<Hash128> keys;
    std::vector<Missing> missing;
    for (const std::string& source : sources) {
      const Hash128 key = keys.emplace_back(cpu_object_key(source));
      const auto is_key = [&key](const Missing& other) { return other.key == key; };
      if (kernels_.contains(key) || std::any_of(missing.begin(), missing.end(), is_key)) continue;
      if (void* found = from_disk(key)) {
        kernels_[key] = found;
      } else {
        missing.push_back({key, &source});
      }
    }
    compile(missing);
    std::vector<void*> functions;
    for (const Hash128& key : keys) functions.push_back(kernels_.at(key));
    return functions;
  }

 private:
  struct Missing {
    Hash128 key;
    const std::string* text;
  };

  static std::string name_of(const Hash128& key) { return "kernel_" + to_hex(key); }

  static void* entry_of(void* library, const char* entry) {
    void* function = ::dlsym(library, entry);
    if (!function) fail("[{}] expected the entry {} in a compiled CPU kernel", op_or("jit"), entry);
    return function;
  }

  // The object of a key: in memory or on disk. A cached object may come from another machine: one
  // that does not load is compiled again.
  void* loaded(const Hash128& key) {
    const auto found = libraries_.find(key);
    if (found != libraries_.end()) return found->second;
    std::string object, why;
    if (disk_cache::read(key, "so", object) != disk_cache::Found::yes) return nullptr;
    void* library = open_object(object, why);
    if (!library) return nullptr;
    connect(library);
    return libraries_[key] = library;
  }

  void* keep(const Hash128& key, const std::string& object) {
    std::string why;
    void* library = open_object(object, why);
    if (!library) {
      fail("[{}] the CPU kernel that {} compiled cannot be loaded: {}", op_or("jit"),
           compiler_command()[0], why);
    }
    connect(library);
    disk_cache::write(key, "so", object);
    return libraries_[key] = library;
  }

  // A kernel's entry on disk is the key of the object that has it.
  void* from_disk(const Hash128& key) {
    std::string content;
    Hash128 object;
    if (disk_cache::read(key, "kernel", content) != disk_cache::Found::yes ||
        content.size() != sizeof object)
      return nullptr;
    std::memcpy(&object, content.data(), sizeof object);
    void* library = loaded(object);
    return library ? ::dlsym(library, name_of(key).c_str()) : nullptr;
  }

  // A few kernels to a process, so that all cores compile.
  void compile(const std::vector<Missing>& missing) {
    if (missing.empty()) return;
    constexpr std::size_t kKernels = 3;
    const std::size_t processes = std::clamp<std::size_t>(
        missing.size() / kKernels, 1, static_cast<std::size_t>(available_processors()));
    std::vector<std::string> sources(processes), whole;
    for (std::size_t i = 0; i < missing.size(); ++i)
      sources[i % processes] += named(*missing[i].text, name_of(missing[i].key));
    for (const std::string& source : sources) whole.push_back(whole_source(source));
    const std::vector<std::string> objects = compile_objects(whole, missing.size());
    for (std::size_t p = 0; p < processes; ++p) {
      const Hash128 object = cpu_object_key(sources[p]);
      void* library = keep(object, objects[p]);
      for (std::size_t i = p; i < missing.size(); i += processes) {
        const Hash128& key = missing[i].key;
        kernels_[key] = entry_of(library, name_of(key).c_str());
        disk_cache::write(key, "kernel", {reinterpret_cast<const char*>(&object), sizeof object});
      }
    }
  }

  static std::string named(std::string text, std::string_view name) {
    for (std::size_t at = 0; (at = text.find(kKernelName, at)) != std::string::npos;)
      text.replace(at, kKernelName.size(), name), at += name.size();
    return text;
  }

  std::mutex mutex_;
  std::map<Hash128, void*, Less> libraries_, kernels_;
};

}  // namespace

void* load_cpu_function(const char* entry, std::string_view source) {
  return Libraries::instance().function(entry, source);
}

std::vector<void*> load_cpu_kernels(std::span<const std::string> sources) {
  return Libraries::instance().kernels(sources);
}

on_cpu::Loop pointwise_loop(const OpInfo& op, DType computed_in) {
  std::vector<DType> inputs(static_cast<std::size_t>(op.arity), computed_in);
  if (op.rule == DTypeRule::select) inputs[0] = boolean;
  const DType output = op.rule == DTypeRule::predicate ? boolean : computed_in;
  const Body body = pointwise_body(op, computed_in, 0, inputs, output);
  const std::string text = render_cpu(body) + fmt::format(R"(
extern "C" void {0}_loop(void* out, const void* const* in, i64 n) {{
  if (n == 0) return;
  StridedSpace space;
  space.operands = {1};
  space.add_dim(n);
  for (int k = 0; k < {1}; ++k) space.stride[k][0] = 1;
  Arguments a{{}};
  a.outputs = &out;
  a.inputs = in;
  a.space = &space;
  of_{0}::{0}(a, 0, n);
}}
)",
                                                          body.name, body.operands());
  return reinterpret_cast<on_cpu::Loop>(load_cpu_function((body.name + "_loop").c_str(), text));
}

}  // namespace brrr::jit
