#include "brrr/graph/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/ceilings.h"
#include "brrr/graph/fusion_kernel.h"
#include "brrr/graph/passes.h"
#include "brrr/graph/price.h"
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"

namespace brrr::graph {
namespace {

using std::int64_t;

// For how long kernels of a step are timed, and how long its replays may take.
constexpr double kMostSeconds = 1;
// By how much a candidate must be faster than one before it: times of one kernel differ as much.
constexpr double kNoise = 0.02;

// --- Choices on disk ---

constexpr int kChoiceFormat = 2;
constexpr char kKind[] = "choice";

void write_choice(const jit::Hash128& key, const FusionChoice& choice) {
  std::vector<int> words = {kChoiceFormat, choice.unfused, choice.copies_factors};
  for (const auto& [call, why] : choice.apart) words.push_back(call);
  std::string bytes(words.size() * sizeof(int), '\0');
  std::memcpy(bytes.data(), words.data(), bytes.size());
  jit::disk_cache::write(key, kKind, bytes);
}

std::optional<FusionChoice> read_choice(const jit::Hash128& key) {
  std::string bytes;
  if (!read_kept(key, kKind, bytes)) return {};
  std::vector<int> words(bytes.size() / sizeof(int));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int));
  if (words.size() < 3 || words[0] != kChoiceFormat) return {};
  FusionChoice choice;
  choice.unfused = words[1] != 0;
  choice.copies_factors = words[2] != 0;
  for (std::size_t i = 3; i < words.size(); ++i)
    choice.apart.emplace(words[i], WhyNotFused::slower);
  return choice;
}

// --- Kernels and their parts ---

// Makes arguments of what a graph reads and does not write before.
void read_from_outside(Graph& part) {
  std::vector<bool> known(part.buffers.size(), false);
  int arguments = 0;
  for (const Node& node : part.nodes) {
    for (const Value& input : node.inputs) {
      Buffer& buffer = part.buffers[input.buffer];
      if (known[input.buffer] || is_outside(part, input.buffer)) continue;
      known[input.buffer] = true;
      buffer.kind = Buffer::Kind::input;
      buffer.input = arguments++;
    }
    for (const Value& output : node.outputs) known[output.buffer] = true;
  }
}

// The calls of one fused kernel as a graph of its own: what the kernel reads comes from outside,
// and what it writes is needed. None if the calls cannot be told apart by their numbers.
std::optional<Graph> calls_of(const Node& kernel, const Graph& whole) {
  const std::set<int> numbers(kernel.calls.begin(), kernel.calls.end());
  const auto is_known = [&](const Value& value) {
    return static_cast<std::size_t>(value.buffer) < whole.buffers.size();
  };
  if (!std::ranges::all_of(kernel.inputs, is_known) ||
      !std::ranges::all_of(kernel.outputs, is_known))
    return {};
  const auto reads = [&](int buffer) {
    return std::ranges::find(kernel.inputs, buffer, &Value::buffer) != kernel.inputs.end();
  };
  const auto writes = [&](int buffer) {
    return std::ranges::find(kernel.outputs, buffer, &Value::buffer) != kernel.outputs.end();
  };
  Graph part;
  part.device = whole.device;
  part.fast = whole.fast;
  part.buffers = whole.buffers;
  std::set<int> found;
  for (const Node& node : whole.nodes) {
    if (!numbers.contains(node.number)) continue;
    // A copy of a factor has the number of its product.
    if (std::ranges::all_of(node.outputs, [&](const Value& out) {
          return whole.is_temporary(out.buffer) && reads(out.buffer) && !writes(out.buffer);
        }))
      continue;
    if (!found.insert(node.number).second) return {};
    part.nodes.push_back(node);
  }
  if (found != numbers) return {};
  for (const Value& output : kernel.outputs) part.outputs.push_back({output, {}});
  read_from_outside(part);
  return part;
}

using Apart = std::set<int>;

// Which calls of a kernel might better run in kernels of their own.
std::vector<Apart> ways_apart(const Graph& part) {
  Apart products, reductions, all;
  for (const Node& node : part.nodes) {
    const OpInfo& op = op_info(node.call.op);
    if (op.algebra == Algebra::contraction) products.insert(node.number);
    if (op.kind == OpKind::reduction) reductions.insert(node.number);
    all.insert(node.number);
  }
  std::vector<Apart> ways;
  for (const Apart& way : {products, reductions, all}) {
    if (!way.empty() && std::ranges::find(ways, way) == ways.end()) ways.push_back(way);
  }
  return ways;
}

