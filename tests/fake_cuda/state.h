// The inside of the fake driver, shared by its source files.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "tests/fake_cuda/driver.h"
#include <brrr/tensor/cuda_api.h>

namespace brrr::testing {

// One recording of an event.
struct FakePoint {
  bool done = false;
  double time = 0;
};

// A kernel with its arguments copied, to run later and perhaps often.
struct FakeKernelCall {
  CUDA_KERNEL_NODE_PARAMS params{};
  std::vector<std::vector<char>> arguments;
  std::vector<void*> pointers;
};

struct FakeEntry {
  enum Kind { work, host_work, record, wait } kind = work;
  std::function<void()> run;
  std::shared_ptr<FakePoint> point;
  std::shared_ptr<FakeKernelCall> kernel = nullptr;
};

struct FakeNode {
  std::function<void()> run;
  bool host = false;
  std::vector<int> after;  // nodes that come before
  std::shared_ptr<FakeKernelCall> kernel = nullptr;
};
struct FakeGraph;
struct FakeGraphHandle {  // what a CUgraph points to
  std::shared_ptr<FakeGraph> graph;
};
struct FakeGraph {
  std::vector<FakeNode> nodes;
  bool broken = false;                      // the capture was invalidated
  std::shared_ptr<FakeGraphHandle> handle;  // of a capture under way
};
struct FakeNodeHandle {  // what a CUgraphNode points to
  FakeGraph* graph;
  int index;
};

struct FakeDevice {
  int index = 0, retained = 0;
  std::size_t used = 0;
};
struct FakeStream {
  FakeDevice* device;
  std::deque<FakeEntry> queue;
  bool running = false;  // a host function of it runs right now
  bool blocked = false;  // by the test
  std::shared_ptr<FakeGraph> capture;
  CUstreamCaptureMode mode{};
  std::vector<int> capture_tail;
  bool origin = false;  // where the capture began
};
struct FakeEvent {
  FakeDevice* device;
  bool timed;
  std::shared_ptr<FakePoint> point;
  std::shared_ptr<FakeGraph> capture;
  std::vector<int> capture_tail;
};
struct FakeKernel {
  std::vector<std::size_t> argument_sizes;
  std::function<void(const FakeLaunch&)> run;
};
struct FakeModule {
  std::string image;
};
struct FakeFunction {
  std::string name;
  FakeKernel* kernel;  // null: does nothing
};

// The live objects of a kind; the driver's destructor frees them at the latest.
class FakeObjects {
 public:
  template <class T>
  T* add(T object) {
    auto made = std::make_shared<T>(std::move(object));
    T* const at = made.get();
    objects_[at] = std::move(made);
    return at;
  }
  bool drop(const void* object) { return objects_.erase(object) == 1; }
  long count() const { return static_cast<long>(objects_.size()); }

 private:
  std::map<const void*, std::shared_ptr<void>> objects_;
};

// The duration of a kernel, long enough that timing loops run few calls.
constexpr double kEntryTime = 10e-6;

struct FakeState {
  mutable std::mutex mutex;
  std::condition_variable changed;
  FakeOptions options;
  cu::Table table;  // as installed
  std::mt19937_64 random;
  std::string problem;
  bool ignore_waits = false, events_lie = false, has_bug = false;
  double clock = 0;  // seconds: kEntryTime for each entry of a stream and node of a graph

  std::vector<FakeDevice> devices;
  struct Allocation {
    std::size_t size;
    FakeDevice* device;
  };
  std::map<std::uintptr_t, Allocation> memory;
  std::map<std::uintptr_t, std::size_t> pinned;
  std::vector<std::unique_ptr<FakeStream>> streams;
  FakeObjects events, modules, graphs, executables, programs, library_objects;
  std::vector<std::unique_ptr<FakeNodeHandle>> nodes;
  std::map<std::string, FakeKernel> kernels;
  std::vector<std::unique_ptr<FakeFunction>> functions;
  std::vector<std::string> compiled;
  std::string refused = "#error";                 // texts that contain it do not compile
  std::map<const void*, FakeStream*> workspaces;  // of products, and where the last one runs

  using Lock = std::unique_lock<std::mutex>;

  void complain(std::string text) {
    if (problem.empty()) problem = std::move(text);
  }
  // Adds work to the stream, or to the graph that captures it.
  void add(FakeStream& stream, FakeEntry entry);
  // Runs one entry of a random ready stream; false if there is none. Releases the lock for host
  // work.
  bool step(Lock& lock);
  // Runs entries until `done`; complains if none is ready.
  template <class F>
  void run_until(Lock& lock, F&& done) {
    while (!done()) {
      if (step(lock)) continue;
      bool running = false, blocked = false;
      for (auto& stream : streams) {
        running |= stream->running;
        blocked |= stream->blocked;
      }
      // Another thread may unblock a stream, within a time limit.
      if (running) {
        changed.wait(lock);
      } else if (!blocked ||
                 changed.wait_for(lock, std::chrono::seconds(10)) == std::cv_status::timeout) {
        complain("nothing can run, and the host waits");
        return;
      }
    }
  }
  // Breaks the captures that the calling thread's call would break; true when there is one.
  bool breaks_capture();
  bool valid(std::uintptr_t address, std::size_t bytes) const;
  void run_graph(const std::shared_ptr<FakeGraph>& graph);
};

extern FakeState* fake;
extern thread_local bool in_host_work;
extern thread_local FakeDevice* current_fake_device;
extern thread_local CUstreamCaptureMode fake_capture_mode;

void add_fake_memory_calls(cu::Table& table);   // memory.cpp
void add_fake_graph_calls(cu::Table& table);    // graph.cpp
void add_fake_library_calls(cu::Table& table);  // libraries.cpp
void add_absent_cupti(cu::Table& table);        // cupti.cpp

inline FakeStream* stream_of(CUstream stream) { return reinterpret_cast<FakeStream*>(stream); }

// The start of nearly every call: refuses host functions, takes the lock.
#define FAKE_ENTER()                                                        \
  if (in_host_work) {                                                       \
    fake->complain(std::string(__func__) + " called from a host function"); \
    return CUDA_ERROR_NOT_PERMITTED;                                        \
  }                                                                         \
  FakeState::Lock lock(fake->mutex)
#define FAKE_NEED_CONTEXT() \
  if (!current_fake_device) return CUDA_ERROR_INVALID_CONTEXT

}  // namespace brrr::testing
