// Describes kernels and the edges between them in words, and checks the pairs of require_fused.
#include "brrr/graph/fusion_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

// In the order of WhyNotFused.
constexpr std::array<std::pair<const char*, const char*>, 23> kReasons = {{
    {"opaque call", "computed by a kernel of its own"},
    {"no correspondence of spaces",
     "an element of the consumer needs no single element of the producer"},
    {"different reads", "the consumer reads the producer twice, in different ways"},
    {"recomputes too much", "elements would be computed several times, and they are not cheap"},
    {"needed outside",
     "other kernels read the value, and the consumer does not visit each of its elements once"},
    {"delays readers", "other kernels read the value, and would wait for the consumer's reduction"},
    {"part of the rows", "the consumer reads only part of the results of a reduction"},
    {"too few rows", "a row is a block's work, and so few of them leave the device idle"},
    {"unequal rows", "the two reduce over different elements"},
    {"reduces rows", "what a reduction makes would be reduced again"},
    {"partial store", "only some of the kernel's elements would store the result"},
    {"mixed directions",
     "neighbours in memory are in one row for some operands, in one column for others"},
    {"matrix product",
     "its kernel reads factors from memory, and hands single results on, not rows of them"},
    {"gathered", "elements at computed places are read from memory, which must have all of them"},
    {"checked", "a bad index would be reported after a tensor from outside was written"},
    {"in place", "the kernel would read elements that other threads of it write"},
    {"would make a cycle", "a call between the two depends on the one and is needed by the other"},
    {"too many operands", "a kernel has a limited number of arguments"},
    {"too many values", "a kernel has a limited number of calls, numbers and values"},
    {"not profitable", "one kernel is predicted to take as long as the two"},
    {"made early", "the value is computed again in the backward pass, in place of being kept"},
    {"no kernel", "a kernel of both would exceed a limit of the device, or does not compile"},
    {"slower together", "one kernel takes longer than kernels of its parts, by times of all"},
}};

}  // namespace

const char* core::name_of(WhyNotFused why) {
  return kReasons.at(static_cast<std::size_t>(why)).first;
}
const char* core::describe(WhyNotFused why) {
  return kReasons.at(static_cast<std::size_t>(why)).second;
}

}  // namespace brrr

