// The runtime on a real GPU, compared with the CPU: copies of every size, kind and dtype, files and
// DLPack, observers, random draws.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "brrr/dispatch/observe.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/io/dlpack.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"

using namespace brrr;
using brrr::testing::bits_of, brrr::testing::delay, brrr::testing::kGpu, brrr::testing::same_bits;
using interchange::kAllDTypes;

namespace {

constexpr std::size_t kKiB = 1024, kMB = 1000 * 1000;
constexpr std::size_t kSizes[] = {0,
                                  1,
                                  3,
                                  4096,
                                  64 * kKiB - 1,
                                  64 * kKiB,
                                  64 * kKiB + 1,
                                  4096 * kKiB - 1,
                                  4096 * kKiB + 1,
                                  10 * kMB,
                                  300 * kMB};

// Plain bytes: no op looks at them.
Tensor raw(std::size_t bytes, Device device = kGpu) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(bytes)};
  return make_tensor(boolean, shape, device);
}

void fill(void* to, std::size_t bytes, std::uint64_t seed) {
  auto* out = static_cast<unsigned char*>(to);
  std::uint64_t state = seed * 2 + 1;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out[i] = static_cast<unsigned char>(state >> 56);
  }
}

bool equal(const void* a, const void* b, std::size_t bytes) {
  return bytes == 0 || std::memcmp(a, b, bytes) == 0;
}

// The same elements and strides on the device.
Tensor on_gpu(const Tensor& tensor) {
  const std::size_t element = size_of(tensor.dtype());
  const auto length = static_cast<std::int64_t>(TensorImpl::of(tensor)->storage->bytes / element);
  const Tensor whole = make_tensor(tensor.dtype(), Dims{length}, kGpu);
  copy_from_host(whole, TensorImpl::of(tensor)->storage->data);
  return make_view(whole, tensor.shape(), tensor.strides(), tensor.storage_offset());
}

Tensor pinned(std::size_t bytes) {
  return make_pinned_tensor(boolean, Dims{static_cast<std::int64_t>(bytes)});
}

}  // namespace

TEST_CASE("pageable memory goes to CUDA and back at any size", "[gpu][runtime][copy]") {
  for (const std::size_t bytes : kSizes) {
    INFO(bytes << " bytes");
    std::vector<unsigned char> host(bytes), back(bytes, 1);
    fill(host.data(), bytes, bytes);
    const std::vector<unsigned char> kept = host;
    const Tensor there = raw(bytes);
    copy_from_host(there, host.data());
    std::fill(host.begin(), host.end(), 0xee);  // the source is ours again at return
    const Tensor other = raw(bytes);
    copy_bytes(other, there);
    copy_to_host(back.data(), other);
    CHECK(equal(back.data(), kept.data(), bytes));
    const Tensor home = raw(bytes, cpu);
    copy_bytes(home, there);
    CHECK(equal(home.data(), kept.data(), bytes));
  }
}

TEST_CASE("pinned memory goes to CUDA and back at any size, asynchronously too",
          "[gpu][runtime][copy]") {
  for (const std::size_t bytes : kSizes) {
    INFO(bytes << " bytes");
    const Tensor host = pinned(bytes), back = pinned(bytes), late = pinned(bytes);
    fill(host.data(), bytes, bytes + 1);
    std::vector<unsigned char> kept(bytes);
    if (bytes) std::memcpy(kept.data(), host.data(), bytes);
    const Stream stream(kGpu);
    const brrr::StreamGuard guard(stream);
    const Tensor there = raw(bytes), copied = raw(bytes);
    copy_from_host(there, host.data(), Async::yes);
    copy_bytes(copied, there);
    copy_to_host(late.data(), copied, Async::yes);
    stream.synchronize();
    CHECK(equal(late.data(), kept.data(), bytes));

    // Without Async the source may be changed, and the destination read, at return.
    delay(200);
    copy_from_host(copied, host.data());
    std::memset(host.data(), 0xee, bytes);
    delay(200);
    copy_to_host(back.data(), copied);
    CHECK(equal(back.data(), kept.data(), bytes));
  }
}

TEST_CASE("asynchronous copies leave the host free", "[gpu][runtime][copy]") {
  const std::size_t bytes = 4 * kMB;
  const Tensor host = pinned(bytes), back = pinned(bytes);
  fill(host.data(), bytes, 3);
  const Stream stream(kGpu);
  const brrr::StreamGuard guard(stream);
  const Tensor there = raw(bytes);
  delay(1);
  stream.synchronize();
  delay(30000);
  copy_from_host(there, host.data(), Async::yes);
  copy_to_host(back.data(), there, Async::yes);
  CHECK_FALSE(stream.idle());
  stream.synchronize();
  CHECK(equal(back.data(), host.data(), bytes));
}

