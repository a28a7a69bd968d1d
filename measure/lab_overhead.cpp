// Experiments on overhead, and on what helps in each regime.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/graph/prediction.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/measure/step.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/clip.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/ops/functions.h"

namespace brrr::measure::lab {
namespace {

Step seeded_mlp_step(const LabOptions& options, std::int64_t batch, std::int64_t width,
                     int layers) {
  manual_seed(options.seed);
  const auto model = std::make_shared<nn::MLP>(
      std::vector<std::int64_t>(static_cast<std::size_t>(layers) + 1, width), here(options));
  return training_step(options.device, model, {batch, width});
}

}  // namespace

Finding additions(const LabOptions& options) {
  constexpr int kNodes = 200, kLoop = 4096;
  const Tensor a = rand({1}, here(options)), b = rand({1}, here(options));
  const Step eager = [=] { add(a, b); };
  const PreparedStep graph = prepare(
      options.device,
      [x = zeros({1}, here(options)), b]() mutable {
        for (int i = 0; i < kNodes; ++i) add_(x, b);
      },
      Mode::graph);
  const MultiplyAdds limit = multiply_add_limit(options);
  const std::vector<Timing> t =
      time_all(std::array{plain_add(kLoop, 1), synchronized_batch(options.device, eager),
                          synchronized_batch(options.device, graph.call), limit.batch},
               options.sampling());
  const double bare = kLoop / t[0].median, op = 1 / t[1].median, node = kNodes / t[2].median;
  const auto rate = [](const char* name, double value, const Timing& timing) {
    return Reading{.name = name, .value = value * 1e-6, .unit = "M/s", .spread = timing.spread};
  };
  Finding finding;
  finding.readings = {rate("bare loop in C++", bare, t[0]),
                      rate("eager op", op, t[1]),
                      rate("replayed", node, t[2]),
                      {.name = "bare loop over eager op",
                       .value = bare / op,
                       .article = 32e6 / 280e3,
                       // At most a hundredth of an op is the addition.
                       .claim = Interval::at_least(100),
                       .spread = std::max(t[0].spread, t[1].spread),
                       .miss = fmt::format("an addition is more than a hundredth of an op: {} ns "
                                           "of {}",
                                           number_text(1e9 / bare), number_text(1e9 / op))},
                      {.name = "flops of plain units in an eager op's time",
                       .value = limit.flops / t[3].median / op}};
  finding.readings[0].article = 32;    // Python's
  finding.readings[1].article = 0.28;  // PyTorch's
  if (!options.quick) {
    options.progress("python3");
    const PythonAdditions here = python_additions(options.device);
    if (here.python) finding.readings.push_back(rate("Python", *here.python, {}));
    if (here.python) finding.readings.back().article = 32;
    if (here.torch) finding.readings.push_back(rate("PyTorch, eager", *here.torch, {}));
    if (here.torch) finding.readings.back().article = 0.28;
    finding.why = text_of(here) + "; ";
  }
  const double faster = op / 280e3;  // than PyTorch
  finding.why += fmt::format(
      "an eager op takes {} ns, {:.1f} times {} PyTorch's 3570 in the article; a replayed one {}, "
      "a bare addition {}",
      number_text(1e9 / op), std::max(faster, 1 / faster), faster >= 1 ? "less than" : "as much as",
      number_text(1e9 / node), number_text(1e9 / bare));
  return finding;
}

namespace {

// A step of the sweep of batches: its time, and what it does.
struct Point {
  double batch, seconds, spread, kernels, bytes, flops;
};

Point point_of(const LabOptions& options, const std::function<Step()>& make, std::int64_t batch) {
  const PreparedStep step = prepare(options.device, make(), Mode::eager);
  const Timing timing = time(synchronized_batch(options.device, step.call), options.sampling());
  return {.batch = static_cast<double>(batch),
          .seconds = timing.median,
          .spread = timing.spread,
          .kernels = static_cast<double>(step.kernels),
          .bytes = step.bytes,
          .flops = step.flops};
}

// Explains how the time grows with the batch by what else grows with it.
std::string growth_text(const Point& once, const Point& twice) {
  return fmt::format(
      "from batch {} to {} the step takes {} us in place of {} with {:.2f} times the kernels, "
      "{:.2f} the bytes and {:.2f} the flops, at {} GFLOP/s in place of {} and {} GB/s in place of "
      "{}",
      once.batch, twice.batch, number_text(twice.seconds * 1e6), number_text(once.seconds * 1e6),
      twice.kernels / once.kernels, twice.bytes / once.bytes, twice.flops / once.flops,
      number_text(twice.flops / twice.seconds * 1e-9),
      number_text(once.flops / once.seconds * 1e-9),
      number_text(twice.bytes / twice.seconds * 1e-9),
      number_text(once.bytes / once.seconds * 1e-9));
}

// What a replay takes is kernels, which grow; the rest is overhead, which does not.
std::string overhead_text(const InModes& once, const InModes& twice) {
  const double eager = once.timings[0].median, replayed = once.timings[1].median;
  return fmt::format(
      "of the {} us of batch {} a replay takes {}, so that overhead is {:.0f} %, and the rest "
      "grows "
      "{} times",
      number_text(eager * 1e6), 1, number_text(replayed * 1e6),
      100 * std::max(0.0, 1 - replayed / eager), number_text(twice.timings[1].median / replayed));
}

}  // namespace

Finding batch_doubling(const LabOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  const std::int64_t width = on_cpu ? 64 : 256;
  const std::int64_t last = (on_cpu ? 1024 : 32768) / (options.quick ? 2 : 1);
  const auto step_of = [&](std::int64_t batch) {
    return seeded_mlp_step(options, batch, width, 4);
  };
  std::vector<Point> points;
  for (std::int64_t batch = 1; batch <= last; batch *= 2) {
    options.progress(fmt::format("batch {}", batch));
    points.push_back(point_of(
        options, [&] { return step_of(batch); }, batch));
  }
  const auto growth = [&](std::size_t i, double article, const Interval& claim) {
    const Point &once = points[i], &twice = points[i + 1];
    return Reading{
        .name = fmt::format("time at batch {} over batch {}", twice.batch, once.batch),
        .value = twice.seconds / once.seconds,
        .article = article,
        .claim = claim,
        .spread = std::max(once.spread, twice.spread),
        .miss = fmt::format("from batch {} to {} flops grow {} times, bytes {}", once.batch,
                            twice.batch, number_text(twice.flops / once.flops),
                            number_text(twice.bytes / once.bytes))};
  };
  const InModes one = time_modes(options, [&] { return step_of(1); }),
                two = time_modes(options, [&] { return step_of(2); });
  const auto replayed = static_cast<std::size_t>(Mode::graph);
  const auto us = [&](const InModes& modes, std::size_t mode) {
    return number_text(modes.timings[mode].median * 1e6);
  };
  const double gained = points[4].flops / points[4].bytes / (points[0].flops / points[0].bytes);
  Finding finding;
  finding.readings = {growth(0, 1.1, {0.8, 1.2}),
                      growth(points.size() - 2, 2, {1.6, 4}),
                      {.name = "speed-up replayed at batch 1",
                       .value = one.speed_up(Mode::graph),
                       .claim = Interval{1.2, 100},
                       .spread = one.spread(),
                       .miss = fmt::format("at batch 1 an eager step takes {} us, a replay {}",
                                           us(one, 0), us(one, replayed))},
                      {.name = "flops a byte at batch 16 over batch 1", .value = gained}};
  finding.readings[0].miss += "; " + overhead_text(one, two);
  finding.why = fmt::format(
      "{}; replayed, without most of the overhead, {} us in place of {}; {}. Below the width, {}, "
      "a larger batch also raises the flops a byte ({} times from batch 1 to 16): a flat time "
      "there may be bandwidth, as the third footnote says, unless replays are faster",
      growth_text(points[0], points[1]), us(two, replayed), us(one, replayed),
      growth_text(points[points.size() - 2], points.back()), width, number_text(gained));
  Series times{"step, us", {}}, intensities{"flops a byte", {}};
  for (const Point& point : points) {
    times.points.emplace_back(point.batch, point.seconds * 1e6);
    intensities.points.emplace_back(point.batch, point.flops / point.bytes);
  }
  finding.plot = Plot{"batch", {times, intensities}};
  return finding;
}

namespace {

Reading speed_up_reading(const char* regime, const char* what, const InModes& modes, Mode mode,
                         const Interval& claim) {
  const auto text = [&](std::size_t i) {
    return fmt::format("{} us with {} kernels and {} MB",
                       number_text(modes.timings[i].median * 1e6), modes.steps[i].kernels,
                       number_text(modes.steps[i].bytes * 1e-6));
  };
  return {.name = fmt::format("{}-bound: {}", regime, what),
          .value = modes.speed_up(mode),
          .claim = claim,
          .spread = modes.spread(),
          .miss = fmt::format("{}-bound: {} takes {}, eager {}", regime, name_of(mode),
                              text(static_cast<std::size_t>(mode)), text(0))};
}

}  // namespace

Finding remedies(const LabOptions& options) {
  const bool on_cpu = options.device.is_cpu();
  const MatmulPrecisionGuard precision(on_cpu ? Precision::full : Precision::tf32);
  const MatmulChoiceGuard choice(MatmulChoice::measured);
  const auto pointwise = [&]() -> Step {
    return [x = rand({large(options)}, here(options))]() mutable {
      add_(mul_(relu_(sub_(x, 0.25)), 0.5), 0.5);
    };
  };
  const std::int64_t wide = full_product(options);
  struct Regime {
    const char* name;
    std::function<Step()> make;
    Interval graph, fused;  // speed-ups that the article leads to expect
  };
  const Interval none{0.8, 1.25};
  const Regime regimes[] = {
      {"overhead", [&] { return seeded_mlp_step(options, 8, 16, 8); }, {1.3, 100}, {1.3, 100}},
      {"bandwidth", pointwise, none, {1.5, 10}},
      {"compute", [&] { return seeded_mlp_step(options, wide, wide, 2); }, none, none}};
  Finding finding;
  for (const Regime& regime : regimes) {
    options.progress(fmt::format("{}-bound", regime.name));
    const InModes modes = time_modes(options, regime.make);
    const auto add = [&](Mode mode, const char* what, const Interval& claim) {
      finding.readings.push_back(speed_up_reading(regime.name, what, modes, mode, claim));
    };
    finding.readings.push_back(
        microseconds(fmt::format("{}-bound: eager", regime.name), modes.timings[0]));
    add(Mode::graph, "speed-up replayed", regime.graph);
    add(Mode::fused, "speed-up fused", regime.fused);
    if (const auto& entry = modes.steps[1].entry) {
      finding.why += fmt::format("{}{}-bound replay predicted {} ({} ceilings)",
                                 finding.why.empty() ? "" : "; ", regime.name,
                                 graph::to_string(entry->predicted),
                                 entry->calibrated ? "calibrated" : "default");
    }
  }
  if (on_cpu) return finding;
  options.progress("tensor cores");
  const auto time_compute = [&](Precision factors) {
    const MatmulPrecisionGuard guard(factors);
    const PreparedStep step = prepare(options.device, regimes[2].make(), Mode::eager);
    return time(synchronized_batch(options.device, step.call), options.sampling());
  };
  const Timing plain = time_compute(Precision::full), tensor = time_compute(Precision::tf32);
  finding.readings.push_back(
      {.name = "compute-bound: speed-up by tensor cores",
       .value = plain.median / tensor.median,
       .claim = Interval{2, 20},
       .spread = std::max(plain.spread, tensor.spread),
       .miss = fmt::format("{} us in f32, {} in tf32", number_text(plain.median * 1e6),
                           number_text(tensor.median * 1e6))});
  return finding;
}

Finding chain(const LabOptions& options) {
  using optim::Transformation;
  constexpr std::int64_t kElements = 1 << 16;
  const auto clip = [] { return optim::clip(1.0); };
  const auto adam = [] { return optim::adam(1e-2); };
  // An update of parameters by gradients, some of which are clipped.
  struct Problem {
    std::vector<Tensor> params, gradients;
  };
  const auto problem = [&] {
    manual_seed(options.seed);
    return Problem{{randn({kElements}, here(options))}, {randn({kElements}, here(options)) * 2.0}};
  };
  const auto step_of = [&](const Transformation& t) -> Step {
    return [t, p = problem(), state = t.init(problem().params)]() mutable {
      t.apply(p.gradients, state, p.params);
    };
  };
  Problem chained = problem(), by_hand = problem();
  const Transformation both = optim::chain(clip(), adam()), first = clip(), second = adam();
  optim::State state = both.init(chained.params), first_state = first.init(by_hand.params),
               second_state = second.init(by_hand.params);
  for (int i = 0; i < 10; ++i) {
    both.apply(chained.gradients, state, chained.params);
    second.apply(first.update(by_hand.gradients, first_state, by_hand.params), second_state,
                 by_hand.params);
  }
  const double difference = item(max(abs(chained.params[0] - by_hand.params[0])));
  const InModes with = time_modes(options, [&] { return step_of(both); }),
                without = time_modes(options, [&] { return step_of(second); });
  Finding finding;
  finding.readings = {{.name = "largest difference from clipping, then Adam, by hand",
                       .value = difference,
                       .article = 0,
                       .claim = Interval{0, 0},
                       .miss = fmt::format("10 updates of {} elements by {}", kElements, 1e-2)}};
  constexpr const char* kModes[] = {"eager", "replayed", "fused"};
  for (std::size_t i = 0; i < 3; ++i) {
    finding.readings.push_back(microseconds(fmt::format("chain, {}", kModes[i]), with.timings[i]));
    finding.readings.push_back(
        microseconds(fmt::format("Adam alone, {}", kModes[i]), without.timings[i]));
  }
  finding.why = fmt::format(
      "of {} elements the chain takes {} kernels eagerly and {} fused, and moves {} MB and "
      "{} MB; Adam alone {} MB; a fused step of the chain takes {:.2f} times as long as Adam's",
      kElements, with.steps[0].kernels, with.steps[2].kernels,
      number_text(with.steps[0].bytes * 1e-6), number_text(with.steps[2].bytes * 1e-6),
      number_text(without.steps[0].bytes * 1e-6),
      with.timings[2].median / without.timings[2].median);
  return finding;
}

}  // namespace brrr::measure::lab
