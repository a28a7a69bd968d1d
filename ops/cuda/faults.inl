// The device's side of tensor/cuda_faults.h, prepended to every kernel that checks.

struct FaultSink {
  unsigned long long record, flag, launch, op;
};
struct FaultRecord {
  unsigned long long launch, rank;
  long long value, low, high;
  unsigned long long op;
  unsigned int lock, kind;
};
enum FaultKind { kIndexFault, kIntegerFault, kFloatingFault };

// Not inlined, so that it costs kernels no registers.
static __device__ __noinline__ void report_fault(FaultSink sink, long long position, FaultKind kind,
                                                 long long value, long long low, long long high) {
  FaultRecord* record = (FaultRecord*)sink.record;
  const unsigned long long owner = atomicCAS(&record->launch, 0ull, sink.launch);
  if (owner != 0 && owner != sink.launch) return;
  const unsigned long long rank = ~(unsigned long long)position;
  if (*(volatile unsigned long long*)&record->rank >= rank) return;
  // The lock is acquired and released within one branch: if the lanes of a warp reconverged while
  // one of them held the lock, they would deadlock. A waiting lane gives up as soon as a lower
  // position is recorded, so a million faults acquire the lock a few times only.
  volatile FaultRecord* mine = record;
  for (bool done = false; !done;) {
    if (mine->rank >= rank) {
      done = true;
    } else if (atomicCAS(&record->lock, 0u, 1u) == 0u) {
      __threadfence();
      if (mine->rank < rank) {
        mine->rank = rank;
        mine->value = value;
        mine->low = low;
        mine->high = high;
        mine->op = sink.op;
        mine->kind = kind;
        __threadfence_system();
        *(volatile unsigned int*)sink.flag = 1;
      }
      __threadfence();
      atomicExch(&record->lock, 0u);
      done = true;
    }
  }
}

static __device__ __forceinline__ bool index_in_range(FaultSink sink, long long position,
                                                      long long value, long long bound) {
  if (value >= 0 && value < bound) return true;
  report_fault(sink, position, kIndexFault, value, 0, bound);
  return false;
}

// The index, or after a report the nearest one in range. `bound` is at least 1.
static __device__ __forceinline__ long long checked_index(FaultSink sink, long long position,
                                                          long long value, long long bound) {
  if (index_in_range(sink, position, value, bound)) return value;
  return value < 0 ? 0 : bound - 1;
}
static __device__ __forceinline__ long long index_within(long long value, long long bound) {
  return value < 0 ? 0 : value < bound ? value : bound - 1;
}

static __device__ __forceinline__ long long bits_of(double a) { return __double_as_longlong(a); }
static __device__ __forceinline__ long long bits_of(long long a) { return a; }

// Returns `given`. `value` is the same in the type of the bounds, double or long long.
template <class T, class V>
static __device__ __forceinline__ T checked_range(FaultSink sink, long long position, T given,
                                                  V value, V low, V high) {
  const bool floating = V(0.5) != V(0);
  if (!(value >= low && value <= high))
    report_fault(sink, position, floating ? kFloatingFault : kIntegerFault, bits_of(value),
                 bits_of(low), bits_of(high));
  return given;
}