TEST_CASE("many small copies behind slow work arrive in order", "[gpu][runtime][copy]") {
  const Stream stream(kGpu);
  const brrr::StreamGuard guard(stream);
  std::vector<Tensor> there;
  delay(2000);
  std::vector<std::int64_t> value(100);
  for (std::int64_t i = 0; i < 100; ++i) {
    std::fill(value.begin(), value.end(), i);
    there.push_back(tensor(value, {100}, kGpu));
  }
  long wrong = 0;
  for (std::int64_t i = 0; i < 100; ++i)
    wrong += to_vector<std::int64_t>(there[static_cast<std::size_t>(i)]) !=
             std::vector<std::int64_t>(100, i);
  CHECK(wrong == 0);
}

TEST_CASE("every dtype and layout keeps its bits on the way to CUDA and back",
          "[gpu][runtime][copy]") {
  for (const DType dtype : kAllDTypes) {
    for (const Tensor& tensor : interchange::layouts(dtype)) {
      INFO(tensor.describe() << " strides " << to_string(tensor.strides()));
      const std::vector<std::byte> bits = bits_of(tensor);
      CHECK(bits_of(on_gpu(tensor)) == bits);
      if (std::ranges::any_of(tensor.strides(), [](auto s) { return s < 0; })) continue;
      CHECK(bits_of(to(to(contiguous(tensor), kGpu), cpu)) == bits);
      CHECK(bits_of(contiguous(on_gpu(tensor))) == bits);
      CHECK(bits_of(clone(on_gpu(tensor))) == bits);
    }
    const Tensor large = interchange::filled(dtype, {1000, 1003});
    CHECK(bits_of(to(large, kGpu)) == bits_of(large));
    const Tensor transposed = transpose(on_gpu(large), 0, 1);
    CHECK(bits_of(contiguous(transposed)) == bits_of(transpose(large, 0, 1)));
  }
}

TEST_CASE("CUDA tensors are saved in files as those of the CPU", "[gpu][runtime][copy]") {
  const interchange::TemporaryFolder folder;
  for (const DType dtype : kAllDTypes) {
    SafeTensors here, there;
    int number = 0;
    for (const Tensor& tensor : interchange::layouts(dtype)) {
      const Tensor moved = on_gpu(tensor);
      INFO(tensor.describe() << " strides " << to_string(tensor.strides()));
      if (dtype != bf16) {
        save_npy(folder / "t.npy", moved);
        CHECK(same_bits(load_npy(folder / "t.npy"), tensor));
        CHECK(format_npy(moved) == format_npy(tensor));
      }
      here.tensors.emplace_back("t" + std::to_string(number), tensor);
      there.tensors.emplace_back("t" + std::to_string(number++), moved);
    }
    save_safetensors(folder / "t.safetensors", there);
    CHECK(interchange::read_file(folder / "t.safetensors") == format_safetensors(here));
    const SafeTensors again = load_safetensors(folder / "t.safetensors");
    for (const auto& [name, tensor] : here.tensors) CHECK(same_bits(again.at(name), tensor));
  }
  // What is saved is what the current stream has made by then.
  const Stream stream(kGpu);
  const brrr::StreamGuard guard(stream);
  const Tensor x = full({1000}, 1, {.device = kGpu});
  const Tensor y = brrr::testing::slow_copy(x + 1, 5000);
  save_npy(folder / "late.npy", y);
  CHECK(to_vector<float>(load_npy(folder / "late.npy")) == std::vector<float>(1000, 2.0f));
}

TEST_CASE("CUDA tensors go through DLPack without a copy", "[gpu][runtime][copy]") {
  const std::int64_t live = memory_stats(kGpu).live;
  {
    Tensor x = full({64, 32}, 1, {.device = kGpu});
    const Tensor transposed = transpose(x, 0, 1);
    dlpack::DLManagedTensorVersioned* managed = to_dlpack(transposed);
    CHECK(managed->dl_tensor.device.device_type == dlpack::kDLCUDA);
    CHECK(managed->dl_tensor.device.device_id == 0);
    CHECK(managed->dl_tensor.data == x.data());
    Tensor back = from_dlpack(managed);
    CHECK(back.data() == x.data());
    CHECK(back.device() == kGpu);
    CHECK(std::ranges::equal(back.shape(), transposed.shape()));
    CHECK(std::ranges::equal(back.strides(), transposed.strides()));

    fill_(x, 5);
    CHECK(item(sum(back)) == 5.0 * 64 * 32);
    back += 1;
    CHECK(item(sum(x)) == 6.0 * 64 * 32);
    x = Tensor();
    CHECK(item(sum(back)) == 6.0 * 64 * 32);
    CHECK(memory_stats(kGpu).live >= live + 64 * 32 * 4);

    managed = to_dlpack(back);
    managed->flags = dlpack::kReadOnly;
    const Tensor copied = from_dlpack(managed);
    CHECK(copied.data() != back.data());
    CHECK(item(sum(copied)) == 6.0 * 64 * 32);

    const Tensor old = from_dlpack(to_dlpack_legacy(back));
    CHECK(old.data() == back.data());
  }
  CHECK(memory_stats(kGpu).live == live);
}

