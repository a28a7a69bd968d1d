// Every call of every kind that the workloads make fails once: a typed error, nothing changed,
// nothing leaked, and the retry computes the same.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/catch.h"
#include "tests/harness/cuda_memory.h"

using namespace brrr;
using namespace brrr::testing;

namespace {

using Workload = std::vector<int> (*)();

// Each returns what it computed; `existing` tensors are made by the caller.
std::vector<int> allocate_and_copy() {
  std::vector<int> in(40000), out(40000);
  for (int i = 0; i < 40000; ++i) in[i] = i;
  const Tensor a = bytes_on_gpu(160000), b = bytes_on_gpu(160000);
  copy_from_host(a, in.data());
  copy_bytes(b, a);
  copy_to_host(out.data(), b);
  return out;
}
std::vector<int> large_staged_copy() {
  std::vector<int> in(2 * kMiB + 64), out(2 * kMiB + 64);  // two slots of staging and a bit
  for (std::size_t i = 0; i < in.size(); i += 97) in[i] = static_cast<int>(i);
  const Tensor a = bytes_on_gpu(4 * in.size());
  copy_from_host(a, in.data());
  copy_to_host(out.data(), a);
  return out;
}
std::vector<int> pinned_copies() {
  std::vector<int> out(40000);
  const std::int64_t shape[] = {40000};
  {
    const Tensor there = bytes_on_gpu(160000), back = make_pinned_tensor(i32, shape);
    const Tensor x = make_pinned_tensor(i32, shape);
    for (int i = 0; i < 40000; ++i) x.data<int>()[i] = i;
    copy_bytes(there, x, Async::yes);
    copy_bytes(back, there, Async::yes);
    Stream::current(gpu).synchronize();
    std::copy_n(back.data<int>(), out.size(), out.begin());
  }
  make_pinned_tensor(i32, shape);  // takes back what the others had
  return out;
}
std::vector<int> streams_and_events() {
  const Stream a(gpu), b(gpu);
  std::vector<int> in(256, 3), out(256);
  {
    StreamGuard guard(a);
    const Tensor x = bytes_on_gpu(1024);
    copy_from_host(x, in.data());
    b.wait(a.record());
    StreamGuard inner(b);
    const Tensor y = bytes_on_gpu(1024);
    copy_bytes(y, x);
    copy_to_host(out.data(), y);
    Event done(gpu, true);
    done.record(b);
    done.synchronize();
    if (done.done()) out.push_back(1);
  }
  synchronize(gpu);
  return out;
}
std::vector<int> cross_stream_reuse() {
  const Stream other(gpu);
  std::vector<int> out(8);
  for (int i = 0; i < 8; ++i) {
    const Tensor x = bytes_on_gpu(2 * kMiB - 1024);
    cuda_runtime().fill_bytes(*StreamState::of(Stream::default_of(gpu)), x.data(), i, 4);
    other.wait(Stream::default_of(gpu).record());
    StreamGuard guard(other);
    copy_to_host(&out[i], make_view(x, std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1}));
  }
  empty_cache(gpu);
  return out;
}
std::vector<int> host_work() {
  const Stream stream(gpu);
  auto value = std::make_shared<int>(1);
  for (int i = 0; i < 3; ++i) stream.enqueue([value] { *value *= 2; });
  stream.synchronize();
  return {*value};
}
std::vector<int> pass_through() {
  PassThrough on;
  return allocate_and_copy();
}
std::vector<int> nearly_full() {
  std::vector<int> out;
  for (int i = 0; i < 3; ++i) {
    const Tensor a = bytes_on_gpu(60 * kMiB);
    const Tensor b = bytes_on_gpu(std::size_t(20 + i) * kMiB);
    out.push_back(static_cast<int>(a.bytes() + b.bytes()));
  }
  return out;
}
std::vector<int> captured() {
  auto& stream = static_cast<cu::CudaStream&>(*StreamState::of(Stream::default_of(gpu)));
  const Tensor x = bytes_on_gpu(1024);
  cu::CapturePool pool(*stream.on);
  struct Graph {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ~Graph() {
      if (exec && BRRR_CUDA_TRY(cuGraphExecDestroy, exec) != CUDA_SUCCESS)
        BRRR_CUDA_TRY(cuGraphExecDestroy, exec);
      if (graph && BRRR_CUDA_TRY(cuGraphDestroy, graph) != CUDA_SUCCESS)
        BRRR_CUDA_TRY(cuGraphDestroy, graph);
    }
  } g;
  cu::begin_capture(pool, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  try {
    cuda_runtime().fill_bytes(stream, x.data(), 9, 1024);
  } catch (...) {
    g.graph = cu::end_capture(pool, stream);
    throw;
  }
  g.graph = cu::end_capture(pool, stream);
  BRRR_CUDA(cuGraphInstantiate, &g.exec, g.graph, 0);
  BRRR_CUDA(cuGraphLaunch, g.exec, stream.handle);
  std::vector<int> out(256);
  copy_to_host(out.data(), x);
  return out;
}

constexpr std::pair<const char*, Workload> kWorkloads[] = {
    {"allocate_and_copy", allocate_and_copy},
    {"large_staged_copy", large_staged_copy},
    {"pinned_copies", pinned_copies},
    {"streams_and_events", streams_and_events},
    {"cross_stream_reuse", cross_stream_reuse},
    {"host_work", host_work},
    {"pass_through", pass_through},
    {"nearly_full", nearly_full},
    {"captured", captured},
};
constexpr FakeOptions kFaultDriver{.capacity = 128 * kMiB, .seed = 9};

// Makes the k-th call of a name fail, twice; returns whether the workload threw the first time.
template <class Workload>
bool survives(const Workload& workload, const std::vector<int>& expected, std::string_view call,
              long k, CUresult code) {
  FakeCuda fake(kFaultDriver);
  bool failed = false;
  {
    cu::fail_call(call, k, code);
    std::vector<int> result;
    try {
      result = workload();
    } catch (const Error& error) {
      failed = true;
      // Work on a queue, a missing device and memory have their own words; the rest names
      // the call.
      CHECK_FALSE(std::string(error.what()).empty());
    }
    if (!failed) CHECK(result == expected);  // the fault was made good
    cu::clear_faults();
    // The failure of device discovery is remembered until the runtime is started anew.
    if (!cuda_is_available()) cu::shut_down();
    std::vector<int> seven(64, 7), read(64);
    const Tensor existing = bytes_on_gpu(256);
    copy_from_host(existing, seven.data());
    const std::int64_t live = memory_stats(gpu).live;
    cu::fail_call(call, k, code);
    try {
      workload();
    } catch (const Error&) {
    }
    cu::clear_faults();
    copy_to_host(read.data(), existing);
    CHECK(read == seven);
    CHECK(memory_stats(gpu).live == live);
    CHECK(workload() == expected);
  }
  CHECK(memory_stats(gpu).live == 0);
  CHECK(fake.problem() == "");
  cu::shut_down();
  CHECK(fake.counts() == FakeCounts{});
  return failed;
}

}  // namespace

TEST_CASE("a fault at every call: typed error, nothing changed, nothing leaked, the retry agrees",
          "[cuda_faults]") {
  long faults = 0, thrown = 0;
  for (const auto& [name, workload] : kWorkloads) {
    INFO(name);
    std::vector<int> expected;
    std::vector<std::pair<std::string_view, long>> calls;
    {
      FakeCuda fake(kFaultDriver);
      cu::count_calls(true);
      expected = workload();
      calls = cu::call_counts();
      cu::count_calls(false);
    }
    for (const auto& [call, count] : calls) {
      for (long k = 1; k <= count; ++k) {
        INFO(call << " number " << k);
        for (const CUresult code : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
          ++faults;
          thrown += survives(workload, expected, call, k, code);
        }
      }
    }
  }
  CHECK(thrown > faults / 2);
}
