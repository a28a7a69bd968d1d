#include "brrr/measure/trace_details.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "brrr/dispatch/cost.h"
#include "brrr/dispatch/observe.h"
#include "brrr/measure/replays.h"

namespace brrr::measure {
namespace {

struct Seen {
  const char* name;
  CallDetails details;
};

// The calls of one thread, in order.
class Calls final : public core::Observer {
 public:
  void after(const core::Call& call, std::span<const Tensor> outputs) override {
    if (std::this_thread::get_id() != thread_) return;
    const core::Cost cost = core::cost_of(call, outputs);
    CallDetails details{.flops = cost.flops, .bytes = cost.bytes};
    if (!outputs.empty() && outputs[0].defined()) {
      const Tensor& first = outputs[0];
      details.result =
          fmt::format("{}[{}]", name_of(first.dtype()), fmt::join(first.shape(), ", "));
    }
    calls.push_back({op_info(call.op).name, std::move(details)});
  }

  std::vector<Seen> calls;

 private:
  std::thread::id thread_ = std::this_thread::get_id();
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

}  // namespace

void add_details(Timeline& timeline, const std::function<void()>& step) {
  Calls calls;
  std::vector<ReplayedEntry> replayed;
  {
    const core::Observing observing(calls);
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
  for (Seen& each : calls.calls) timeline.calls.push_back(std::move(each.details));
}

}  // namespace brrr::measure
