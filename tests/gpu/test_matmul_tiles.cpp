// Products in tiles on a GPU of compute capability 9.0: the error bound over tiles, layouts, odd
// sizes and batches; epilogues; nothing written outside the result; equal bits from run to run.
#include <cmath>
#include <string>
#include <vector>

#include "brrr/ops/cuda/matmul_tiles.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/stream.h"
#include "tests/harness/catch.h"
#include "tests/harness/skip.h"
#include "tests/harness/tile_epilogues.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::on_cuda;

namespace {

constexpr double kUntouched = 7;

bool has_hopper() {
  if (jit::architecture_of(cuda()) == 90) return true;
  testing::skip("needs a GPU of compute capability 9.0");
  return false;
}

// x on the GPU, its rows (or columns) 16 bytes apart from one another and more.
Tensor on_gpu(const Tensor& x, bool transposed) {
  const Tensor values = contiguous(transposed ? transpose(x, -1, -2) : x);
  Dims stored(values.shape());
  const int last = stored.size() - 1;
  stored[last] = (stored[last] + 7) / 8 * 8 + 8;
  Tensor padded = full(stored, 3, {.dtype = x.dtype(), .device = cuda()});
  Tensor view = slice(padded, -1, 0, values.size(-1));
  copy_(view, to(values, cuda()));
  return transposed ? transpose(view, -1, -2) : view;
}

// A result whose surroundings can be looked at.
struct Result {
  Tensor whole, view;
};
Result result_of(const Tensor& a, const Tensor& b, DType dtype, bool aligned, bool transposed) {
  if (transposed) {
    Result d = result_of(transpose(b, -1, -2), transpose(a, -1, -2), dtype, aligned, false);
    d.view = transpose(d.view, -1, -2);
    return d;
  }
  Dims shape(a.rank() > b.rank() ? a.shape() : b.shape());
  const int last = shape.size() - 1;
  shape[last - 1] = a.size(-2);
  shape[last] = b.size(-1);
  Dims stored(shape);
  stored[last] = aligned ? (shape[last] + 7) / 8 * 8 + 8 : shape[last] / 2 * 2 + 3;
  Tensor whole = full(stored, kUntouched, {.dtype = dtype, .device = cuda()});
  return {whole, slice(whole, -1, 0, shape[last])};
}
bool surroundings_untouched(const Result& d) {
  const Tensor rest =
      slice(d.whole, -1, d.view.size(d.view.stride(-1) == 1 ? -1 : -2), d.whole.size(-1));
  for (const double x : to_vector<double>(to(to(contiguous(rest), cpu), f64)))
    if (x != kUntouched) return false;
  return true;
}

void multiply(const Tensor& a, const Tensor& b, Tensor& d, const TileConfig& c) {
  const MatrixProduct p = product_of(a, b, d);
  REQUIRE(
      tiles_support(p, a.dtype(), alignment_of(a.data()) == 16 && alignment_of(b.data()) == 16));
  const testing::PlainEpilogue plain = testing::plain_epilogue(p, d.dtype(), d.data());
  const TiledProduct tiled{p, plain.epilogue};
  const TileOperands operands{a.data(), b.data(), {d.data()}};
  const void* arguments[] = {&plain.arguments};
  launch(plan_tiles(std::span(&tiled, 1), std::span(&operands, 1), a.dtype(), c, cuda()), arguments,
         cu::current_stream(cuda()));
}

double unit_of(DType dtype) { return dtype == f32 ? 0x1p-24 : dtype == f16 ? 0x1p-11 : 0x1p-8; }

std::vector<double> values_of(const Tensor& x) { return to_vector<double>(to(to(x, cpu), f64)); }

// The largest error in units of what may be: (k + 1) u |A| |B|, TF32's rounding of factors, and the
// rounding of the result.
double error_ratio(const Tensor& a, const Tensor& b, const Tensor& d) {
  const Tensor wide_a = to(a, f64), wide_b = to(b, f64);
  const std::vector<double> exact = to_vector<double>(matmul(wide_a, wide_b)),
                            magnitude = to_vector<double>(matmul(abs(wide_a), abs(wide_b))),
                            got = values_of(d);
  REQUIRE(got.size() == exact.size());
  const double factors = a.dtype() == f32 ? 2.01 * 0x1p-11 : 0;
  const double sums = static_cast<double>(a.size(-1) + 1) * 0x1p-23;
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double bound =
        (sums + factors) * magnitude[i] + unit_of(d.dtype()) * std::abs(exact[i]) * 1.01 + 1e-30;
    const double ratio = std::abs(got[i] - exact[i]) / bound;
    if (!(ratio <= worst)) worst = ratio;  // NaN too
    if (std::isnan(ratio)) return ratio;
  }
  return worst;
}

