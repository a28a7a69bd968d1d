#include "brrr/measure/trace_details.h"

#include <execinfo.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "brrr/dispatch/cost.h"
#include "brrr/dispatch/observe.h"
#include "brrr/graph/ir.h"
#include "brrr/measure/own_calls.h"
#include "brrr/measure/program_code.h"
#include "brrr/measure/replays.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::measure {
namespace {

constexpr int kFrames = 48;

struct Seen {
  const char* name;
  CallDetails details;
  std::vector<std::uintptr_t> stack;
};

// Addresses inside of the calls that are being made, innermost first.
std::vector<std::uintptr_t> stack_here() {
  std::array<void*, kFrames> frames{};
  const int depth = ::backtrace(frames.data(), kFrames);
  std::vector<std::uintptr_t> stack;
  for (int i = 0; i < depth; ++i) stack.push_back(reinterpret_cast<std::uintptr_t>(frames[i]) - 1);
  return stack;
}

// The observed calls, in order.
class Calls final : public core::Observer {
 public:
  void after(const core::Call& call, std::span<const Tensor> outputs) override {
    const core::Cost cost = core::cost_of(call, outputs);
    const bool backward = thread_context.backward_runs > 0;
    went_backward_ |= backward;
    const graph::Role role = backward         ? graph::Role::backward
                             : went_backward_ ? graph::Role::update
                                              : graph::Role::forward;
    CallDetails details{.flops = cost.flops, .bytes = cost.bytes, .phase = graph::name_of(role)};
    if (!outputs.empty() && outputs[0].defined()) {
      const Tensor& first = outputs[0];
      details.result =
          fmt::format("{}[{}]", name_of(first.dtype()), fmt::join(first.shape(), ", "));
    }
    calls.push_back({op_info(call.op).name, std::move(details), stack_here()});
  }

  std::vector<Seen> calls;

 private:
  bool went_backward_ = false;
};

// The op spans of a step on the thread that runs it, in order.
std::vector<HostSpan*> ops_of(Timeline& timeline, const HostSpan& step) {
  std::vector<HostSpan*> ops;
  for (HostSpan& span : timeline.host) {
    if (span.work == HostWork::op && span.thread == step.thread && span.start_ns >= step.start_ns &&
        span.start_ns < step.end_ns)
      ops.push_back(&span);
  }
  return ops;
}

// The span of a generated kernel has the names of its calls.
bool is_of(const HostSpan& span, const Seen& seen) {
  return span.name == seen.name || std::string_view(span.name).find(", ") != std::string::npos;
}

// Phases and lines. A replay calls what its launches say, and is called at one line.
void add_places(std::vector<Seen>& calls, bool eager,
                const std::vector<core::LaunchCost>& launches) {
  if (!eager && launches.size() != calls.size()) {
    for (Seen& each : calls) each.details.phase.clear();
    return;
  }
  std::vector<std::span<const std::uintptr_t>> stacks;
  for (const Seen& each : calls) stacks.emplace_back(each.stack);
  const std::vector<Caller> callers = eager ? callers_in(stacks) : std::vector<Caller>();
  const std::vector<std::string> lines = lines_of(launches);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CallDetails& details = calls[i].details;
    details.line = eager ? callers[i].line : lines[i];
    if (!eager) details.phase = launches[i].phase;
  }
}

}  // namespace

void add_details(Timeline& timeline, const std::function<void()>& step) {
  Calls calls;
  std::vector<ReplayedEntry> replayed;
  {
    OwnCalls own(calls);
    const core::Observing observing(own);
    replayed = replays_in(step);
  }
  if (replayed.size() == 1) timeline.launches = replayed.front().launches();
  for (const HostSpan& recorded : timeline.steps) {
    const std::vector<HostSpan*> ops = ops_of(timeline, recorded);
    if (ops.size() != calls.calls.size()) continue;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (is_of(*ops[i], calls.calls[i])) ops[i]->call = i;
    }
  }
  add_places(calls.calls, replayed.empty(), timeline.launches);
  for (Seen& each : calls.calls) timeline.calls.push_back(std::move(each.details));
}

}  // namespace brrr::measure