namespace brrr::graph {
namespace {

// "opaque call (matmul)".
std::string reason_text(const UnfusedEdge& edge) {
  return name_of(edge.why) + (edge.opaque.empty() ? "" : fmt::format(" ({})", edge.opaque));
}

// The kernels of a call and of its copies, by its number.
using KernelsOfCalls = std::map<int, std::vector<int>>;

KernelsOfCalls kernels_of_calls(const Graph& fused) {
  KernelsOfCalls kernels;
  for (std::size_t k = 0; k < fused.nodes.size(); ++k) {
    for (const int call : fused.nodes[k].calls) kernels[call].push_back(static_cast<int>(k));
  }
  return kernels;
}

bool share_a_kernel(const KernelsOfCalls& kernels, int a, int b) {
  return kernels.contains(a) && kernels.contains(b) &&
         std::ranges::any_of(kernels.at(a), [&](int k) {
           return std::ranges::find(kernels.at(b), k) != kernels.at(b).end();
         });
}

// The edges of the shortest path from one kernel to another; empty: there is none.
std::vector<std::size_t> edges_between(const Graph& fused, const KernelsOfCalls& kernels, int from,
                                       int to) {
  const auto kernel_of = [&](int call) {
    const auto found = kernels.find(call);
    return found == kernels.end() ? -1 : found->second.front();
  };
  std::map<int, std::size_t> came_by;  // kernels, and the edge by which the search reached each
  std::vector<int> reached = {from};
  for (std::size_t next = 0; next < reached.size() && !came_by.contains(to); ++next) {
    for (std::size_t e = 0; e < fused.unfused.size(); ++e) {
      const Unfused& edge = fused.unfused[e];
      const int reader = kernel_of(edge.consumer);
      if (kernel_of(edge.producer) != reached[next] || reader == from) continue;
      if (came_by.emplace(reader, e).second) reached.push_back(reader);
    }
  }
  std::vector<std::size_t> edges;
  for (int kernel = to; came_by.contains(kernel);) {
    edges.push_back(came_by.at(kernel));
    kernel = kernel_of(fused.unfused[edges.back()].producer);
  }
  std::ranges::reverse(edges);
  return edges;
}

std::string text_of(const UnfusedEdge& edge) {
  return fmt::format("{}: {} (at {}) -> {} (at {})", edge.value, edge.producer, edge.producer_line,
                     edge.consumer, edge.consumer_line);
}

// Why two calls are in different kernels.
std::string why_separate(const Graph& fused, const KernelsOfCalls& kernels, int a, int b) {
  std::vector<std::size_t> way;
  if (kernels.contains(a) && kernels.contains(b)) {
    const int of_a = kernels.at(a).front(), of_b = kernels.at(b).front();
    way = edges_between(fused, kernels, of_a, of_b);
    if (way.empty()) way = edges_between(fused, kernels, of_b, of_a);
  }
  if (way.empty()) return "no value goes from one to the other";
  const std::vector<UnfusedEdge> edges = describe_unfused(fused);
  std::string text;
  for (const std::size_t e : way) {
    text += fmt::format("{}{}: {}, {}", text.empty() ? "" : "; then ", reason_text(edges[e]),
                        describe(edges[e].why), text_of(edges[e]));
  }
  return text;
}

}  // namespace

std::vector<UnfusedEdge> describe_unfused(const Graph& graph) {
  std::vector<CallSite> sites;
  for (const Unfused& edge : graph.unfused) {
    sites.push_back(edge.producer_site);
    sites.push_back(edge.consumer_site);
  }
  std::vector<std::string> lines = describe(sites);
  std::vector<UnfusedEdge> edges;
  for (std::size_t i = 0; i < graph.unfused.size(); ++i) {
    const Unfused& edge = graph.unfused[i];
    UnfusedEdge text{.why = edge.why,
                     .value = describe(graph, edge.value),
                     .producer = op_info(edge.producer_op).name,
                     .consumer = op_info(edge.consumer_op).name,
                     .opaque = {},
                     .producer_line = std::move(lines[2 * i]),
                     .consumer_line = std::move(lines[2 * i + 1])};
    if (edge.why == WhyNotFused::opaque_call)
      text.opaque = edge.is_producer_opaque ? text.producer : text.consumer;
    edges.push_back(std::move(text));
  }
  return edges;
}

std::string unfused_text(const Graph& graph) {
  if (graph.unfused.empty()) return "";
  const std::vector<UnfusedEdge> edges = describe_unfused(graph);
  std::map<WhyNotFused, std::vector<const UnfusedEdge*>> by_reason;
  for (const UnfusedEdge& edge : edges) by_reason[edge.why].push_back(&edge);
  std::string text = fmt::format("  {} values go from kernel to kernel:\n", edges.size());
  for (const auto& [why, list] : by_reason) {
    std::map<std::string, int> opaque;
    for (const UnfusedEdge* edge : list) {
      if (!edge->opaque.empty()) ++opaque[edge->opaque];
    }
    std::string calls;
    for (const auto& [name, times] : opaque)
      calls += fmt::format("{} {} {}", calls.empty() ? ":" : ",", times, name);
    text +=
        fmt::format("    {} {} ({}){}\n", list.size(), name_of(why), brrr::describe(why), calls);
    for (const UnfusedEdge* edge : list) text += "      " + text_of(*edge) + "\n";
  }
  return text;
}

std::vector<GeneratedKernel> describe_kernels(const Graph& graph, std::span<const Launch> launches,
                                              const Prediction& prediction) {
  std::vector<GeneratedKernel> kernels;
  std::vector<CallSite> sites;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    if (!launch.body) continue;
    const Node& node = *launch.node;
    GeneratedKernel kernel;
    kernel.calls = node.fused;
    for (const Value& input : node.inputs) kernel.reads.push_back(describe(graph, input));
    for (const Value& output : node.outputs) kernel.writes.push_back(describe(graph, output));
    kernel.bytes_read = bytes_moved(node.inputs, {});
    kernel.bytes_written = bytes_moved({}, node.outputs);
    for (const BodySpec* body = node.body.get(); body; body = body->next.get()) {
      kernel.flops += body->flops;
      kernel.bytes_read -= body->unread;
    }
    kernel.predicted = prediction.kernels[i];
    KernelFacts facts = launch.body->facts();
    kernel.registers = facts.registers;
    kernel.local_bytes = facts.local_bytes;
    kernel.source = std::move(facts.source);
    kernels.push_back(std::move(kernel));
    sites.push_back(node.site);
  }
  std::vector<std::string> lines = describe(sites);
  for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i].line = std::move(lines[i]);
  return kernels;
}

