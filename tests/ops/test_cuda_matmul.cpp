// Matrix products on CUDA, tested without a GPU: how tensors become cuBLASLt calls, keys and the
// disk cache, products on the fake driver; and that every hand-written kernel compiles.
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "brrr/ops/cuda/matmul_layout.h"
#include "brrr/ops/cuda/matmul_plan.h"
#include "brrr/ops/cuda/matmul_small.h"
#include "brrr/ops/cuda/matmul_tuning.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"
#include "tests/fake_cuda/driver.h"
#include "tests/harness/allocator_guards.h"
#include "tests/harness/catch.h"
#include "tests/harness/cubin.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::on_cuda;

namespace {

// A batch of matrices somewhere in a larger block, with gaps that must not be touched.
struct Layout {
  bool transposed = false, padded = false, strided_columns = false, reversed_batch = false;
};

Tensor placed(const Dims& shape, const Layout& layout) {
  Dims stored(shape);
  const int rank = stored.size();
  if (layout.transposed) std::swap(stored[rank - 2], stored[rank - 1]);
  if (layout.reversed_batch && rank == 4) std::swap(stored[0], stored[1]);
  Dims with_gaps(stored);
  if (layout.padded) with_gaps[rank - 1] += 3;
  if (layout.strided_columns) with_gaps[rank - 1] *= 2;
  Tensor memory = make_tensor(f64, with_gaps, cpu);
  double* values = memory.data<double>();
  for (std::int64_t i = 0; i < memory.numel(); ++i)
    values[i] = static_cast<double>((i * 7 + 3) % 11 - 5);
  Dims strides(memory.strides());
  if (layout.strided_columns) strides[rank - 1] = 2;
  if (layout.transposed) std::swap(strides[rank - 2], strides[rank - 1]);
  if (layout.reversed_batch && rank == 4) std::swap(strides[0], strides[1]);
  return make_view(memory, shape, strides);
}

double at(const Tensor& x, std::span<const std::int64_t> batch, std::int64_t row,
          std::int64_t col) {
  std::int64_t offset = row * x.strides()[x.rank() - 2] + col * x.strides()[x.rank() - 1];
  const int missing = static_cast<int>(batch.size()) - (x.rank() - 2);
  for (int i = 0; i < x.rank() - 2; ++i) {
    if (x.shape()[i] != 1) offset += batch[i + missing] * x.strides()[i];
  }
  return x.data<double>()[offset];
}

// What the library would do with a key, in its own column-major words.
void multiply_columns(const MatmulKey& key, const double* x, const double* y, double* d) {
  REQUIRE(key.leading_x >= (key.transpose_x ? key.depth : key.rows));
  REQUIRE(key.leading_y >= (key.transpose_y ? key.cols : key.depth));
  REQUIRE(key.leading_d >= key.rows);
  for (std::int32_t b = 0; b < key.batches; ++b) {
    for (std::int64_t j = 0; j < key.cols; ++j) {
      for (std::int64_t i = 0; i < key.rows; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < key.depth; ++k) {
          sum += x[b * key.batch_x +
                   (key.transpose_x ? i * key.leading_x + k : k * key.leading_x + i)] *
                 y[b * key.batch_y +
                   (key.transpose_y ? k * key.leading_y + j : j * key.leading_y + k)];
        }
        d[b * key.batch_d + j * key.leading_d + i] = sum;
      }
    }
  }
}

bool agrees(const Tensor& a, const Tensor& b, const Tensor& d) {
  const std::int64_t m = d.size(-2), n = d.size(-1), depth = a.size(-1);
  std::int64_t matrices = d.numel() / (m * n);
  for (std::int64_t index = 0; index < matrices; ++index) {
    Dims batch = Dims::filled(d.rank() - 2, 0);
    std::int64_t rest = index;
    for (int i = batch.size() - 1; i >= 0; --i) {
      batch[i] = rest % d.shape()[i];
      rest /= d.shape()[i];
    }
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) sum += at(a, batch, r, k) * at(b, batch, k, c);
        if (at(d, batch, r, c) != sum) return false;
      }
    }
  }
  return true;
}

Dims joined(const Dims& batch, std::int64_t rows, std::int64_t cols) {
  Dims shape(batch);
  shape.push_back(rows);
  shape.push_back(cols);
  return shape;
}