class Chooser {
 public:
  Chooser(const Graph& graph, const ChoiceOptions& options)
      : uncopied_(graph),
        graph_(with_copies(graph)),
        options_(options),
        by_model_(fused(graph_)),
        timer_(graph.device,
               bytes_touched(by_model_, make_plan(by_model_, Program::plan_options(
                                                                 graph.device, options.program)))) {
  }

  // Puts calls apart where kernels of them take less time, until that finds none.
  void choose_apart();
  // Replays the candidates in turn, on copies of what the step writes.
  void choose_plan();
  const FusionChoice& choice() const { return choice_; }
  bool disturbed() const { return disturbed_; }

 private:
  static Graph with_copies(Graph graph) {
    if (graph.copies_factors) copy_factors(graph);
    return graph;
  }
  Graph fused(Graph graph) const {
    options_.fuse(graph);
    return graph;
  }
  Graph with_apart(const std::map<int, WhyNotFused>& apart) const {
    Graph graph = graph_;
    graph.apart.insert(apart.begin(), apart.end());
    return fused(std::move(graph));
  }

  struct Way {
    Apart apart;
    Graph part;  // the kernels that take the place of one
  };
  // A kernel, as often as it occurs in the step.
  struct Kernel {
    std::vector<const Node*> nodes;
    std::optional<int64_t> time;
    std::vector<Way> ways;
  };

  void propose(const Graph& from, std::map<int, WhyNotFused>& apart) {
    std::vector<Kernel> kernels;
    std::map<std::string, std::size_t> places;
    for (const Node& node : from.nodes) {
      if (!node.body || node.calls.size() < 2) continue;
      const auto [place, added] = places.emplace(timer_.key_of({&from, &node}), kernels.size());
      if (added) kernels.emplace_back();
      kernels[place->second].nodes.push_back(&node);
    }
    std::vector<KernelTimer::Kernel> made;
    for (const Kernel& kernel : kernels) made.push_back({&from, kernel.nodes.front()});
    timer_.prepare(made);
    made.clear();
    for (Kernel& kernel : kernels) {
      kernel.time = time_of({&from, kernel.nodes.front()});
      if (kernel.time) kernel.ways = ways_of(*kernel.nodes.front(), *kernel.time);
      for (const Way& way : kernel.ways) {
        for (const Node& node : way.part.nodes) made.push_back({&way.part, &node});
      }
    }
    timer_.prepare(made);
    for (const Kernel& kernel : kernels) {
      const Apart* best = nullptr;
      int64_t least = kernel.time ? below(*kernel.time) : 0;
      for (const Way& way : kernel.ways) {
        const std::optional<int64_t> sum = time_of_all(way.part);
        if (sum && *sum < least) least = *sum, best = &way.apart;
      }
      if (!best) continue;
      for (const Node* node : kernel.nodes) put_apart(*node, *best, *kernel.nodes.front(), apart);
    }
  }

  // The ways to compute a kernel's calls that may take less time than it does: calls by themselves
  // need no new kernels, and others take at least as long as the ceilings say.
  std::vector<Way> ways_of(const Node& kernel, int64_t time) {
    std::vector<Way> ways;
    const std::optional<Graph> calls = calls_of(kernel, graph_);
    if (!calls) return ways;
    for (Apart& apart : ways_apart(*calls)) {
      Graph part = *calls;
      for (const int call : apart) part.apart.emplace(call, WhyNotFused::slower);
      graph::fuse(part);
      int64_t least = 0;
      for (const Node& node : part.nodes)
        least += node.body ? by_ceilings(node) : time_of({&part, &node}).value_or(0);
      if (least < below(time)) ways.push_back({std::move(apart), std::move(part)});
    }
    return ways;
  }

  int64_t by_ceilings(const Node& node) const {
    const Ceilings& ceilings = *graph::ceilings_of(graph_.device);
    return graph::time_of(graph::work_of(node, graph_.device), ceilings, ceilings.node_ps).ps();
  }
  static int64_t below(int64_t time) {
    return static_cast<int64_t>(static_cast<double>(time) / (1 + kNoise));
  }

