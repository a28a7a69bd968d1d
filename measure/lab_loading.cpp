// The experiment on a step whose input is prepared by code of the host: what bounds it, and what
// helps.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/measure/diagnose.h"
#include "brrr/measure/lab_experiments.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/host_copy.h"

namespace brrr::measure::lab {
namespace {

constexpr std::int64_t kBatch = 256, kFeatures = 32;

// Parses a batch from text, several times over: a batch that takes as long as it should.
class Parser {
 public:
  Parser() : values_(kBatch * kFeatures) {
    for (std::int64_t i = 0; i < kBatch * kFeatures; ++i)
      text_ += fmt::format("{:.6f}\n", static_cast<double>(i % 997) / 997);
  }
  void set_passes(int passes) { passes_ = passes; }
  const std::vector<float>& parse() {
    for (int pass = 0; pass < passes_; ++pass) {
      const char *at = text_.data(), *const end = at + text_.size();
      for (float& value : values_) at = std::from_chars(at, end, value).ptr + 1;
    }
    return values_;
  }

 private:
  std::string text_;
  std::vector<float> values_;
  int passes_ = 1;
};

// Parses the next batch on a thread of its own, while the step of this one runs.
class ParsedAhead {
 public:
  explicit ParsedAhead(Parser& parser)
      : thread_([this, &parser] {
          for (;;) {
            wanted_.acquire();
            if (ends_) return;
            parsed_ = parser.parse();
            ready_.release();
          }
        }) {
    wanted_.release();
  }
  ~ParsedAhead() {
    ready_.acquire();
    ends_ = true;
    wanted_.release();
    thread_.join();
  }
  ParsedAhead(const ParsedAhead&) = delete;
  ParsedAhead& operator=(const ParsedAhead&) = delete;

  // The batch that is ready. It is valid until the next call.
  const std::vector<float>& next() {
    ready_.acquire();
    taken_.swap(parsed_);
    wanted_.release();
    return taken_;
  }

 private:
  std::binary_semaphore wanted_{0}, ready_{0};
  bool ends_ = false;
  std::vector<float> parsed_, taken_;
  std::thread thread_;  // last: it uses the others
};

// A training step on the batch in `x`.
PreparedStep step_on(const LabOptions& options, const Tensor& x, Mode mode) {
  const std::int64_t width = options.device.is_cpu() ? 128 : 1024;
  manual_seed(options.seed);
  const auto model = std::make_shared<nn::MLP>(
      std::vector<std::int64_t>{kFeatures, width, width, kFeatures}, here(options));
  const auto optimizer = std::make_shared<optim::Optimizer>(*model, optim::adam(1e-4));
  return prepare(
      options.device,
      [model, optimizer, x] {
        optimizer->zero_grad();
        backward(nn::mse_loss((*model)(x), x));
        optimizer->step();
      },
      mode);
}

// Steps whose batch is parsed before them, and one whose next batch is parsed beside it.
class LoadingSteps {
 public:
  explicit LoadingSteps(const LabOptions& options)
      : options_(options),
        x_(zeros({kBatch, kFeatures}, here(options))),
        eager_(step_on(options, x_, Mode::eager)),
        replayed_(step_on(options, x_, Mode::graph)) {
    const auto [step, pass] = time_both(synchronized_batch(options.device, eager_.call),
                                        host_batch([&] { parser_.parse(); }), options.sampling());
    constexpr double kLonger = 2;  // than the step
    const int passes =
        std::max(1, static_cast<int>(std::lround(kLonger * step.median / pass.median)));
    parser_.set_passes(passes);
    parser_ahead_.set_passes(passes);
  }

  struct Times {
    Timing eager, replayed, ahead, parsing;
    double beside() const { return eager.median - parsing.median; }
  };
  Times time() {
    ParsedAhead ahead(parser_ahead_);
    const std::vector<Batch> batches = {
        synchronized_batch(options_.device, [&] { after_parsing(eager_); }),
        synchronized_batch(options_.device, [&] { after_parsing(replayed_); }),
        synchronized_batch(options_.device,
                           [&] {
                             copy_from_host(x_, ahead.next().data());
                             eager_.call();
                           }),
        host_batch([&] { parser_.parse(); })};
    const std::vector<Timing> t = time_all(batches, options_.sampling());
    return {t[0], t[1], t[2], t[3]};
  }

  // Code of this library has brrr's name, so that samples of the stack do not count it as the
  // step's own: its share is by a clock.
  Diagnosis diagnose_eager(const Times& times) {
    Evidence evidence =
        gather(options_.device, [&] { after_parsing(eager_); }, {.sampling = options_.sampling()});
    evidence.user = {.share = std::min(1.0, times.parsing.median / times.eager.median),
                     .lines = {{.place = "the parser of the batch"}}};
    return judge(evidence);
  }

 private:
  void after_parsing(const PreparedStep& step) {
    copy_from_host(x_, parser_.parse().data());
    step.call();
  }

  const LabOptions& options_;
  Tensor x_;
  PreparedStep eager_, replayed_;
  Parser parser_, parser_ahead_;
};

}  // namespace

Finding data_loading(const LabOptions& options) {
  LoadingSteps steps(options);
  const LoadingSteps::Times t = steps.time();
  options.progress("diagnosis");
  const Diagnosis diagnosis = steps.diagnose_eager(t);
  const auto us = [](double seconds) { return number_text(seconds * 1e6); };
  const std::string parts =
      fmt::format("parsing takes {} us and the rest {}", us(t.parsing.median), us(t.beside()));
  // Without all that is not parsing, and with both parts at once.
  const double at_most = t.eager.median / t.parsing.median,
               at_once = t.eager.median / std::max(t.parsing.median, t.beside());
  Finding finding;
  finding.readings = {
      microseconds("parsed, then an eager step", t.eager),
      microseconds("parsed, then a replay", t.replayed),
      microseconds("parsed ahead by a second thread, an eager step", t.ahead),
      microseconds("parsing alone", t.parsing),
      {.name = "bound by its own code, by diagnose",
       .value = diagnosis.regime == Regime::user ? 1.0 : 0.0,
       .claim = Interval{1, 1},
       .spread = t.eager.spread,
       .miss =
           fmt::format("of the step parsing is {:.0f} %", 100 * t.parsing.median / t.eager.median)},
      {.name = "its own code, of the step",
       .value = diagnosis.shares ? 100 * diagnosis.shares->user : 0,
       .unit = "%",
       .spread = t.eager.spread},
      {.name = "speed-up replayed",
       .value = t.eager.median / t.replayed.median,
       .claim = Interval{0.8, 1.1 * at_most},
       .spread = std::max(t.eager.spread, t.replayed.spread),
       .miss = fmt::format("of the {} us beside the parser a replay saves {}", us(t.beside()),
                           us(t.eager.median - t.replayed.median))},
      {.name = "speed-up parsed ahead",
       .value = t.eager.median / t.ahead.median,
       .claim = Interval{0.75 * at_once, 1.25 * at_once},
       .spread = std::max(t.eager.spread, t.ahead.spread),
       .miss = fmt::format("a step takes {} us, the longer part of it {}", us(t.ahead.median),
                           us(std::max(t.parsing.median, t.beside())))}};
  finding.why =
      fmt::format("{}; {}: one after the other {}, replayed {}, at once {}", to_string(diagnosis),
                  parts, us(t.eager.median), us(t.replayed.median), us(t.ahead.median));
  return finding;
}

}  // namespace brrr::measure::lab
