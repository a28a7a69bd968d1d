// Tensors that the tape saves: only those that gradients need, and reported byte for byte.
#include <brrr/brrr.h>

#include <algorithm>

#include "tests/harness/catch.h"

using namespace brrr;

namespace {

std::int64_t live() { return memory_stats(cpu).live; }
std::int64_t bytes_of(const Tensor& x) { return static_cast<std::int64_t>(x.bytes()); }

// "op which" of all that is kept behind a tensor.
std::vector<std::string> kept(const Tensor& y) {
  std::vector<std::string> names;
  for (const SavedTensor& each : saved_tensors(y)) names.push_back(each.op + " " + each.which);
  return names;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a call keeps what its gradient reads, and nothing else", "[autograd][saved]") {
  const Tensor x = requires_grad_(rand({4, 4})), w = requires_grad_(rand({4, 4})), c = rand({4, 4});
  CHECK(kept(x) == Names{});
  CHECK(kept(x + w) == Names{});
  CHECK(kept(x - c) == Names{});
  CHECK(kept(-x) == Names{});
  CHECK(kept(x * 3.0) == Names{});
  CHECK(kept(x / 3.0) == Names{});
  CHECK(kept(sum(x, {1})) == Names{});
  CHECK(kept(mean(x)) == Names{});
  CHECK(kept(transpose(x, 0, 1)) == Names{});
  CHECK(kept(cat({x, w}, 0)) == Names{});
  CHECK(kept(cumsum(x, 0)) == Names{});
  CHECK(kept(exp(x)) == Names{"exp output 0"});
  CHECK(kept(tanh(x)) == Names{"tanh output 0"});
  CHECK(kept(relu(x)) == Names{"relu output 0"});
  CHECK(kept(log(x)) == Names{"log operand 0"});
  CHECK(kept(x * c) == Names{"mul operand 1"});
  CHECK(kept(c * x) == Names{"mul operand 0"});
  CHECK(kept(x * w) == Names{"mul operand 0", "mul operand 1"});
  CHECK(kept(matmul(x, c)) == Names{"matmul operand 1"});
  CHECK(kept(matmul(c, x)) == Names{"matmul operand 0"});
  CHECK(kept(matmul(x, w)) == Names{"matmul operand 0", "matmul operand 1"});
  CHECK(kept(affine(c, x, select(w, 0, 0))) == Names{"affine operand 0"});
  CHECK(kept(where(gt(c, 0.5), x, w)) == Names{"where operand 0"});
  CHECK(saved_tensors(x * c)[0].tensor.shares_storage_with(c));
  CHECK_FALSE(requires_grad(saved_tensors(x * w)[0].tensor));
  CHECK(kept(exp(x * c)) == Names{"mul operand 1", "exp output 0"});
}

TEST_CASE("the report equals the bytes that live on", "[autograd][saved]") {
  manual_seed(2);
  const Tensor w1 = requires_grad_(randn({16, 8})), b1 = requires_grad_(randn({16})),
               w2 = requires_grad_(randn({8, 16}));
  const Tensor x = randn({32, 8});
  const auto network = [&](const Tensor& input) {
    const Tensor h = gelu(linear(layer_norm(input, 1), w1, b1));
    const Tensor y = linear(dropout(h * 1.5, 0.2), w2) + input;
    return mean(square(softmax(y, 1) - 0.1) + exp(y) * tanh(input * 2));
  };
  network(x);  // the generator's own state exists from now on
  const std::int64_t before = live();
  {
    const Tensor loss = network(x);
    std::int64_t kept = live() - before;
    const auto saved = saved_tensors(loss);
    // Leaves and constants that were there before are in the report, and not new.
    std::int64_t reported = static_cast<std::int64_t>(saved_bytes(saved));
    for (const Tensor& old : {w1, b1, w2, x}) {
      const bool among = std::any_of(saved.begin(), saved.end(), [&](const SavedTensor& each) {
        return each.tensor.shares_storage_with(old);
      });
      if (among) reported -= bytes_of(old);
    }
    CHECK(reported > 0);
    CHECK(kept == reported + bytes_of(loss));
    // The text says so too.
    const std::string text = to_string(saved);
    CHECK_THAT(text,
               Catch::Contains(std::to_string(saved_bytes(saved)) + " bytes in all storages"));
    CHECK_THAT(text, Catch::Contains("gelu") && Catch::Contains("operand 0"));
  }
  CHECK(live() == before);
  // After a backward that keeps nothing, nothing but the gradients is left.
  const Tensor loss = network(x);
  backward(loss);
  CHECK(saved_tensors(loss).empty());
  CHECK(live() - before ==
        bytes_of(loss) + bytes_of(grad(w1)) + bytes_of(grad(b1)) + bytes_of(grad(w2)));
}

TEST_CASE("a storage that several calls keep is counted once", "[autograd][saved]") {
  const Tensor x = requires_grad_(rand({8})), c = rand({8});
  const auto saved = saved_tensors(x * c + sin(x) + x * view(view(c, {2, 4}), {8}));
  CHECK(saved.size() == 3);  // c twice, and x for the sine
  CHECK(saved_bytes(saved) == 2 * 8 * sizeof(float));
  CHECK(saved_tensors(c).empty());
}

TEST_CASE("nothing is kept under no_grad, and of constants", "[autograd][saved]") {
  const Tensor x = requires_grad_(rand({64})), c = rand({64});
  const std::int64_t before = live();
  const Tensor y = no_grad([&] { return exp(x * c); });
  CHECK(live() - before == bytes_of(y));
  const Tensor z = exp(c * c);
  CHECK(live() - before == bytes_of(y) + bytes_of(z));
}

TEST_CASE("backward frees each value after its last use", "[autograd][saved]") {
  const Tensor x = requires_grad_(rand({1024}));
  const std::int64_t before = live();
  Tensor y = x;
  constexpr int kLayers = 20;
  for (int i = 0; i < kLayers; ++i) y = tanh(y);
  const Tensor loss = sum(y);
  y = Tensor();
  reset_peak_memory(cpu);
  backward(loss);
  // The values, and no more than a few gradients on the way.
  CHECK(memory_stats(cpu).peak - before <= (kLayers + 3) * bytes_of(x) + bytes_of(loss));
  CHECK(live() - before == bytes_of(grad(x)) + bytes_of(loss));
}