struct Layouts {
  bool transposed_a, transposed_b, transposed_d = false;  // as they are stored
};

void check(DType dtype, DType result, Layouts layouts, const TileConfig& c, const Dims& shape_a,
           const Dims& shape_b, bool aligned) {
  const Tensor a = to(randn(shape_a), dtype), b = to(randn(shape_b), dtype);
  const Tensor on_a = on_gpu(a, layouts.transposed_a), on_b = on_gpu(b, layouts.transposed_b);
  Result d = result_of(a, b, result, aligned, layouts.transposed_d);
  multiply(on_a, on_b, d.view, c);
  INFO(to_string(c) << ", " << a.describe() << (layouts.transposed_a ? "'" : "") << " x "
                    << b.describe() << (layouts.transposed_b ? "'" : ""));
  CHECK(error_ratio(a, b, d.view) <= 1);
  CHECK(surroundings_untouched(d));
}

}  // namespace

TEST_CASE("products in tiles are within their error bound", "[gpu][matmul]") {
  if (!has_hopper()) return;
  const std::vector<std::pair<Dims, Dims>> shapes = {{{1, 5}, {5, 8}},
                                                     {{333, 1000}, {1000, 517}},
                                                     {{2, 200, 72}, {2, 72, 136}},
                                                     {{2, 3, 130, 64}, {2, 3, 64, 70}},
                                                     {{3, 130, 200}, {200, 70}},
                                                     {{40, 300, 65}, {40, 65, 260}}};
  std::vector<TileConfig> configs(tile_choices().begin(), tile_choices().end());
  configs.push_back({.cluster_m = 2, .cluster_n = 2});
  configs.push_back({.splits = 8});
  configs.push_back({.consumers = 1, .blocks = 2});
  for (const TileConfig& c : configs) {
    for (const auto& [a, b] : shapes) {
      check(bf16, bf16, {false, false}, c, a, b, true);
      check(f32, f32, {false, true}, c, a, b, true);
      check(f32, f32, {false, true, true}, c, a, b, true);
      if (takes_a_in_registers(c)) {
        check(f32, f32, {true, true}, c, a, b, true);
        check(f32, f32, {true, true, true}, c, a, b, true);
        check(f32, bf16, {true, true}, c, a, b, false);
      }
    }
  }
  for (const TileConfig& c : {TileConfig{.ping_pong = true, .cluster_m = 2, .cluster_n = 1},
                              TileConfig{.tile_m = 128, .tile_n = 192, .splits = 2}}) {
    for (const auto& [a, b] : shapes) {
      for (const Layouts layouts : {Layouts{false, true}, {true, false}, {true, true}}) {
        check(bf16, bf16, layouts, c, a, b, true);
        check(f16, f32, layouts, c, a, b, false);
      }
    }
  }
}

namespace {

double gelu_of(double x) { return x / (1 + std::exp(-1.5957691216 * x * (1 + 0.044715 * x * x))); }
double slope_of(double x) { return (gelu_of(x + 1e-5) - gelu_of(x - 1e-5)) / 2e-5; }

// x with adjacent elements along m.
Tensor columns(const Tensor& x) { return transpose(contiguous(transpose(x, 0, 1)), 0, 1); }
Tensor rows(const Tensor& x) { return x; }

// A product with each of the written epilogues, and what these should give.
class Epilogues {
 public:
  Epilogues(const TileConfig& config, DType dtype) : config_(config), dtype_(dtype) {
    const Tensor a = to(randn({kM, kK}) * 0.1, dtype), b = to(randn({kN, kK}), dtype),
                 bias = to(randn({kN}), dtype);
    other_ = to(randn({kM, kN}), dtype);
    a_ = to(a, cuda()), b_ = transpose(to(b, cuda()), 0, 1), bias_ = to(bias, cuda());
    sums_ = to_vector<double>(matmul(to(a, f64), transpose(to(b, f64), 0, 1)));
    biases_ = values_of(bias), others_ = values_of(other_);
  }