const std::vector<Layout> kLayouts = {{},
                                      {true},
                                      {false, true},
                                      {true, true},
                                      {false, false, true},
                                      {true, false, true},
                                      {false, false, false, true}};
struct Batches {
  Dims a, b, d;
};
const std::vector<Batches> kBatches = {{{}, {}, {}},
                                       {{3}, {3}, {3}},
                                       {{3}, {}, {3}},
                                       {{}, {3}, {3}},
                                       {{2, 3}, {2, 3}, {2, 3}},
                                       {{2, 1}, {1, 3}, {2, 3}},
                                       {{2, 3}, {3}, {2, 3}},
                                       {{2, 3}, {2, 1}, {2, 3}},
                                       {{2, 3}, {}, {2, 3}},
                                       {{1, 1}, {2, 3}, {2, 3}},
                                       {{1}, {1}, {1}}};

}  // namespace

TEST_CASE("tensors become calls of a column-major library", "[cuda_matmul]") {
  long cases = 0, taken = 0, folded = 0;
  for (std::int64_t m : {1, 2, 5}) {
    for (std::int64_t n : {1, 3, 4}) {
      for (std::int64_t k : {1, 2, 6}) {
        for (const Batches& batch : kBatches) {
          for (const Layout& la : kLayouts) {
            for (const Layout& lb : kLayouts) {
              for (const Layout& ld :
                   {Layout{}, Layout{true}, Layout{false, true}, Layout{false, false, true}}) {
                const Tensor a = placed(joined(batch.a, m, k), la),
                             b = placed(joined(batch.b, k, n), lb);
                const Tensor d = placed(joined(batch.d, m, n), ld);
                ++cases;
                const MatrixProduct product = product_of(a, b, d);
                const auto given = as_library_product(product);
                if (!given) {
                  // Refused only where some matrix has no dimension of adjacent elements.
                  const bool strided =
                      la.strided_columns || lb.strided_columns || ld.strided_columns;
                  if (!strided) FAIL("refused " << a.describe() << " x " << b.describe());
                  continue;
                }
                ++taken;
                folded += batch.a.size() > 0 && given->product.batch.empty();
                const double* x = (given->exchanged ? a : b).data<double>();
                const double* y = (given->exchanged ? b : a).data<double>();
                each_outer(given->product, given->inner,
                           [&](std::int64_t left, std::int64_t right, std::int64_t to) {
                             multiply_columns(given->key, x + right, y + left,
                                              d.data<double>() + to);
                           });
                if (!agrees(a, b, d))
                  FAIL("wrong " << a.describe() << " x " << b.describe() << " case " << cases);
              }
            }
          }
        }
      }
    }
  }
  CHECK(taken > cases / 4);
  CHECK(folded > 0);
}

TEST_CASE("a batch times one matrix is one larger product", "[cuda_matmul]") {
  const Tensor a = placed({4, 5, 6}, {}), b = placed({6, 3}, {}), d = placed({4, 5, 3}, {});
  const MatrixProduct product = product_of(a, b, d);
  CHECK(product.batch.empty());
  CHECK(product.m == 20);
}

TEST_CASE("a dimension of one element takes an aligned leading dimension", "[cuda_matmul]") {
  CHECK(as_library_operand(1, 1000, 7, 1) == on_cuda::LibraryOperand{false, 1008});
  CHECK(as_library_operand(1000, 1, 1, 9) == on_cuda::LibraryOperand{true, 1008});
  CHECK(as_library_operand(4, 8, 8, 1) == on_cuda::LibraryOperand{false, 8});
  CHECK(as_library_operand(4, 8, 1, 4) == on_cuda::LibraryOperand{true, 4});
  CHECK(!as_library_operand(4, 8, 0, 1));
  CHECK(!as_library_operand(4, 8, 16, 2));
  CHECK(!as_library_operand(4, 8, -8, 1));
}

