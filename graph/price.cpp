#include "brrr/graph/price.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "brrr/graph/ceilings.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_kernel.h"
#include "brrr/graph/program.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/thread_pool.h"

namespace brrr::graph {
namespace {

using std::int64_t;

// The buffers of a node's operands, each once, in the order of the operands.
std::vector<int> buffers_of(const Node& node) {
  std::vector<int> buffers;
  const auto add = [&](const Value& value) {
    if (std::ranges::find(buffers, value.buffer) == buffers.end()) buffers.push_back(value.buffer);
  };
  std::ranges::for_each(node.inputs, add);
  std::ranges::for_each(node.outputs, add);
  return buffers;
}

// --- What determines a kernel's time ---

class PriceKey {
 public:
  PriceKey(const Graph& graph, const Node& node, int64_t sets) {
    add(graph.device.index, graph.device.is_cuda(), graph.fast, sets);
    add(graph.device.is_cpu() ? num_threads() : 0, static_cast<int>(matmul_precision()));
    const Call& call = node.call;
    add(static_cast<int>(call.op), call.scalars, static_cast<int>(call.dtype), call.in_place);
    for (int i = 0; i < call.n_attrs; ++i) add(call.attrs[i].bits);
    const std::vector<int> buffers = buffers_of(node);
    const auto add_value = [&](const Value& value) {
      add(std::ranges::find(buffers, value.buffer) - buffers.begin());
      // Kernels depend on the alignment of an operand, and not on where it begins.
      add(static_cast<int>(value.dtype),
          value.offset * static_cast<int64_t>(size_of(value.dtype)) % 64);
      add_dims(value.shape), add_dims(value.strides);
    };
    std::ranges::for_each(node.inputs, add_value);
    std::ranges::for_each(node.outputs, add_value);
    for (const BodySpec* spec = node.body.get(); spec; spec = spec->next.get()) add_body(*spec);
  }
  const std::string& text() const { return text_; }

 private:
  template <class... T>
  void add(T... numbers) {
    (add_bits(static_cast<int64_t>(numbers)), ...);
  }
  void add_bits(int64_t bits) { text_.append(reinterpret_cast<const char*>(&bits), sizeof(bits)); }
  void add_text(const std::string& text) {
    add(text.size());
    text_ += text;
  }
  void add_dims(const Dims& dims) {
    add(dims.size());
    for (const int64_t each : dims) add(each);
  }
  void add_body(const BodySpec& spec) {
    const jit::Body& body = spec.body;
    add(body.strict, body.fast, spec.reduced, spec.scalars.size());
    add_dims(spec.dims), add_dims(spec.order);
    for (const BodySpec::Placed& each : spec.placed) {
      add(each.input, each.shift);
      add_dims(each.strides);
    }
    for (const Dims& each : spec.coordinates) add_dims(each);
    for (const std::vector<jit::Body::TensorOperand>* list : {&body.inputs, &body.outputs}) {
      for (const jit::Body::TensorOperand& operand : *list) {
        add(static_cast<int>(operand.dtype), static_cast<int>(operand.scope), operand.value);
        for (const jit::Body::Bound& bound : operand.bounds)
          add(bound.index, bound.low, bound.high);
      }
    }
    for (const jit::BodyValue& value : body.values) {
      add(static_cast<int>(value.kind), static_cast<int>(value.dtype), static_cast<int>(value.type),
          value.number, value.operands.size());
      for (const int operand : value.operands) add(operand);
      for (const std::string* text : {&value.text, &value.identity, &value.combine, &value.finish})
        add_text(*text);
    }
  }

  std::string text_;
};

// --- A chain of a kernel over memory of its own ---

template <class Word>
void fill_with(Word one, int mantissa, char* to, std::size_t bytes) {
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < bytes / sizeof(Word); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const Word word = one | static_cast<Word>(state >> (64 - mantissa));
    std::memcpy(to + i * sizeof(Word), &word, sizeof(Word));
  }
}

// Numbers from 1 to 2, of which no function is denormal; integers are 0, as indices must be small.
Tensor random_values(DType dtype, int64_t elements) {
  const Tensor values = make_tensor(dtype, Dims{elements}, Device::cpu());
  char* const to = static_cast<char*>(values.data());
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  switch (dtype) {
    case DType::f64: fill_with(std::uint64_t{0x3ff0000000000000}, 52, to, bytes); break;
    case DType::f32: fill_with(std::uint32_t{0x3f800000}, 23, to, bytes); break;
    case DType::f16: fill_with(std::uint16_t{0x3c00}, 10, to, bytes); break;
    case DType::bf16: fill_with(std::uint16_t{0x3f80}, 7, to, bytes); break;
    default: std::memset(to, 0, bytes);
  }
  return values;
}

// Memory for a buffer, of the dtype that the node reads or writes it in.
Tensor scratch_for(const Graph& graph, const Node& node, int buffer) {
  DType dtype = DType::boolean;
  const auto find = [&](const Value& value) {
    if (value.buffer == buffer) dtype = value.dtype;
  };
  std::ranges::for_each(node.outputs, find);
  std::ranges::for_each(node.inputs, find);
  constexpr int64_t kPattern = int64_t{1} << 17;
  const std::size_t size = size_of(dtype), bytes = graph.buffers[buffer].bytes;
  const auto elements = static_cast<int64_t>(std::max<std::size_t>((bytes + size - 1) / size, 1));
  const Tensor memory = make_tensor(dtype, Dims{elements}, graph.device);
  const auto part = [&](int64_t from, int64_t length) {
    return make_view(memory, Dims{length}, Dims{1}, from);
  };
  int64_t filled = std::min(elements, kPattern);
  copy_bytes(part(0, filled), random_values(dtype, filled));
  for (int64_t more = 0; filled < elements; filled += more) {
    more = std::min(filled, elements - filled);
    copy_bytes(part(filled, more), part(0, more));
  }
  return memory;
}

// `length` kernels, which take their operands in turn from `sets` sets of memory.
Graph chain_of(const Graph& graph, const Node& node, int length, int sets) {
  Graph chain;
  chain.device = graph.device;
  chain.fast = graph.fast;
  const std::vector<int> buffers = buffers_of(node);
  for (int set = 0; set < sets; ++set) {
    for (const int buffer : buffers) {
      const Tensor memory = scratch_for(graph, node, buffer);
      const Storage* const storage = TensorImpl::of(memory)->storage;
      chain.buffers.push_back({.kind = Buffer::Kind::captured,
                               .device = graph.device,
                               .bytes = storage->bytes,
                               .captured = memory,
                               .replaced = storage->replaced.load(std::memory_order_relaxed)});
    }
  }
  for (int i = 0; i < length; ++i) {
    Node& copy = chain.nodes.emplace_back(node);
    const auto first = static_cast<int>(buffers.size()) * (i % sets);
    for (std::vector<Value>* values : {&copy.inputs, &copy.outputs}) {
      for (Value& value : *values)
        value.buffer =
            first + static_cast<int>(std::ranges::find(buffers, value.buffer) - buffers.begin());
    }
  }
  return chain;
}

// --- Timing ---

constexpr double kSampleSeconds = 3e-4;
constexpr int kSamples = 9, kTries = 3;

double seconds_of(Program& program, Device device, int replays) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < replays; ++i) program.run({});
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / replays;
}

