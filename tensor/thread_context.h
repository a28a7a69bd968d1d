// The library's thread-local state: dispatch keys, names for errors, current streams and devices,
// the trace, autograd's state. One struct, so that it is documented in one place and reached by one
// load. Types of higher layers are opaque here. Caches that one file uses, such as free lists, are
// thread-locals of that file.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <brrr/tensor/device.h>

namespace brrr {

namespace core {
struct StreamState;
}
class TraceListener;

namespace cu {
struct DeviceState;
}
namespace on_cuda {
enum class ProgrammaticLaunch : std::uint8_t;
}
namespace jit {
class KernelCollection;
struct LoadedKernels;
}  // namespace jit
namespace autograd {
class Journal;
struct DoomedNodes;
}  // namespace autograd

struct ThreadContext {
  // --- Dispatch (dispatch/keys.h) ---
  std::uint32_t included_keys = 0;  // added to the keys of each call's inputs
  std::uint32_t excluded_keys = 0;  // removed from them

  // --- Errors: static texts ---
  const char* op = nullptr;         // the running op: OpScope
  const char* composite = nullptr;  // the outermost running composite: CompositeScope

  // --- Where work goes ---
  // The current stream of each device, by type and index; null: the default one.
  StreamState* streams[2][kMaxDevices] = {};
  cu::DeviceState* cuda_device = nullptr;  // the device whose context is current
  std::optional<Device> default_device;    // where creation functions allocate: DeviceGuard
  bool in_parallel_loop = false;           // the thread runs chunks of a parallel_for

  // --- Choices of kernels and launches ---
  std::int8_t matmul_precision = -1;  // a Precision: MatmulPrecisionGuard; -1: the process's
  std::int8_t matmul_choice = -1;     // a MatmulChoice: MatmulChoiceGuard; -1: the process's
  on_cuda::ProgrammaticLaunch programmatic_launch{};   // ProgrammaticScope
  jit::KernelCollection* kernel_collection = nullptr;  // notes kernels instead of loading them
  jit::LoadedKernels* loaded_kernels = nullptr;        // records loads: LoadedKernelsScope

  // --- Tracing (dispatch/tracing.h) ---
  TraceListener* trace_listener = nullptr;  // the trace that records this thread
  // Set while the thread traces: stream waits and synchronization call it with their name, and it
  // throws, since a wait during a trace has no effect on the compiled step.
  void (*refuse_ordering)(const char* what) = nullptr;
  bool constants_are_intended = false;  // IntendedConstants

  // --- Autograd ---
  bool* checkpoint_notices = nullptr;    // if not null, set to true in place of recording a node
  autograd::Journal* journal = nullptr;  // records gradients that a traced step reads or changes
  bool detect_anomaly = false;           // DetectAnomaly
  int backward_runs = 0;                 // nested ones included
  int recomputation = 0;                 // number of the checkpoint being rerun; 0: none
  int last_recomputation = 0;
  std::uint64_t last_sequence = 0;   // the highest sequence of the nodes recorded by the thread
  std::uint64_t differentiated = 0;  // sequence of the node whose gradient rule runs; 0: none
  autograd::DoomedNodes* doomed_nodes = nullptr;  // nodes to free, in the loop of free_chain

  StreamState*& stream(Device device) {
    return streams[static_cast<int>(device.type)][device.index];
  }
};

extern constinit thread_local ThreadContext thread_context;

// Sets a member of the thread's context until the end of the scope.
template <auto kMember>
class ContextScope {
  using Value = std::remove_reference_t<decltype(thread_context.*kMember)>;

 public:
  explicit ContextScope(Value value) : before_(std::exchange(thread_context.*kMember, value)) {}
  ~ContextScope() { thread_context.*kMember = before_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Value before_;
};

// Sets the op that errors of CUDA calls, allocators and kernel compilers name.
using OpScope = ContextScope<&ThreadContext::op>;

// The running op; `otherwise` outside of ops.
inline const char* op_or(const char* otherwise) {
  return thread_context.op ? thread_context.op : otherwise;
}

// Scope in which errors of ops name the composite that the user called: "[softmax] ..." and not
// "[max] ...". In nested scopes the outermost name is used.
class CompositeScope : public ContextScope<&ThreadContext::composite> {
 public:
  explicit CompositeScope(const char* name)
      : ContextScope(thread_context.composite ? thread_context.composite : name) {}
};

inline StreamState* current_cpu_queue() { return thread_context.streams[0][0]; }

// Throws if the thread traces. `what`: the function that would wait for work, or order it.
inline void refuse_ordering_in_trace(const char* what) {
  if (thread_context.refuse_ordering) [[unlikely]]
    thread_context.refuse_ordering(what);
}

}  // namespace brrr
