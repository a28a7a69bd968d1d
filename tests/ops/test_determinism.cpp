// The same program gives the same bits: in 100 runs, and with 1, 2 and 4 threads.
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "brrr/ops/functions.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/thread_pool.h"
#include "tests/harness/catch.h"
#include "tests/harness/random_programs.h"

using namespace brrr;

namespace {

std::uint64_t hash_of(const Tensor& x) {
  const Tensor plain = contiguous(x);
  synchronize(cpu);
  const auto* bytes = static_cast<const unsigned char*>(plain.data());
  std::uint64_t h = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < plain.bytes(); ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

// Sizes that are cut into chunks, and that no power of two divides. `n` scales them.
struct Inputs {
  Tensor x, y, wide, tall, half, index, ids;

  explicit Inputs(std::int64_t n) {
    manual_seed(5);
    x = randn({n * 31, 257});
    y = randn({n * 31, 257});
    wide = randn({257, 129});
    tall = randn({3, n * 31, 33});
    half = cast(x, bf16);
    index = randint(0, n * 31, {n * 31});
    ids = randint(0, n * 31, {n * 40, 257});
  }
};

struct Named {
  const char* name;
  std::function<Tensor(const Inputs&)> run;
};

const std::vector<Named> kPrograms = {
    {"add", [](const Inputs& in) { return in.x + in.y; }},
    {"exp chain", [](const Inputs& in) { return exp(tanh(in.x) * in.y) - 1; }},
    {"gelu", [](const Inputs& in) { return gelu(in.x); }},
    {"strided", [](const Inputs& in) { return transpose(in.x, 0, 1) * transpose(in.y, 0, 1); }},
    {"half", [](const Inputs& in) { return in.half * in.half + in.half; }},
    {"sum", [](const Inputs& in) { return sum(in.x); }},
    {"sum rows", [](const Inputs& in) { return sum(in.x, {1}); }},
    {"sum columns", [](const Inputs& in) { return sum(in.x, {0}); }},
    {"mean of half", [](const Inputs& in) { return mean(in.half, {0}); }},
    {"norm", [](const Inputs& in) { return norm(in.x - in.y); }},
    {"var", [](const Inputs& in) { return var(in.x, {0}); }},
    {"softmax", [](const Inputs& in) { return softmax(in.x, 1); }},
    {"softmax columns", [](const Inputs& in) { return softmax(in.x, 0); }},
    {"layer_norm", [](const Inputs& in) { return layer_norm(in.x, 1); }},
    {"matmul", [](const Inputs& in) { return matmul(in.x, in.wide); }},
    {"matmul transposed", [](const Inputs& in) { return matmul(transpose(in.x, 0, 1), in.y); }},
    {"matmul batch", [](const Inputs& in) { return matmul(in.tall, transpose(in.tall, 1, 2)); }},
    {"matmul vector", [](const Inputs& in) { return matmul(in.x, select(in.y, 0, 0)); }},
    {"scatter_add",
     [](const Inputs& in) {
       return scatter_add(in.x, 0, in.ids, cat({in.y, in.y}, 0));
     }},
    {"embedding and cumsum",
     [](const Inputs& in) { return cumsum(index_select(in.x, 0, in.index), 0); }},
    {"dropout",
     [](const Inputs& in) {
       manual_seed(9);
       return dropout(in.x, 0.3) + randn({257});
     }},
    {"argmax", [](const Inputs& in) { return argmax(in.x, 1); }},
    {"a step",
     [](const Inputs& in) {
       const Tensor hidden = relu(matmul(in.x, in.wide));
       const Tensor loss = mean(square(matmul(hidden, transpose(in.wide, 0, 1)) - in.y));
       return loss + sum(hidden) * 1e-3;
     }},
};

}  // namespace

TEST_CASE("a hundred runs give one hash", "[determinism]") {
  const Inputs in(2);
  for (const Named& program : kPrograms) {
    const std::uint64_t first = hash_of(program.run(in));
    int differ = 0;
    for (int i = 1; i < 100; ++i) differ += hash_of(program.run(in)) != first;
    INFO(program.name);
    CHECK(differ == 0);
  }
}

TEST_CASE("one, two and four threads give one hash", "[determinism]") {
  const int before = num_threads();
  for (const std::int64_t n : {2, 20}) {  // short loops wake no threads
    const Inputs in(n);
    for (const Named& program : kPrograms) {
      set_num_threads(1);
      const std::uint64_t first = hash_of(program.run(in));
      for (int threads : {2, 4, 3, 1}) {
        set_num_threads(threads);
        INFO(program.name << " of size " << n << " with " << threads << " threads");
        for (int i = 0; i < 4; ++i) CHECK(hash_of(program.run(in)) == first);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("the draws of a seed do not depend on the threads", "[determinism]") {
  const int before = num_threads();
  std::vector<std::uint64_t> hashes;
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    manual_seed(3);
    hashes.push_back(hash_of(randn({300001})) ^ hash_of(rand({70001})) * 3 ^
                     hash_of(randint(0, 10, {50001})) * 5);
  }
  set_num_threads(before);
  CHECK(hashes[0] == hashes[1]);
  CHECK(hashes[0] == hashes[2]);
}