// Seconds of a replay: the lower quartile of samples, since what disturbs one makes it longer. None
// where that is far from the least.
std::optional<double> time_of_replay(Program& program, Device device) {
  constexpr double kMostSpread = 0.1;
  program.prepare();
  for (int i = 0; i < 2; ++i) program.run({});  // the second one is captured
  synchronize(device);
  const double once = seconds_of(program, device, 1);
  const int replays = std::clamp(static_cast<int>(kSampleSeconds / std::max(once, 1e-9)), 1, 1000);
  const int samples = once > 0.01 ? 4 : kSamples;
  for (int tries = 0; tries < kTries; ++tries) {
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(seconds_of(program, device, replays));
    std::ranges::sort(seconds);
    const double least = seconds.front(), quartile = seconds[static_cast<std::size_t>(samples / 4)];
    if (quartile <= (1 + kMostSpread) * least) return quartile;
  }
  return {};
}

// How many sets of operands the step's working set has room for. More than caches hold need not be.
int sets_of(const Graph& graph, const Node& node, int64_t bytes_touched) {
  const int64_t beyond_caches = int64_t{1} << (graph.device.is_cpu() ? 26 : 28);
  constexpr int kMostSets = 64;
  int64_t bytes = 1;
  for (const int buffer : buffers_of(node))
    bytes += static_cast<int64_t>(graph.buffers[buffer].bytes);
  return static_cast<int>(
      std::clamp<int64_t>(std::min(bytes_touched, beyond_caches) / bytes, 1, kMostSets));
}

std::optional<int64_t> measure(const Graph& graph, const Node& node, int sets) {
  constexpr int64_t kChain = 100'000'000;  // picoseconds
  const Ceilings& ceilings = *ceilings_of(graph.device);
  const int64_t predicted =
      time_of(work_of(node, graph.device), ceilings, std::max<int64_t>(ceilings.node_ps, 1)).ps();
  const int length = std::max(
      sets, static_cast<int>(std::clamp<int64_t>(kChain / std::max<int64_t>(predicted, 1), 2, 64)));
  Program program(chain_of(graph, node, length, sets), std::make_shared<Arena>(), {.lanes = false});
  const std::optional<double> seconds = time_of_replay(program, graph.device);
  if (!seconds) return {};
  const int64_t ps = std::llround(*seconds * 1e12) - ceilings.replay_ps;
  return std::max<int64_t>(ps / length, 1);
}

// Whether a call can run on any values: it acts on nothing but its results, and reports none as out
// of range.
bool may_run_alone(const Node& node) {
  const auto has_range = [](const BodySpec& spec) {
    return std::ranges::any_of(spec.body.values, [](const jit::BodyValue& value) {
      return value.kind == jit::BodyValue::Kind::check && value.text == "range";
    });
  };
  for (const BodySpec* spec = node.body.get(); spec; spec = spec->next.get()) {
    if (has_range(*spec)) return false;
  }
  const Effect effect = op_info(node.call.op).effect;
  return effect == Effect::pure || effect == Effect::draws;
}

}  // namespace

std::optional<int64_t> measured_time(const Graph& graph, const Node& node, int64_t bytes_touched) {
  static std::mutex mutex;
  static auto& prices = *new std::map<std::string, int64_t>;
  if (!may_run_alone(node)) return {};
  const int sets = sets_of(graph, node, bytes_touched);
  const PriceKey key(graph, node, sets);
  const std::lock_guard lock(mutex);
  if (const auto known = prices.find(key.text()); known != prices.end()) return known->second;
  try {
    const std::optional<int64_t> price = measure(graph, node, sets);
    if (price) prices.emplace(key.text(), *price);
    return price;
  } catch (const Error&) {  // memory is short, or the kernel refuses the values
    return {};
  }
}

}  // namespace brrr::graph
