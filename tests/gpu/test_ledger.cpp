// The overhead ledger on a GPU: stacks go through the driver's library, and time that the host
// waits is waiting.
#include "brrr/measure/ledger.h"
#include "brrr/nn/losses.h"
#include "brrr/nn/mlp.h"
#include "brrr/nn/optim/optimizer.h"
#include "brrr/nn/optim/optimizers.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include <brrr/brrr.h>

using namespace brrr;
using measure::HostClass;
using measure::Ledger;

namespace {

// Of the time, the part whose stacks the unwinder followed to the step.
double followed(const Ledger& ledger) {
  double ns = 0;
  for (const measure::HostProfile::Stack& stack : ledger.profile.stacks)
    ns += stack.complete ? static_cast<double>(stack.ns) : 0;
  return ns / static_cast<double>(std::max<std::int64_t>(ledger.profile.ns(), 1));
}

std::string describe(const Ledger& ledger) {
  std::ostringstream text;
  for (const measure::LedgerLine& line : ledger.lines)
    text << measure::name_of(line.of) << ' ' << line.ns << " ns, " << line.share * 100 << " %\n";
  for (const std::string& what : ledger.missing) text << "missing: " << what << '\n';
  text << "followed " << followed(ledger) << ", untraced " << ledger.untraced.median * 1e9
       << " ns, closure " << ledger.closure() << ", perturbation " << ledger.perturbation();
  return text.str();
}

}  // namespace

TEST_CASE("an overhead-bound step's time is in what the host does", "[ledger][timing]") {
  const Options here{.device = testing::kGpu};
  nn::MLP model({64, 64, 64, 64, 64}, here);
  const Tensor x = randn({16, 64}, here), y = randn({16, 64}, here);
  optim::Optimizer optimizer(model, optim::adam(1e-3));
  const Ledger ledger = measure::host_ledger(testing::kGpu,
                                             [&] {
                                               optimizer.zero_grad();
                                               backward(nn::mse_loss(model(x), y));
                                               optimizer.step();
                                             },
                                             {.seconds = 2});
  INFO(describe(ledger));
  CHECK(ledger.samples > 100);
  CHECK(ledger[HostClass::launch].share > 0.1);
  CHECK(ledger[HostClass::dispatch].share > 0.01);
  CHECK(ledger[HostClass::autograd].share > 0.01);
  CHECK(ledger[HostClass::kernels].share < 0.05);
  CHECK(ledger[HostClass::other].share < 0.02);
  CHECK(followed(ledger) > 0.9);
  // A machine that is busy with other work leaves more open, and the ledger says so.
  CHECK(std::abs(ledger.closure()) < 0.1);
  CHECK((std::abs(ledger.closure()) < 0.03 || !ledger.is_complete()));
}

TEST_CASE("a step that waits for the device is waiting", "[ledger][timing]") {
  testing::delay(100);
  const Ledger ledger =
      measure::host_ledger(testing::kGpu, [] { testing::delay(1000); }, {.seconds = 1});
  INFO(describe(ledger));
  CHECK(ledger[HostClass::waiting].share > 0.9);
}

TEST_CASE("a replay's host time is launch and waiting", "[ledger][timing]") {
  Tensor x = ones({256}, {.device = testing::kGpu});
  auto step = compile(
      [x]() mutable {
        for (int i = 0; i < 20; ++i) add_(mul_(x, 0.5), 0.25);
      },
      {.mode = Mode::graph});
  for (int i = 0; i < 2; ++i) step();
  const Ledger ledger = measure::host_ledger(testing::kGpu, [&] { step(); }, {.seconds = 1});
  INFO(describe(ledger));
  CHECK(ledger[HostClass::launch].share + ledger[HostClass::waiting].share > 0.7);
  CHECK(ledger[HostClass::other].share < 0.02);
}