  // The calls of a kernel that are at the places of `way` in an equal kernel.
  static void put_apart(const Node& kernel, const Apart& way, const Node& equal,
                        std::map<int, WhyNotFused>& apart) {
    for (std::size_t i = 0; i < kernel.calls.size(); ++i) {
      if (way.contains(equal.calls[i])) apart.emplace(kernel.calls[i], WhyNotFused::slower);
    }
  }

  std::optional<int64_t> time_of(const KernelTimer::Kernel& kernel) {
    if (spent_ > kMostSeconds || !KernelTimer::can_time(*kernel.node)) return {};
    const auto start = std::chrono::steady_clock::now();
    const std::optional<int64_t> time =
        options_.time_of ? options_.time_of(kernel) : timer_.time_of(kernel);
    spent_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    disturbed_ |= !time;
    return time;
  }
  std::optional<int64_t> time_of_all(const Graph& part) {
    int64_t sum = 0;
    for (const Node& node : part.nodes) {
      const std::optional<int64_t> time = time_of({&part, &node});
      if (!time) return {};
      sum += *time;
    }
    return sum;
  }

  // The time of the kernels of a plan that another one does not have. None where one of them cannot
  // be timed.
  std::optional<int64_t> time_beside(const Graph& other, const Graph& plan) {
    std::map<std::string, int> left;
    for (const Node& node : other.nodes) ++left[timer_.key_of({&other, &node})];
    int64_t sum = 0;
    for (const Node& node : plan.nodes) {
      if (--left[timer_.key_of({&plan, &node})] >= 0) continue;
      const std::optional<int64_t> time = time_of({&plan, &node});
      if (!time) return {};
      sum += *time;
    }
    return sum;
  }

  Graph on_copies(Graph plan, std::map<int, Tensor>& copies) const;
  // Says what decides without replays of the step, and why there are none.
  void say_unreplayed(std::string_view why) {
    choice_.text = fmt::format(
        "{}, {}", choice_.apart.empty() ? "by the model" : "by times of its kernels", why);
  }

  const Graph& uncopied_;
  const Graph graph_;  // with copies of factors
  const ChoiceOptions& options_;
  double spent_ = 0;  // seconds in which kernels were timed
  Graph by_model_;
  KernelTimer timer_;
  FusionChoice choice_;
  bool disturbed_ = false;
};

void Chooser::choose_apart() {
  constexpr int kMostRounds = 4;
  Graph best = by_model_;
  for (int round = 0; round < kMostRounds; ++round) {
    std::map<int, WhyNotFused> apart = choice_.apart;
    const std::size_t before = apart.size();
    propose(best, apart);
    if (apart.size() == before) return;
    try {
      Graph next = with_apart(apart);
      const std::optional<int64_t> now = time_beside(next, best), then = time_beside(best, next);
      if (!now || !then || *then >= *now) return;
      best = std::move(next);
    } catch (const Error&) {  // without a fusion that is required
      return;
    }
    choice_.apart = std::move(apart);
  }
}

// --- The step as a whole ---

Tensor bytes_at(Device device, void* address, std::size_t bytes) {
  return make_tensor_on(adopt_storage(device, address, bytes, nullptr, nullptr), DType::boolean,
                        Dims{static_cast<int64_t>(bytes)}, Dims{1}, 0);
}

// The same kernels over the same memory from outside, except that what they write to is copied;
// with no results and no gradients.
Graph Chooser::on_copies(Graph plan, std::map<int, Tensor>& copies) const {
  std::vector<bool> written(plan.buffers.size(), false);
  for (const Node& node : plan.nodes) {
    for (const Value& output : node.outputs) written[output.buffer] = true;
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    Buffer& buffer = plan.buffers[i];
    if (!is_outside(plan, static_cast<int>(i))) continue;
    const Tensor& of = buffer.kind == Buffer::Kind::input
                           ? options_.arguments[static_cast<std::size_t>(buffer.input)]
                           : buffer.captured;
    void* const address =
        buffer.kind == Buffer::Kind::input ? of.data() : TensorImpl::of(of)->storage->data;
    Tensor memory = bytes_at(plan.device, address, buffer.bytes);
    if (written[i]) {
      Tensor& copy = copies[static_cast<int>(i)];
      if (!copy.defined()) {
        copy = make_tensor(DType::boolean, memory.shape(), plan.device);
        copy_bytes(copy, memory);
      }
      memory = copy;
    }
    const Storage* const storage = TensorImpl::of(memory)->storage;
    buffer.kind = Buffer::Kind::captured;
    buffer.captured = memory;
    buffer.replaced = storage->replaced.load(std::memory_order_relaxed);
  }
  plan.outputs.clear();
  plan.gradients.clear();
  plan.draws.clear();
  return plan;
}