TEST_CASE("observers see the ops on CUDA", "[gpu][runtime]") {
  struct Counter : Observer {
    std::map<std::string, int> seen;
    int before_count = 0, after_count = 0;
    std::string last;
    void before(const Call& call) override {
      ++before_count;
      last = describe(call);
    }
    void after(const Call& call, std::span<const Tensor> outputs) override {
      ++seen[op_info(call.op).name];
      after_count += outputs[0].defined() && outputs[0].device() == kGpu;
    }
  } counter;
  const Tensor x = zeros({2, 3}, {.device = kGpu}), y = zeros({3, 2}, {.device = kGpu});
  {
    const Observing observing(counter);
    const Tensor z = (x + 2) * x;
    CHECK(counter.before_count == 2);
    CHECK(counter.last == "mul(f32[2, 3] on cuda:0, f32[2, 3] on cuda:0)");
    view(x, {6});
    CHECK(counter.last == "view(f32[2, 3] on cuda:0, shape=[6])");
    matmul(z, y);
    sum(z, {1});
    Tensor w = clone(z);
    w += 1;
    copy_(w, x);
    // Of a failed call only the beginning is seen.
    CHECK_THROWS_AS(add(x, y), Error);
  }
  add(x, x);
  CHECK(counter.seen["add"] == 2);
  CHECK(counter.seen["mul"] == 1);
  CHECK(counter.seen["view"] == 1);
  CHECK(counter.seen["matmul"] == 1);
  CHECK(counter.seen["sum"] == 1);
  CHECK(counter.seen["copy"] == 2);
  CHECK(std::accumulate(counter.seen.begin(), counter.seen.end(), 0, [](int n, const auto& entry) {
          return n + entry.second;
        }) == counter.after_count);
}

TEST_CASE("random draws on CUDA have the bits of the CPU's", "[gpu][runtime][random]") {
  for (const std::uint64_t seed : {0ull, 1ull, 77ull, ~0ull}) {
    std::vector<Tensor> drawn[2];
    for (const Device device : {cpu, kGpu}) {
      std::vector<Tensor>& out = drawn[device.is_cuda()];
      const Tensor x = to(full({100, 37}, 1.25), device), p = to(full({1000}, 0.3), device);
      manual_seed(seed);
      out.push_back(rand({1001}, {.device = device}));
      out.push_back(randn({1001}, {.dtype = f64, .device = device}));
      out.push_back(randn({3, 5, 7}, {.dtype = bf16, .device = device}));
      out.push_back(randint(-5, 17, {1000}, {.dtype = i64, .device = device}));
      out.push_back(randint(0, 1 << 30, {999}, {.dtype = i32, .device = device}));
      out.push_back(bernoulli(p));
      out.push_back(bernoulli(to(p, f64)));
      out.push_back(bernoulli(to(p, bf16)));
      out.push_back(dropout(x, 0.25));
      out.push_back(dropout(to(x, bf16), 0.5));
      out.push_back(rand({0}, {.device = device}));
      out.push_back(rand({}, {.device = device}));
    }
    for (std::size_t i = 0; i < drawn[0].size(); ++i) {
      INFO("seed " << seed << ", draw " << i << ", " << drawn[0][i].describe());
      CHECK(drawn[1][i].device() == kGpu);
      CHECK(same_bits(drawn[0][i], drawn[1][i]));
    }
    const double kept = item(mean(cast(ne(drawn[1][8], 0), f32)));
    CHECK(std::abs(kept - 0.75) < 0.05);
  }
}

TEST_CASE("the next random step on CUDA draws anew, as on the CPU", "[gpu][runtime][random]") {
  std::vector<Tensor> drawn[2];
  for (const Device device : {cpu, kGpu}) {
    manual_seed(5);
    for (int step = 0; step < 6; ++step) {
      drawn[device.is_cuda()].push_back(rand({500}, {.device = device}));
      drawn[device.is_cuda()].push_back(randn({501}, {.device = device}));
      next_random_step(device);
    }
  }
  for (std::size_t i = 0; i < drawn[0].size(); ++i) {
    INFO("draw " << i);
    CHECK(same_bits(drawn[0][i], drawn[1][i]));
    for (std::size_t k = i + 2; k < drawn[0].size(); k += 2)
      CHECK_FALSE(same_bits(drawn[1][i], drawn[1][k]));
  }
  // Back to the beginning.
  manual_seed(5);
  CHECK(same_bits(rand({500}, {.device = kGpu}), drawn[1][0]));
}

TEST_CASE("draws in a row on CUDA differ and do not depend on the stream",
          "[gpu][runtime][random]") {
  manual_seed(9);
  const Tensor a = rand({1000}, {.device = kGpu}), b = rand({1000}, {.device = kGpu});
  CHECK_FALSE(same_bits(a, b));
  manual_seed(9);
  synchronize(kGpu);
  const Stream stream(kGpu);
  const brrr::StreamGuard guard(stream);
  CHECK(same_bits(rand({1000}, {.device = kGpu}), a));
  CHECK(same_bits(rand({1000}, {.device = kGpu}), b));
}