TEST_CASE("keys of different problems differ, and so do their hashes", "[cuda_matmul]") {
  std::mt19937_64 random(5);
  std::set<std::uint64_t> hashes;
  MatmulKey key;
  key.rows = key.cols = key.depth = 64;
  const std::uint64_t first = hash_of(key);
  CHECK(hash_of(MatmulKey(key)) == first);
  for (int i = 0; i < 20000; ++i) {
    MatmulKey other = key;
    other.rows = static_cast<std::int64_t>(random() % 256);
    other.depth = static_cast<std::int64_t>(random() % 256) * 8;
    other.transpose_x = i % 2;
    other.align_d = i % 5;
    hashes.insert(hash_of(other));
    if (other == key) --i;
  }
  std::set<std::uint64_t> low;
  for (std::uint64_t hash : hashes) low.insert(hash % 32);
  CHECK(low.size() == 32);
  for (std::size_t byte = 0; byte < sizeof(MatmulKey); ++byte) {
    MatmulKey other = key;
    reinterpret_cast<unsigned char*>(&other)[byte] ^= 1;
    CHECK(!(other == key));
    CHECK(hash_of(other) != first);
  }
}

TEST_CASE("operands are transposed so that the summed dimension is adjacent", "[cuda_matmul]") {
  MatmulKey key;
  key.rows = 30;
  key.cols = 20;
  key.depth = 10;
  key.leading_x = 30;
  key.leading_y = 20;
  key.transpose_y = 1;
  const MatmulKey inner = pretransposed_key(key, pretranspose_x | pretranspose_y);
  CHECK(inner.transpose_x == 1);
  CHECK(inner.transpose_y == 0);
  CHECK(inner.leading_x == 16);
  CHECK(inner.leading_y == 16);
  CHECK(pretransposed_bytes(key, pretranspose_x) == 30 * 16 * 4);
  CHECK(pretransposed_bytes(key, pretranspose_y) == 20 * 16 * 4);
  CHECK(pretransposed_key(key, pretranspose_none) == key);
}

TEST_CASE("what a measurement found is read back, or refused when damaged", "[cuda_matmul]") {
  Tuned tuned;
  for (std::size_t i = 0; i < std::size(tuned.algorithm.algo.data); ++i)
    tuned.algorithm.algo.data[i] = i * 77;
  tuned.algorithm.workspace = 4096;
  tuned.pretransposed = pretranspose_y;
  tuned.microseconds = 12.5;
  const std::string bytes = to_bytes(tuned);
  const auto read = tuned_from(bytes);
  REQUIRE(read);
  CHECK(std::memcmp(&read->algorithm.algo, &tuned.algorithm.algo, sizeof tuned.algorithm.algo) ==
        0);
  CHECK(read->algorithm.workspace == 4096);
  CHECK(read->pretransposed == pretranspose_y);
  CHECK(read->microseconds == 12.5);
  CHECK(!tuned_from(std::string_view(bytes).substr(1)));
  std::string damaged = bytes;
  damaged[0] ^= 1;
  CHECK(!tuned_from(damaged));
  MatmulKey here, there;
  there.device = 3;
  CHECK(tuning_name(here, "gpu", 13000, 130000, 1) == tuning_name(there, "gpu", 13000, 130000, 1));
  CHECK(tuning_name(here, "gpu", 13000, 130000, 1) != tuning_name(here, "gpu", 13000, 130001, 1));
  CHECK(tuning_name(here, "gpu", 13000, 130000, 1) != tuning_name(here, "other", 13000, 130000, 1));
}