void Chooser::choose_plan() {
  const auto may_repeat = [](const Node& node) {
    const Effect effect = op_info(node.call.op).effect;
    return effect != Effect::ordered && effect != Effect::unknown;
  };
  if (!std::ranges::all_of(graph_.nodes, may_repeat))
    return say_unreplayed("since its calls have effects outside of it");
  std::vector<Graph> plans;  // the simplest first
  if (options_.unfused) plans.push_back(*options_.unfused);
  const std::size_t fused_first = plans.size();
  if (graph_.nodes.size() > uncopied_.nodes.size() && graph_.required.empty()) {
    Graph plain = uncopied_;
    plain.copies_factors = false;
    plans.push_back(fused(std::move(plain)));
  }
  const std::size_t by_model = plans.size();
  plans.push_back(by_model_);
  if (!choice_.apart.empty()) plans.push_back(with_apart(choice_.apart));
  try {
    std::map<int, Tensor> copies;
    std::vector<std::unique_ptr<Program>> programs;
    std::vector<Program*> pointers;
    double predicted = 0;
    for (const Graph& plan : plans) {
      programs.push_back(std::make_unique<Program>(on_copies(plan, copies),
                                                   std::make_shared<Arena>(), options_.program));
      pointers.push_back(programs.back().get());
      predicted += programs.back()->prediction().step.seconds();
    }
    constexpr int kFewest = 4, kMost = 30;
    const double replays = kMostSeconds / std::max(predicted, 1e-9);
    if (replays < 2 * kFewest) return say_unreplayed("since a replay takes long");
    const std::optional<std::vector<double>> times = replay_times(
        pointers, graph_.device, static_cast<int>(std::min<double>(replays / 2, kMost)));
    if (!times) {
      disturbed_ = true;
      return say_unreplayed("since other work disturbed its replays");
    }
    std::size_t best = 0;
    for (std::size_t i = 0; i < times->size(); ++i) {
      if ((*times)[i] < (*times)[best] / (1 + kNoise)) best = i;
    }
    choice_.unfused = best < fused_first;
    choice_.copies_factors = best >= by_model;
    if (best <= by_model) choice_.apart.clear();
    choice_.text = fmt::format("by times: {:.3g} us", (*times)[best] * 1e6);
    for (std::size_t i = 0; i < times->size(); ++i) {
      if (i != best) choice_.text += fmt::format(", else {:.3g}", (*times)[i] * 1e6);
    }
  } catch (const Error& error) {  // memory is short, or a check of the step fails
    say_unreplayed(fmt::format("since a replay failed: {}", error.what()));
  }
}

}  // namespace

std::map<int, WhyNotFused> choose_apart(const Graph& graph, const ChoiceOptions& options) {
  Chooser chooser(graph, options);
  chooser.choose_apart();
  return chooser.choice().apart;
}

bool measures_choices() { return setting_of("BRRR_MEASURE", {"on", "off"}) != "off"; }

std::optional<FusionChoice> kept_choice(const Graph& graph) {
  std::optional<FusionChoice> known = read_choice(jit::hash_of(key_of(graph)));
  if (known) known->text = "by times that were measured before";
  return known;
}

FusionChoice choose_by_times(const Graph& graph, const ChoiceOptions& options) {
  if (auto known = kept_choice(graph)) return *known;
  const bool kept =
      !jit::disk_cache::directory().empty() && jit::disk_cache::why_unusable().empty();
  if (!kept && !options.same_bits) return {.text = "by the model, since no choice can be kept"};
  const ExcludeKeys unobserved(bit(Key::observe));
  Chooser chooser(graph, options);
  chooser.choose_apart();
  chooser.choose_plan();
  if (!chooser.disturbed() || !options.same_bits)
    write_choice(jit::hash_of(key_of(graph)), chooser.choice());
  return chooser.choice();
}

}  // namespace brrr::graph
