#include "brrr/measure/variations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "brrr/ops/jit/cpu_toolchain.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::measure {
namespace {

// A setting of the process that a variation changes.
class Entered {
 public:
  explicit Entered(const Variation& variation) : variation_(variation) {
    if (variation_.enter) variation_.enter();
  }
  ~Entered() {
    if (variation_.leave) variation_.leave();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const Variation& variation_;
};

}  // namespace

Variation with_tf32(std::function<Step()> make) {
  return {.name = "TF32 products",
          .make = std::move(make),
          .enter = [] { set_matmul_precision(Precision::tf32); },
          .leave = [before = matmul_precision()] { set_matmul_precision(before); }};
}

Variation with_threads(int count, std::function<Step()> make) {
  return {.name = count == 1 ? "one thread" : fmt::format("{} threads", count),
          .make = std::move(make),
          .enter = [count] { set_num_threads(count); },
          .leave = [before = num_threads()] { set_num_threads(before); }};
}

double Tried::gain() const {
  return work * std::min(base.median / step.median, base.least / step.least);
}

Tried try_variation(const Variation& variation, Device device, const std::function<void()>& step,
                    const Timing& alone, const Sampling& sampling) {
  Tried tried{.name = variation.name, .work = variation.work};
  try {
    Step changed;
    {
      const Entered entered(variation);
      changed = variation.make();
      for (int i = 0; i < 3; ++i) changed();  // the second one is captured
      synchronize(device);
    }
    const Batch plain = synchronized_batch(device, step);
    const Batch inner = synchronized_batch(device, [&changed] { changed(); });
    const bool sets = variation.enter != nullptr;
    // Threads start, and a step that depends on the setting is looked up, before the time counts.
    const Batch settled = [&](long n) {
      if (sets) step();
      return plain(n);
    };
    const Batch varied = [&](long n) {
      const Entered entered(variation);
      if (sets) changed();
      return inner(n);
    };
    std::tie(tried.base, tried.step) = time_both(settled, varied, sampling);
    tried.base.median = std::min(tried.base.median, alone.median);
    tried.base.least = std::min(tried.base.least, alone.least);
  } catch (const jit::Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    tried.failure = problem.what();
  }
  return tried;
}

std::string to_string(const Tried& tried) {
  if (!tried.failure.empty()) return fmt::format("{}: {}", tried.name, tried.failure);
  return fmt::format("{}: {:.2f} times {}", tried.name, tried.gain(),
                     tried.work == 1 ? "as fast" : "the work a second");
}

}  // namespace brrr::measure