TEST_CASE("long candidates are compared at one clock", "[cuda_matmul]") {
  // What each takes on a cool GPU, which soon grows hot. The first look came before that.
  const std::vector<double> cool = {345, 347, 348, 350, 352, 354, 366, 400, 900};
  std::vector<AlgorithmCandidate> candidates;
  for (std::size_t i = 0; i < cool.size(); ++i) {
    AlgorithmCandidate c;
    c.offered = static_cast<int>(cool.size() - i);
    c.microseconds = i == 0 ? 420 : cool[i];  // the best was looked at while the clock was low
    candidates.push_back(c);
  }
  candidates.back().microseconds = -1;  // this one failed
  double run_time = 0;
  narrow_down(candidates, [&](const AlgorithmCandidate& c, int runs) {
    const double one = cool[cool.size() - static_cast<std::size_t>(c.offered)];
    run_time += one * runs;
    return one * runs * (run_time < 10000 ? 1 : 1.2);
  });
  REQUIRE(candidates.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(candidates[i].microseconds == Approx(1.2 * cool[i]));
  CHECK(candidates[0].offered == 9);

  // Short ones are interleaved too: the first sample of the second was at a lower clock.
  std::vector<AlgorithmCandidate> few(4);
  const double looked[] = {7, 8, 30, -1};
  for (int i = 0; i < 4; ++i) {
    few[static_cast<std::size_t>(i)].offered = i;
    few[static_cast<std::size_t>(i)].microseconds = looked[i];
  }
  int asked = 0;
  narrow_down(few, [&](const AlgorithmCandidate& c, int runs) {
    const double busy = ++asked % 5 == 0 ? 3 : 1;
    return (c.offered == 0 ? 7 : 6) * runs * busy;
  });
  REQUIRE(few.size() == 2);  // one was far off, one had failed
  CHECK(few[0].offered == 1);
  CHECK(few[0].microseconds == Approx(6));
  CHECK(few[1].microseconds == Approx(7));

  std::vector<AlgorithmCandidate> none(1);
  none[0].microseconds = -1;
  narrow_down(none, [](const AlgorithmCandidate&, int) -> double { throw Error("timed"); });
  CHECK(none.size() == 1);
}

TEST_CASE("of short products the host's time counts by what it is over the least",
          "[cuda_matmul]") {
  // By the place in the offers: the GPU's time, and the host's.
  const std::vector<std::pair<double, double>> times = {
      {4.4, 3.1}, {10, 3.0}, {3.9, 6.2}, {4.2, 3.4}, {50, 1}};
  std::vector<AlgorithmCandidate> candidates;
  for (std::size_t i = 0; i < times.size(); ++i) {
    AlgorithmCandidate c;
    c.offered = static_cast<int>(i);
    c.microseconds = times[i].first;
    candidates.push_back(c);
  }
  candidates.emplace_back().microseconds = -1;
  std::vector<int> asked(times.size());
  double slow = 1;  // somebody else has the processor now and then
  add_host_times(candidates, [&](const AlgorithmCandidate& c, int runs) {
    const auto i = static_cast<std::size_t>(c.offered);
    slow = ++asked[i] % 3 == 1 ? 2.5 : 1;
    return times[i].second * runs * slow;
  });
  const auto of = [&](int offered) {
    return std::ranges::find_if(candidates,
                                [&](const AlgorithmCandidate& c) {
                                  return c.offered == offered && c.microseconds >= 0;
                                })
        ->microseconds;
  };
  CHECK(of(0) == Approx(4.4));  // within the noise of the least
  CHECK(of(1) == Approx(10));
  CHECK(of(2) == Approx(3.9 + 6.2 - 1.15 * 3.0));
  CHECK(of(3) == Approx(4.2));
  CHECK(asked[4] == 0);  // far from the best
  CHECK(choice_of(candidates).offered == 3);

  std::vector<AlgorithmCandidate> long_ones(2);
  for (AlgorithmCandidate& c : long_ones) c.microseconds = 300;
  add_host_times(long_ones, [](const AlgorithmCandidate&, int) -> double { throw Error("asked"); });
  CHECK(long_ones[0].microseconds == 300);
}

TEST_CASE("of candidates that measure equal the first offered is taken", "[cuda_matmul]") {
  const auto candidate = [](int offered, double microseconds) {
    AlgorithmCandidate c;
    c.offered = offered;
    c.microseconds = microseconds;
    return c;
  };
  const std::vector<AlgorithmCandidate> equal = {candidate(5, 100), candidate(2, 100.5),
                                                 candidate(0, 102), candidate(1, -1)};
  CHECK(choice_of(equal).offered == 2);
  const std::vector<AlgorithmCandidate> distinct = {candidate(3, 100), candidate(0, 101.5)};
  CHECK(choice_of(distinct).offered == 3);
  const std::vector<AlgorithmCandidate> alone = {candidate(4, 7), candidate(0, -1)};
  CHECK(choice_of(alone).offered == 4);
}

TEST_CASE("settings of matmul hold for the process, guards for a thread and a scope",
          "[cuda_matmul]") {
  CHECK(matmul_precision() == Precision::full);
  {
    MatmulPrecisionGuard tf32(Precision::tf32);
    MatmulChoiceGuard measured(MatmulChoice::measured);
    CHECK(matmul_precision() == Precision::tf32);
    CHECK(matmul_choice() == MatmulChoice::measured);
    {
      MatmulPrecisionGuard full(Precision::full);
      CHECK(matmul_precision() == Precision::full);
    }
    CHECK(matmul_precision() == Precision::tf32);
  }
  CHECK(matmul_precision() == Precision::full);
  CHECK(matmul_choice() == MatmulChoice::first);
}

// Heads of a projection have two batch strides: a small operand is copied, a large one is not.
TEST_CASE("a product of heads is one call over a copy of what is no batch", "[cuda_matmul]") {
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const auto made = [](const Dims& shape) { return empty(shape, {.device = cuda()}); };
    const auto calls = [](const Tensor& a, const Tensor& b) {
      cu::count_calls(true);
      matmul(a, b);
      const long count = cu::call_count("cublasLtMatmul");
      cu::count_calls(false);
      return count;
    };
    const Tensor scores = made({8, 4, 64, 64}), projected = made({8, 64, 3, 4, 16});
    const Tensor values = permute(select(projected, 2, 2), {0, 2, 1, 3});
    CHECK(calls(scores, values) == 1);
    CHECK(calls(transpose(scores, 2, 3), values) == 1);
    const Tensor part = narrow(made({8, 5, 64, 64}), 1, 0, 4);
    CHECK(calls(part, values) == 1);
    // 67 MB, in two calls of half of it each.
    CHECK(calls(narrow(made({2, 66, 256, 512}), 1, 0, 64), made({2, 64, 512, 8})) == 2);
  }
  CHECK(fake.problem() == "");
}

