#include "tests/harness/comparisons.h"

#include <algorithm>

#include "tests/harness/evidence.h"

namespace brrr::testing {
namespace {

using measure::Comparison;
using measure::Evidence;
using measure::Side;
using measure::Tried;

// The share of the losses that fused steps may differ by, where they reduce in another order.
constexpr double kLossBound = 2e-3;

Side side_of(std::string name, const Evidence& e, const StepTime& predicted) {
  Side side;
  side.name = std::move(name);
  side.mode = e.mode;
  side.losses.assign(20, 0.5);
  side.losses.front() = 2.302585;
  side.step = e.step;
  side.host = e.host;
  side.device = e.queued;
  side.cost = e.cost;
  side.cost->predicted = predicted;
  side.cost->predicted.overhead_ps += static_cast<int>(e.mode) * predicted.ps() / 40;
  side.cost->host_slowdown = 1.04;
  side.cost->timed_slowdown = 1.17;
  side.cost->peak_bytes = static_cast<std::int64_t>(e.step.median * 1e12) % 9'000'000 + 1'000'000;
  side.diagnosis = measure::judge(e);
  return side;
}

Side close(Side side, double largest) {
  side.agreement = {.bound = kLossBound, .largest = largest};
  return side;
}

// `gain`: how many times as fast the same work is.
Tried tried(std::string name, double gain, double work = 1) {
  return {.name = std::move(name), .work = work, .base = timing(gain), .step = timing(work)};
}

Comparison comparison_of(std::string name, std::string describes, std::vector<Side> sides) {
  Comparison found;
  found.name = std::move(name);
  found.describes = std::move(describes);
  found.device = sides.front().host ? cuda(0) : Device::cpu();
  found.sides = std::move(sides);
  return found;
}

// A tiny network: its kernels take less time than their launches.
Comparison bound_by_overhead() {
  const StepTime work = time_of(0, 0.4, 0.9);
  Comparison found = comparison_of(
      "mlp", "batch 32, width 64, 4 layers, f32 on cuda:0, adam",
      {side_of("eager", cuda_step(Mode::eager, 412, 131, time_of(96, 0.4, 1.1), work),
               time_of(396, 0.4, 1.1)),
       side_of("graph", cuda_step(Mode::graph, 93.4, 88.1, time_of(71, 0.4, 1.1), work),
               time_of(88.7, 0.4, 1.1)),
       close(side_of("fused", cuda_step(Mode::fused, 41.6, 38.9, time_of(30, 0.3, 1.1), work),
                     time_of(39.2, 0.3, 1.1)),
             3.4e-5)});
  found.tried = {tried("twice the batch", 1.93, 2), tried("TF32 products", 1.01),
                 tried("bf16", 0.97)};
  return found;
}

// A step that parses its rows.
Comparison bound_by_own_code() {
  std::vector<Side> sides;
  for (const auto& [mode, us, own, in_kernels] : {std::tuple(Mode::eager, 1240.0, 0.724, 251.0),
                                                  std::tuple(Mode::graph, 1130.0, 0.791, 214.0),
                                                  std::tuple(Mode::fused, 1116.0, 0.802, 208.0)}) {
    Evidence e = cpu_step(us, in_kernels, time_of(21, 40, 150), time_of(0, 36, 144));
    e.mode = mode;
    e.user = {
        .share = own,
        .lines = {
            {.place = "examples/slow_net.cpp:49 in parse_rows", .share = own - 0.093},
            {.place = "examples/slow_net.cpp:60 in next_batch", .waits = true, .share = 0.085}}};
    e.cost.user_ps = ps(us * own);
    sides.push_back(side_of(measure::name_of(mode), e, time_of(us * own + 60, 41, 149)));
  }
  Comparison found = comparison_of("slow net", "128 rows", std::move(sides));
  found.tried = {tried("one thread", 0.99), tried("twice the batch", 1.02, 2)};
  return found;
}

Comparison bound_by_bandwidth() {
  Comparison found = comparison_of(
      "transformer", "batch 8, width 512, 4 layers, 8 heads, seq 512, bf16 on cuda:0, adam",
      {side_of("eager",
               cuda_step(Mode::eager, 4230, 4190, time_of(370, 3110, 690), time_of(0, 3040, 520)),
               time_of(420, 3330, 820)),
       side_of("graph",
               cuda_step(Mode::graph, 3990, 3980, time_of(240, 3110, 690), time_of(0, 3040, 520)),
               time_of(360, 3330, 820)),
       close(
           side_of("fused",
                   cuda_step(Mode::fused, 1084, 1079, time_of(140, 440, 430), time_of(0, 400, 380)),
                   time_of(150, 440, 430)),
           4.2e-3)});
  found.tried = {tried("fused min_cut", 1.12), tried("twice the batch", 1.03, 2)};
  return found;
}

// Seconds, by ceilings that nobody measured, on a busy machine.
Comparison bound_by_compute() {
  std::vector<Side> sides;
  for (const auto& [mode, ms, spread] :
       {std::tuple(Mode::eager, 2310.0, 0.31), std::tuple(Mode::graph, 2288.0, 0.04),
        std::tuple(Mode::fused, 2274.0, 0.142)}) {
    Evidence e =
        cpu_step(ms * 1e3, ms * 0.98e3, time_of(2e3, 310e3, 1.62e6), time_of(0, 310e3, 1.62e6));
    e.mode = mode;
    e.step.spread = spread;
    e.cost.calibrated = false;
    e.cost.why_defaults = "not calibrated";
    sides.push_back(side_of(measure::name_of(mode), e, time_of(2e3, 310e3, 1.62e6)));
  }
  Comparison found =
      comparison_of("mlp", "batch 4096, width 4096, 12 layers, f32 on cpu, lion", std::move(sides));
  found.tried = {tried("graph min_cut", 1.01), tried("adam in place of lion", 0.94),
                 tried("one thread", 0.53)};
  return found;
}

// One fused kernel takes most of the step.
Comparison bound_by_a_kernel() {
  std::vector<Side> sides;
  const measure::MeasuredKernel slow{
      .name = "reshape, permute, mul, sub, exp, sum, div, dropout, mul, sum, mul, sub, mul, where",
      .result = "bf16[8, 16, 512, 512]",
      .module = "decoder.blocks.11.attention",
      .phase = "backward",
      .launches = 12,
      .seconds = 5.31e-3,
      .needed = 0.94e-3};
  const measure::MeasuredKernel fine{.name = "matmul", .seconds = 2e-3, .needed = 1.7e-3};
  for (const auto& [mode, us] : {std::pair(Mode::eager, 7930.0), std::pair(Mode::graph, 7902.0),
                                 std::pair(Mode::fused, 7690.0)}) {
    Evidence e = cuda_step(mode, us, us - 12, time_of(95, 1310, 1280), time_of(0, 1240, 1130));
    e.kernels = {slow, fine};
    sides.push_back(close(side_of(measure::name_of(mode), e, time_of(110, 1310, 1280)), 8e-4));
  }
  sides.front().agreement = {};
  return comparison_of("decoder", "batch 8, seq 512, bf16 on cuda:0", std::move(sides));
}

// The stream cannot queue a whole step, and the card is shared.
Comparison without_verdict() {
  std::vector<Side> sides;
  for (const auto& [mode, us] : {std::pair(Mode::eager, 0.84), std::pair(Mode::graph, 0.612),
                                 std::pair(Mode::fused, 0.599)}) {
    Evidence e = cuda_step(mode, us, 0, time_of(0.3, 0.1, 0.05), time_of(0, 0.1, 0.05));
    e.queued.reset();
    e.gpu->processes = 3;
    e.step.spread = 0.6 * us;
    sides.push_back(side_of(measure::name_of(mode), e, time_of(0.3, 0.1, 0.05)));
  }
  return comparison_of("counter", "", std::move(sides));
}

// All that a summary may have to fit in: candidates with long names, every part of a step, a
// verdict that is unsure, characters of two bytes.
Comparison crowded() {
  std::vector<Side> sides;
  for (const auto& [name, us] :
       {std::pair("Größe 4096 mit Gewichtsabnahme, aufgewärmt", 10450.0),
        std::pair("adamw with decoupled weight decay and a warm-up", 10120.0)}) {
    Evidence e =
        cuda_step(Mode::eager, us, us * 0.72, time_of(410, 1700, 1500), time_of(0, 1540, 1420));
    e.kernels = {
        {.name = "gather", .result = "f32[65536, 256]", .seconds = 2e-3, .needed = 1e-3},
        {.name = "matmul", .result = "f32[65536, 256]", .seconds = 4e-3, .needed = 3.9e-3}};
    e.user = {.share = 0.11,
              .lines = {{.place = "/home/user/projects/tables/loader.cpp:1204 in columns_of",
                         .share = 0.11}}};
    e.step.spread = 0.5;
    e.queued->spread = 0.42;
    sides.push_back(side_of(name, e, time_of(1200, 1700, 1500)));
    sides.back().losses.clear();
  }
  Comparison found = comparison_of("Netz für Maße", std::string(90, 'x'), std::move(sides));
  found.interrupted =
      "at 31 of 44: adamw with decoupled weight decay and a warm-up, twice the batch";
  return found;
}

}  // namespace

std::vector<std::pair<std::string, Comparison>> prepared_comparisons() {
  return {{"overhead", bound_by_overhead()},
          {"own_code", bound_by_own_code()},
          {"bandwidth", bound_by_bandwidth()},
          {"compute", bound_by_compute()},
          {"kernel", bound_by_a_kernel()},
          {"no_verdict", without_verdict()},
          {"crowded", crowded()}};
}

}  // namespace brrr::testing