  // `result`, `second`: the layouts of inputs and results, and of the second of two results.
  typedef Tensor (*Layout)(const Tensor&);
  void check(Layout result, Layout second) const {
    Tensor one = result(fresh()), two = second(fresh());
    run(testing::kBiasGelu, {}, {one, two});
    agree(one, [&](std::size_t i) { return sums_[i] + biases_[i % kN]; });
    agree(two, [&](std::size_t i) { return gelu_of(sums_[i] + biases_[i % kN]); });
    one = result(fresh());
    run(testing::kGeluGradient, {second(to(other_, cuda()))}, {one});
    agree(one, [&](std::size_t i) { return sums_[i] * slope_of(others_[i]); });
    const Tensor in_place = result(to(other_, cuda()));
    run(testing::kResidual, {in_place}, {in_place});
    agree(in_place, [&](std::size_t i) { return sums_[i] + others_[i]; });
  }

 private:
  static constexpr std::int64_t kM = 700, kN = 328, kK = 200;

  Tensor fresh() const { return full({kM, kN}, NAN, {.dtype = dtype_, .device = cuda()}); }

  void run(const char* text, const std::vector<Tensor>& inputs,
           const std::vector<Tensor>& outputs) const {
    TiledProduct tiled{product_of(a_, b_, outputs[0]), {}};
    TileOperands operands{a_.data(), b_.data(), {}};
    const auto stage = [&](const std::vector<Tensor>& tensors, std::vector<MatrixStrides>& staged) {
      unsigned transposed = 0;
      for (const Tensor& x : tensors) {
        const MatrixStrides strides = product_of(a_, b_, x).d;
        transposed |= unsigned{is_staged_transposed(strides)} << staged.size();
        staged.push_back(strides);
        operands.staged.push_back(x.data());
      }
      return transposed;
    };
    const unsigned of_inputs = stage(inputs, tiled.epilogue.inputs),
                   of_outputs = stage(outputs, tiled.epilogue.outputs);
    tiled.epilogue.text = testing::with_transposed(text, of_inputs, of_outputs);
    tiled.epilogue.staged = dtype_;
    const void* argument = bias_.data();
    const void* arguments[] = {&argument};
    launch(plan_tiles(std::span(&tiled, 1), std::span(&operands, 1), dtype_, config_, cuda()),
           arguments, cu::current_stream(cuda()));
  }

  template <class F>
  void agree(const Tensor& got, const F& expected) const {
    // TF32 rounds factors, bf16 the sum and the result.
    const double tolerance = dtype_ == f32 ? 4e-3 : 2.5e-2;
    const std::vector<double> values = values_of(got);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double right = expected(i);
      wrong += !(std::abs(values[i] - right) <= tolerance * (1 + std::abs(right)));  // NaN too
    }
    INFO(to_string(config_) << " " << name_of(dtype_));
    CHECK(wrong == 0);
  }

  TileConfig config_;
  DType dtype_;
  Tensor a_, b_, bias_, other_;
  std::vector<double> sums_, biases_, others_;
};

}  // namespace

TEST_CASE("epilogues of tiles see each sum once, with what belongs to it", "[gpu][matmul]") {
  if (!has_hopper()) return;
  for (const TileConfig& c : {TileConfig{}, TileConfig{.ping_pong = true},
                              TileConfig{.tile_m = 128, .tile_n = 128, .splits = 2}}) {
    Epilogues(c, bf16).check(rows, rows);
    const Epilogues of_f32(c, f32);
    of_f32.check(rows, rows);
    of_f32.check(rows, columns);
    of_f32.check(columns, columns);
  }
}