TEST_CASE("products through the table agree with the CPU, and plans are kept", "[cuda_matmul]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const Tensor a = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}),
                 b = tensor(std::vector<float>{1, -1, 2, 0, 3, 5}, {3, 2});
    const Tensor on_a = to(a, cuda()), on_b = to(b, cuda());
    const std::vector<float> expected = to_vector<float>(matmul(a, b));
    CHECK(to_vector<float>(matmul(on_a, on_b)) == expected);
    const std::vector<float> transposed =
        to_vector<float>(matmul(transpose(b, 0, 1), transpose(a, 0, 1)));
    CHECK(to_vector<float>(matmul(transpose(on_b, 0, 1), transpose(on_a, 0, 1))) == transposed);
    cu::count_calls(true);
    for (int i = 0; i < 5; ++i) CHECK(to_vector<float>(matmul(on_a, on_b)) == expected);
    CHECK(cu::call_count("cublasLtMatmul") == 5);
    CHECK(cu::call_count("cublasLtMatmulAlgoGetHeuristic") == 0);
    CHECK(cu::call_count("cublasLtMatmulDescCreate") == 0);
    CHECK(cu::call_count("cuMemAlloc") == 0);
    cu::count_calls(false);

    // A failure on the way to a plan is an error that names itself; the next try works.
    on_cuda::release_matmul();
    for (const char* call :
         {"cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
          "cublasLtMatmulPreferenceCreate", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"}) {
      cu::fail_call(call, 1, CUBLAS_STATUS_ALLOC_FAILED);
      INFO(call);
      CHECK_THROWS_AS(matmul(on_a, on_b), CudaError);
      CHECK(to_vector<float>(matmul(on_a, on_b)) == expected);
      on_cuda::release_matmul();
    }
    cu::clear_faults();
  }
  on_cuda::release_matmul();
}

TEST_CASE("products on several streams have a workspace each", "[cuda_matmul]") {
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true, .workspace = 4096});
  {
    const Tensor a = tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}), on_gpu = to(a, cuda());
    const Stream streams[] = {Stream::default_of(cuda()), Stream(cuda()), Stream(cuda())};
    const Event made = streams[0].record();
    std::vector<Tensor> products;
    for (int i = 0; i < 9; ++i) {
      const Stream& stream = streams[i % 3];
      stream.wait(made);
      const StreamGuard guard(stream);
      products.push_back(matmul(on_gpu, on_gpu));
    }
    synchronize(cuda());
    for (const Tensor& product : products)
      CHECK(to_vector<float>(product) == to_vector<float>(matmul(a, a)));
  }
  on_cuda::release_matmul();
}

