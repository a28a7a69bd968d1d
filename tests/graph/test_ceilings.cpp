// Ceilings: curves, the cost model, and the file of a machine.
#include "brrr/graph/ceilings.h"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "brrr/dispatch/expression.h"
#include "brrr/dispatch/observe.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/thread_pool.h"
#include "tests/harness/catch.h"
#include "tests/harness/environment.h"
#include "tests/harness/own_cache.h"

using namespace brrr;
using graph::Ceilings;
using graph::Curve;
using test::OwnCache;

namespace {

// As of files, some days ago.
std::string days_ago(int days) {
  const std::time_t then = std::time(nullptr) - days * 24 * 3600;
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&then));
  return text;
}

Ceilings measured_ceilings() {
  Ceilings c = graph::default_ceilings(cpu);
  c.machine = graph::machine_of(cpu);
  c.software = graph::software_of(cpu);
  static const std::string date = days_ago(1);
  c.date = date;
  c.eager.call_ps = 123'456;
  c.draws = 700'000'000;
  c.moved = {{{4096, 50'000}, {1 << 20, 30'000'000}}};
  return c;
}

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What ceilings_of says of a file with this text.
std::string why_unused(const std::string& text) {
  const OwnCache cache;
  std::ofstream(graph::ceilings_path(cpu)) << text;
  const auto found = graph::ceilings_of(cpu);
  CHECK_FALSE(found->calibrated());
  CHECK(found->eager == graph::default_ceilings(cpu).eager);
  return found->why_defaults;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a curve is linear between points and proportional after them", "[ceilings]") {
  const Curve curve{{{100, 50}, {200, 100}, {1000, 200}}};
  CHECK(curve.time_of(0) == 0);
  CHECK(curve.time_of(1) == 50);
  CHECK(curve.time_of(100) == 50);
  CHECK(curve.time_of(150) == 75);
  CHECK(curve.time_of(600) == 150);
  CHECK(curve.time_of(1000) == 200);
  CHECK(curve.time_of(5000) == 1000);
  CHECK(curve.rate() == 5'000'000'000'000);

  const Curve flat = Curve::of_rate(4'000'000'000'000);
  CHECK(flat.time_of(4) == 1);
  CHECK(flat.time_of(7) == 1);
  CHECK(flat.rate() == 4'000'000'000'000);
  // A product that does not fit into 64 bits, and a time that does not.
  CHECK(Curve::of_rate(10).time_of(1'000'000) == 100'000'000'000'000'000);
  CHECK(Curve::of_rate(1).time_of(std::numeric_limits<std::int64_t>::max()) ==
        std::numeric_limits<std::int64_t>::max() / 4);
}

TEST_CASE("a kernel takes the longer of moving and computing", "[ceilings]") {
  Ceilings c = graph::default_ceilings(cpu);
  c.moved = Curve::of_rate(1'000'000'000);  // 1 ns a byte
  c.f32_flops = 10'000'000'000;             // 100 ps a flop
  c.f64_flops = 1'000'000'000;
  c.products.fill(graph::in_any_order(Curve::of_rate(100'000'000'000)));  // 10 ps a flop
  graph::Work work;
  work.bytes = 100;
  work.flops = 500;
  const KernelTime moving = graph::time_of(work, c, 7'000);
  CHECK(moving.ps() == 7'000 + 100'000);
  work.flops = 2'000;
  CHECK(graph::time_of(work, c, 7'000).ps() == 7'000 + 200'000);
  work.wide = true;
  CHECK(graph::time_of(work, c, 0).ps() == 2'000'000);
  work.product_flops = 1'900;
  CHECK(graph::time_of(work, c, 0).computing_ps == 100'000 + 19'000);
  c.functions = 1'000'000'000;
  work.functions = 3;
  CHECK(graph::time_of(work, c, 0).computing_ps == 100'000 + 19'000 + 3'000);
  work.functions = 0;
  c.draws = c.conversions = 0;
  work.draws = 3, work.conversions = 2;  // of no time of their own where there is no rate
  CHECK(graph::time_of(work, c, 0).computing_ps == 100'000 + 19'000);
  c.draws = 500'000'000, c.conversions = 1'000'000'000;
  CHECK(graph::time_of(work, c, 0).computing_ps == 100'000 + 19'000 + 6'000 + 2'000);
  work.draws = work.conversions = 0;

  StepTime step;
  step += moving;
  step += graph::time_of(work, c, 1'000);
  CHECK(step.overhead_ps == 8'000);
  CHECK(step.bandwidth_ps == 100'000);
  CHECK(step.compute_ps == 119'000);
  CHECK(step.ps() == 227'000);
}

TEST_CASE("a roofline has a kernel at full rates, and what twice its work would add",
          "[ceilings]") {
  Ceilings c = graph::default_ceilings(cpu);
  c.moved = Curve::of_rate(1'000'000'000'000);  // a picosecond a byte
  c.f32_flops = 1'000'000'000'000;              // and a flop
  // Products up to 1000 flops take 500 ps, larger ones up to a ps a flop.
  c.products[static_cast<std::size_t>(graph::ProductType::f32)] =
      graph::in_any_order({{{1000, 500'000}, {1'000'000, 1'000'000}}});
  const Ceilings full = c.at_full_rates();
  Roofline small, large, copy;
  graph::Work work;
  work.flops = work.product_flops = 100;
  work.bytes = 10;
  graph::add_to(small, work, c, full);
  CHECK(small.moving_ps == 10);
  CHECK(small.computing_ps == 100);
  CHECK(small.bound.compute_ps == 100);
  CHECK(small.growing.compute_ps == 0);  // latency
  CHECK(small.growing.bandwidth_ps == 10);

  work.flops = work.product_flops = 2'000'000;
  graph::add_to(large, work, c, full);
  CHECK(large.growing.compute_ps == 2'000'000);
  CHECK(large.growing.bandwidth_ps == 0);
  CHECK(large.bound.ps() == large.growing.ps());

  work.flops = 50;
  work.product_flops = 0;
  work.bytes = 400;
  graph::add_to(copy, work, c, full);
  CHECK(copy.computing_ps == 50);
  CHECK(copy.bound.bandwidth_ps == 400);
  CHECK(copy.growing.bandwidth_ps == 400);
  CHECK(copy.bound.overhead_ps == 0);
}

TEST_CASE("the work of a call is its cost, except for products", "[ceilings]") {
  class Last : public Observer {
   public:
    void after(const Call& call, std::span<const Tensor> outputs) override {
      work = graph::work_of(call, outputs);
    }
    graph::Work work;
  } last;
  const Observing observing(last);
  const Tensor a = ones({3, 5}), b = ones({5, 7}, {.dtype = f64}), row = ones({7});
  a* a;
  CHECK((last.work.flops == 15 && last.work.product_flops == 0 && !last.work.wide));
  affine(a, ones({5, 7}), row);
  CHECK(last.work.product_flops == 2 * 3 * 5 * 7 + 21);
  CHECK(last.work.type == graph::ProductType::f32);
  matmul(transpose(b, 0, 1), b);
  CHECK(last.work.type == graph::ProductType::f64);
  const MatmulPrecisionGuard tf32(Precision::tf32);
  CHECK(graph::product_type(f32, cpu) == graph::ProductType::f32);
  CHECK(graph::product_type(f32, cuda()) == graph::ProductType::tf32);
  CHECK(graph::product_type(bf16, cuda()) == graph::ProductType::bf16);
}

TEST_CASE("a product has the time of the order of its factors", "[ceilings]") {
  class Last : public Observer {
   public:
    void after(const Call& call, std::span<const Tensor> outputs) override {
      if (does_work(call)) work = graph::work_of(call, outputs);
    }
    graph::Work work;
  } last;
  const Observing observing(last);
  const Tensor x = ones({4, 6}), w = ones({8, 6}), g = ones({4, 8});
  Ceilings c = graph::default_ceilings(cpu);
  auto& curves = c.products[static_cast<std::size_t>(graph::ProductType::f32)];
  curves = {Curve::of_rate(4'000'000'000), Curve::of_rate(2'000'000'000),
            Curve::of_rate(1'000'000'000)};
  const auto picoseconds_a_flop = [&] {
    return graph::time_of(last.work, c, 0).computing_ps / last.work.product_flops;
  };
  matmul(x, transpose(w, 0, 1));  // a layer
  CHECK(last.work.factors == FactorOrder::along);
  CHECK(picoseconds_a_flop() == 250);
  matmul(g, w);  // the gradient of its input
  CHECK(last.work.factors == FactorOrder::mixed);
  CHECK(picoseconds_a_flop() == 500);
  matmul(transpose(g, 0, 1), x);  // and of its weight
  CHECK(last.work.factors == FactorOrder::across);
  CHECK(picoseconds_a_flop() == 1000);
  // A factor of one element along the sum is contiguous in any layout.
  matmul(ones({4, 1}), ones({1, 8}));
  CHECK(last.work.factors == FactorOrder::along);
  matmul(transpose(ones({2, 6, 4}), 1, 2), transpose(ones({2, 8, 6}), 1, 2));
  CHECK(last.work.factors == FactorOrder::mixed);
  graph::Work sum;
  sum += last.work;
  CHECK(sum.factors == FactorOrder::mixed);
}

TEST_CASE("a fused kernel has the order of its product's factors", "[ceilings]") {
  BodySpec body;
  body.product_flops = body.flops = 100;
  body.factors = FactorOrder::across;
  BodySpec other = body;
  other.factors = FactorOrder::along;
  body.next = std::make_shared<const BodySpec>(other);
  const Tensor a = ones({2, 2}), sum[] = {a + a};
  const Tensor* const inputs[] = {&a, &a};
  const Call call(Op::add, inputs, 2);
  const graph::Work work = graph::work_of(call, sum, &body);
  CHECK(work.product_flops == 200);
  CHECK(work.factors == FactorOrder::across);  // the first one's
}

TEST_CASE("few bytes take a kernel as long as they were measured to", "[ceilings]") {
  Ceilings c = graph::default_ceilings(cpu);
  // A latency of 100 ns, and 1 ns a byte from memory.
  c.moved = {{{1'000, 100'000}, {10'000, 200'000}, {1'000'000, 1'000'000'000}}};
  const Ceilings flat = c.for_step_over(2'000'000), kernels = c.for_kernels_over(2'000'000);
  CHECK(flat.moved.time_of(10) == 10'000);
  CHECK(kernels.moved.time_of(10) == 10'000);
  CHECK(flat.moved.time_of(50) == 50'000);
  CHECK(kernels.moved.time_of(100'000) == flat.moved.time_of(100'000));
  // In caches a byte takes 20 ps: of small kernels the latency is left.
  const Ceilings cached = c.for_step_over(6'667);
  const graph::Curve in_cache = c.for_kernels_over(6'667).moved;
  CHECK(cached.moved.time_of(100) == 2'000);
  CHECK(in_cache.time_of(100) == 10'000);
  CHECK(in_cache.time_of(1'000) == 100'000);
  CHECK(in_cache.time_of(0) == 0);
  CHECK(in_cache.time_of(100'000'000) >= cached.moved.time_of(100'000'000));
  const Ceilings full = c.for_kernels_over(6'667).at_full_rates();
  CHECK(full.moved.time_of(100) == cached.moved.time_of(100));
}

TEST_CASE("functions of an expression are counted by name", "[ceilings]") {
  CHECK(Expression("a + b * K(2)").functions() == 0);
  CHECK(Expression("exp(-a) + tanh(a)").functions() == 2);
  CHECK(Expression("K(1) / sqrt(expm1(a))").functions() == 1);
  CHECK(Expression("").functions() == 0);
}

TEST_CASE("every op that does work has a cost", "[ceilings][facts]") {
  for (int i = 0; i < op_count(); ++i) {
    const OpInfo& info = op_info(static_cast<Op>(i));
    INFO(info.name);
    CHECK((info.cost != nullptr) == (info.kind != OpKind::view));
    const bool computes = info.kind == OpKind::formula || info.kind == OpKind::reduction;
    if (computes) CHECK(info.element_flops + info.result_flops > 0);
  }
}

TEST_CASE("without a file ceilings are defaults, and say so", "[ceilings]") {
  const OwnCache cache;
  const auto found = graph::ceilings_of(cpu);
  CHECK_FALSE(found->calibrated());
  CHECK(found->why_defaults == "not calibrated");
  CHECK(found->node_ps > 0);
  CHECK(found->moved.rate() > 0);
  CHECK(found == graph::ceilings_of(cpu));
  const test::EnvironmentVariable off("BRRR_CACHE", "off");
  CHECK(graph::ceilings_path(cpu).empty());
  CHECK(graph::ceilings_of(cpu)->why_defaults == "the disk cache is off");
  CHECK_THROWS_WITH(graph::write_ceilings(measured_ceilings(), cpu),
                    Catch::Contains("[calibrate] expected a disk cache"));
}

TEST_CASE("ceilings are kept in a file, per machine and number of threads", "[ceilings]") {
  const OwnCache cache;
  CHECK_FALSE(graph::ceilings_of(cpu)->calibrated());
  const Ceilings written = measured_ceilings();
  graph::write_ceilings(written, cpu);
  const std::string path = graph::ceilings_path(cpu);
  CHECK(path.starts_with(cache.path + "/ceilings-"));
  CHECK(content(path) == graph::to_json(written));
  CHECK(*graph::ceilings_of(cpu) == written);
  const int threads = num_threads();
  set_num_threads(threads + 1);
  CHECK(graph::ceilings_path(cpu) != path);
  CHECK_FALSE(graph::ceilings_of(cpu)->calibrated());
  set_num_threads(threads);
  CHECK(*graph::ceilings_of(cpu) == written);
}

TEST_CASE("a file that is damaged, foreign or stale is not used, and the reason is named",
          "[ceilings]") {
  const std::string whole = graph::to_json(measured_ceilings());
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1, 2"), std::string(1 << 17, '['),
        whole.substr(0, whole.size() / 2), whole + " ", replaced(whole, "123456", "-5"),
        replaced(whole, "123456", "1e9"), replaced(whole, "\"format\": 6", "\"format\": \"3\""),
        replaced(whole, "\"call_ps\": 123456", "\"call_ps\": 123456,\n    \"call_ps\": 123456"),
        replaced(whole, "\"f32_flops\"", "\"f32\""), replaced(whole, "30000000", "3"),
        replaced(whole, "1048576", "1048576000000000000000"),
        replaced(whole, measured_ceilings().date, ""),
        replaced(whole, measured_ceilings().date, "yesterday")}) {
    INFO(text.substr(0, 2000));
    CHECK_THAT(why_unused(text), Catch::EndsWith(" is damaged"));
  }
  CHECK_THAT(why_unused(replaced(whole, "\"format\": 6", "\"format\": 3")),
             Catch::EndsWith(" is of another version of brrr"));
  Ceilings other = measured_ceilings();
  other.machine = "PDP-11, 1 thread";
  CHECK_THAT(why_unused(graph::to_json(other)),
             Catch::Contains(" is of another machine: PDP-11, 1 thread, not "));
  other = measured_ceilings();
  other.software = "an older BLAS";
  CHECK_THAT(why_unused(graph::to_json(other)),
             Catch::Contains(" is stale: of an older BLAS, not "));
  other = measured_ceilings();
  other.date = days_ago(89);
  {
    const OwnCache cache;
    graph::write_ceilings(other, cpu);
    CHECK(graph::ceilings_of(cpu)->calibrated());
  }
  other.date = days_ago(91);
  CHECK_THAT(why_unused(graph::to_json(other)),
             Catch::EndsWith(" is stale: measured " + other.date + ", more than 90 days ago"));
}

TEST_CASE("a folder in place of the file of ceilings is named as one", "[ceilings]") {
  const OwnCache cache;
  std::filesystem::create_directories(graph::ceilings_path(cpu));
  const auto found = graph::ceilings_of(cpu);
  CHECK_FALSE(found->calibrated());
  CHECK(found->why_defaults == graph::ceilings_path(cpu) + " is a directory");
}