// The gradients of a layer's input, weight and bias: dy w, dy^T x and the sums of dy's columns. In
// TF32 w and x are stored as tiles take them.
static void check_layer(const TileConfig& c, DType dtype, std::int64_t batch, std::int64_t in,
                        std::int64_t out) {
  const Options here{.dtype = dtype, .device = cuda()};
  const auto second = [&](const Tensor& x) {
    return dtype == f32 ? transpose(contiguous(transpose(x, 0, 1)), 0, 1) : x;
  };
  const Tensor dy = randn({batch, out}, here), w = second(randn({out, in}, here)),
               x = second(randn({batch, in}, here));
  const Tensor dy_t = transpose(dy, 0, 1);
  const std::vector<double> sums = values_of(sum(to(dy, f64), 0)),
                            magnitudes = values_of(sum(abs(to(dy, f64)), 0));
  INFO(to_string(c) << ", " << name_of(dtype) << ", layer of " << batch << " x " << in << " to "
                    << out);
  const auto fresh = [&](Dims shape) { return full(shape, NAN, here); };
  Tensor dx = fresh({batch, in}), dw = fresh({out, in}), db = fresh({out}),
         dx_alone = fresh({batch, in}), dw_alone = fresh({out, in});
  multiply(dy, w, dx_alone, c);
  multiply(dy_t, x, dw_alone, c);
  const MatrixProduct of_x = product_of(dy, w, dx), of_w = product_of(dy_t, x, dw);
  const testing::PlainEpilogue to_x = testing::plain_epilogue(of_x, dtype, dx.data());
  TileEpilogue to_w;
  to_w.text = testing::kWithLineSums;
  to_w.staged = dtype;
  to_w.outputs.push_back(of_w.d);
  to_w.reduces = true;
  const TiledProduct products[] = {{of_x, to_x.epilogue}, {of_w, to_w}};
  const TileOperands operands[] = {{dy.data(), w.data(), {dx.data()}},
                                   {dy_t.data(), x.data(), {dw.data()}}};
  const void* const to_b = db.data();
  const void* arguments[] = {&to_x.arguments, &to_b};
  launch(plan_tiles(products, operands, dtype, c, cuda()), arguments, cu::current_stream(cuda()));
  CHECK(values_of(dx) == values_of(dx_alone));
  CHECK(values_of(dw) == values_of(dw_alone));
  const std::vector<double> got = values_of(db);
  double worst = 0;
  // A lane adds at most half of the elements of a line one by one.
  const double additions = static_cast<double>(batch) / 2 + 5;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - sums[i]) / (additions * 0x1p-24 * magnitudes[i] +
                                                          unit_of(dtype) * std::abs(sums[i])));
  CHECK(worst <= 1);
}

TEST_CASE("products of one launch have the bits of each alone", "[gpu][matmul]") {
  if (!has_hopper()) return;
  manual_seed(5);
  struct Layer {
    std::int64_t batch, in, out;
  };
  for (const Layer& layer : {Layer{2048, 1024, 1024}, Layer{4096, 512, 2048}, Layer{520, 264, 136},
                             Layer{128, 128, 128}, Layer{4096, 2048, 512}}) {
    for (const TileConfig& c : tile_choices()) {
      if (!takes_reductions(c)) continue;
      for (const DType dtype : {bf16, f32}) check_layer(c, dtype, layer.batch, layer.in, layer.out);
    }
  }
}

TEST_CASE("products in tiles have the same bits from run to run", "[gpu][matmul]") {
  if (!has_hopper()) return;
  const Tensor a = to(to(randn({1000, 2048}), bf16), cuda()),
               b = to(to(randn({2048, 1544}), bf16), cuda());
  for (const TileConfig& c : tile_choices()) {
    Tensor first;
    for (int run = 0; run < 20; ++run) {
      Tensor d = full({1000, 1544}, NAN, {.dtype = bf16, .device = cuda()});
      multiply(a, b, d, c);
      if (!first.defined()) first = to(d, cpu);
      INFO(to_string(c) << ", run " << run);
      CHECK(to_vector<float>(to(to(d, cpu), f32)) == to_vector<float>(to(first, f32)));
    }
  }
}