TEST_CASE("a row is added in the product's own call, for threads that share the plan",
          "[cuda_matmul]") {
  const testing::Caching on;
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const Tensor a = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}),
                 b = tensor(std::vector<float>{1, -1, 2, 0, 3, 5}, {3, 2});
    const Tensor on_a = to(a, cuda()), on_b = to(b, cuda());
    const auto row = [](int i) { return tensor(std::vector<float>{100.0f * i, 1.0f * i}, {2}); };
    CHECK(to_vector<float>(affine(on_a, on_b, to(row(1), cuda()))) ==
          to_vector<float>(affine(a, b, row(1))));
    cu::count_calls(true);
    std::atomic<int> wrong{0};
    constexpr int kThreads = 4, kCalls = 200;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const std::vector<float> expected = to_vector<float>(affine(a, b, row(t)));
        const Tensor mine = to(row(t), cuda());
        for (int i = 0; i < kCalls; ++i)
          wrong += to_vector<float>(affine(on_a, on_b, mine)) != expected;
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(cu::call_count("cublasLtMatmul") == kThreads * kCalls);
    CHECK(cu::call_count("cuLaunchKernel") + cu::call_count("cuLaunchKernelEx") == 0);
    CHECK(cu::call_count("cublasLtMatmulDescCreate") == 0);
    cu::count_calls(false);
  }
  on_cuda::release_matmul();
}

TEST_CASE("a measurement loses nothing of what other threads launch", "[cuda_matmul]") {
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  {
    const Tensor a = to(tensor(std::vector<float>{1, 2, 3, 4}, {2, 2}), cuda());
    cu::CudaStream& stream = cu::current_stream(cuda());
    MatmulKey key;
    key.rows = key.cols = key.depth = key.leading_x = key.leading_y = key.leading_d = 2;
    MatmulOperands operands;
    operands.x = operands.y = a.data();
    std::atomic<bool> measured{false};
    std::atomic<int> lost{0}, rounds{0};
    std::thread other([&] {
      const std::int64_t shape[] = {256};
      const Tensor filled = make_tensor(i32, shape, cuda());
      for (int i = 0; !measured || i < 50; ++i, ++rounds) {
        cuda_runtime().fill_bytes(*StreamState::of(Stream::default_of(cuda())), filled.data(),
                                  i % 100, filled.bytes());
        if (i % 3 == 0) synchronize(cuda());
        lost += to_vector<int>(filled)[255] != i % 100 * 0x01010101;
      }
    });
    cu::count_calls(true);
    while (rounds == 0) std::this_thread::yield();
    for (int i = 0; i < 50; ++i) {
      const auto candidates = measure_candidates(key, operands, stream);
      REQUIRE(!candidates.empty());
      CHECK(candidates[0].microseconds > 0);
    }
    measured = true;
    other.join();
    CHECK(cu::call_count("cuGraphLaunch") > 0);
    cu::count_calls(false);
    CHECK(lost == 0);
    for (const char* call : {"cuStreamCreate", "cuStreamBeginCapture", "cuStreamEndCapture",
                             "cuGraphInstantiate", "cuGraphLaunch", "cuEventSynchronize"}) {
      INFO(call);
      on_cuda::release_matmul();
      cu::fail_call(call, 1, CUDA_ERROR_UNKNOWN);
      CHECK_THROWS_AS(measure_candidates(key, operands, stream), CudaError);
      cu::clear_faults();
      CHECK_NOTHROW(measure_candidates(key, operands, stream));
    }
  }
  on_cuda::release_matmul();
  cu::shut_down();
  CHECK(fake.counts() == testing::FakeCounts{});
}

TEST_CASE("streams of a device that was shut down are not destroyed again", "[cuda_matmul]") {
  const auto measure = [] {
    const Tensor a = zeros({2, 2}, {.device = cuda()});
    MatmulKey key;
    key.rows = key.cols = key.depth = key.leading_x = key.leading_y = key.leading_d = 2;
    MatmulOperands operands;
    operands.x = operands.y = a.data();
    CHECK(!measure_candidates(key, operands, cu::current_stream(cuda())).empty());
  };
  {
    testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
    measure();
  }
  testing::FakeCuda fake({.with_nvrtc = true, .with_cublaslt = true});
  on_cuda::release_matmul();
  measure();
  on_cuda::release_matmul();
}