std::string kernels_text(std::span<const GeneratedKernel> kernels, bool fast) {
  if (kernels.empty()) return "";
  std::string text =
      fmt::format("  {} generated kernels{}:\n", kernels.size(), fast ? " (fast rounding)" : "");
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const GeneratedKernel& kernel = kernels[i];
    std::string resources;
    if (kernel.registers >= 0) resources += fmt::format(", {} registers", kernel.registers);
    if (kernel.local_bytes >= 0) {
      resources += kernel.local_bytes == 0
                       ? ", no spills"
                       : fmt::format(", {} bytes of stack and spills", kernel.local_bytes);
    }
    text += fmt::format(
        "    {} [{}]: reads {} bytes, writes {} bytes, {} flop, predicted {:.3g} us{} (at {})\n", i,
        fmt::join(kernel.calls, ", "), kernel.bytes_read, kernel.bytes_written, kernel.flops,
        kernel.predicted.seconds() * 1e6, resources, kernel.line);
  }
  return text;
}

CompiledEntry report_of(const Program& program) {
  CompiledEntry line;
  line.device = program.graph().device;
  line.nodes = static_cast<int>(program.launches().size());
  line.lanes = program.plan().lanes;
  line.arena_bytes = program.plan().arena_bytes;
  line.least_bytes = program.plan().least_bytes;
  line.constant_bytes = program.memory().constant_bytes();
  line.kept_bytes = program.memory().gradient_bytes() + line.constant_bytes;
  line.result_bytes = program.result_bytes();
  const Executor::Stats stats = program.stats();
  line.launches = stats.nodes;
  line.scratch_bytes = stats.scratch_bytes;
  line.kernel_bytes = stats.kernel_bytes;
  line.capture_ms = stats.capture_ms;
  line.predicted = program.prediction().step;
  line.by_ceilings = program.prediction().step_by_ceilings;
  line.roofline = program.prediction().roofline;
  line.calibrated = program.prediction().ceilings->calibrated();
  line.measured = program.prediction().measured;
  return line;
}

void check_required(const Graph& before, const Graph& fused, const std::string& name) {
  if (before.required.empty()) return;
  const Flow flow(before);
  const KernelsOfCalls kernels = kernels_of_calls(fused);
  const auto number = [&](int call) { return before.nodes[call].number; };
  for (const RequiredFusion& pair : before.required) {
    const auto text = [&](const Value& value, int call) {
      std::string of = describe(before, value);
      if (call >= 0) {
        of += fmt::format(" = {} (at {})", op_info(before.nodes[call].call.op).name,
                          describe(before.nodes[call].site));
      }
      return of;
    };
    const int a = flow.writer(pair.a, pair.time), b = flow.writer(pair.b, pair.time);
    if (a >= 0 && b >= 0 && share_a_kernel(kernels, number(a), number(b))) continue;
    const std::string why = a < 0 || b < 0 ? fmt::format("no call of a replay makes {}",
                                                         describe(before, a < 0 ? pair.a : pair.b))
                                           : why_separate(fused, kernels, number(a), number(b));
    fail("[{}] require_fused expected one kernel for {} and {}, got two: {} (at {})", name,
         text(pair.a, a), text(pair.b, b), why, describe(pair.site));
  }
}

void report_uncompiled(const std::string& why) {
  constexpr std::size_t kMost = 16;
  static std::mutex* const mutex = new std::mutex;
  static auto* const reported = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  if (reported->size() >= kMost || !reported->insert(why).second) return;
  fmt::print(stderr,
             "[fuse] replays fused steps on the CPU call by call, since kernels cannot be "
             "compiled: {}\n",
             why);
}

}  // namespace brrr::graph
