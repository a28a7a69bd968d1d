// All that the library keeps for each thread: which keys its calls have, what errors name, where
// work goes, what records a trace. One struct, so that it can be read in one place and is
// reached by one load. Types of higher layers are opaque here. Free lists and other caches of one
// file are thread-locals of that file.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <brrr/tensor/device.h>

namespace brrr {

struct StreamState;
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
  std::uint32_t included_keys = 0;  // of each call, beside its inputs' keys
  std::uint32_t excluded_keys = 0;  // of no call

  // --- Errors: static texts ---
  const char* op = nullptr;         // that runs: OpScope
  const char* composite = nullptr;  // the outermost composite that runs: CompositeScope

  // --- Where work goes ---
  // The current stream of each device, by type and index; null: the default one.
  StreamState* streams[2][kMaxDevices] = {};
  cu::DeviceState* cuda_device = nullptr;  // whose context is the driver's current one
  std::optional<Device> default_device;    // of creation: DeviceGuard
  bool in_parallel_loop = false;           // the thread runs chunks of a parallel_for

  // --- Choices of kernels and launches ---
  std::int8_t matmul_precision = -1;  // a Precision: MatmulPrecisionGuard; -1: the process's
  std::int8_t matmul_choice = -1;     // a Choice: MatmulChoiceGuard; -1: the process's
  on_cuda::ProgrammaticLaunch programmatic_launch{};   // of kernels: ProgrammaticScope
  jit::KernelCollection* kernel_collection = nullptr;  // notes kernels instead of loading them
  jit::LoadedKernels* loaded_kernels = nullptr;        // gets what is loaded: LoadedKernelsScope

  // --- Tracing (dispatch/tracing.h) ---
  TraceListener* trace_listener = nullptr;  // the trace that records this thread
  // Called before stream waits and synchronization with their name while the thread traces; it
  // throws, since a wait during a trace has no effect on the compiled step.
  void (*refuse_ordering)(const char* what) = nullptr;
  bool constants_are_intended = false;  // IntendedConstants

  // --- Autograd ---
  bool* checkpoint_notices = nullptr;    // set instead of recording
  autograd::Journal* journal = nullptr;  // of gradients that the traced step reads and changes
  bool detect_anomaly = false;           // DetectAnomaly
  int backward_runs = 0;                 // nested ones included
  int recomputation = 0;                 // the number of the checkpoint that runs again; 0: none
  int last_recomputation = 0;
  std::uint64_t last_sequence = 0;   // of the nodes that the thread recorded
  std::uint64_t differentiated = 0;  // of the node whose gradients are computed; 0: none
  autograd::DoomedNodes* doomed_nodes = nullptr;  // to be freed by the loop that runs

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

// Names the op that runs, in errors of the CUDA table, of allocators and of kernel compilers.
using OpScope = ContextScope<&ThreadContext::op>;

// The op that runs, or another name outside of ops.
inline const char* op_or(const char* otherwise) {
  return thread_context.op ? thread_context.op : otherwise;
}

// While it lives, an error of an op that a composite calls names the composite, which is what the
// user called: "[softmax] ..." and not "[max] ...". The outermost one counts.
class CompositeScope : public ContextScope<&ThreadContext::composite> {
 public:
  explicit CompositeScope(const char* name)
      : ContextScope(thread_context.composite ? thread_context.composite : name) {}
};

inline StreamState* current_cpu_queue() { return thread_context.streams[0][0]; }

// Throws while the thread traces: `what` waits for work, or orders it.
inline void refuse_ordering_in_trace(const char* what) {
  if (thread_context.refuse_ordering) [[unlikely]]
    thread_context.refuse_ordering(what);
}

}  // namespace brrr
