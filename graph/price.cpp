#include "brrr/graph/price.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "brrr/autograd/autograd.h"
#include "brrr/dispatch/dispatch.h"
#include "brrr/graph/ceilings.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_kernel.h"
#include "brrr/graph/program.h"
#include "brrr/ops/functions.h"
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

class KernelKey {
 public:
  explicit KernelKey(const Graph& graph) {
    add(graph.device.index, graph.device.is_cuda(), graph.fast);
    add(graph.device.is_cpu() ? num_threads() : 0, static_cast<int>(matmul_precision()));
  }
  void add_node(const Node& node) {
    const Call& call = node.call;
    add_text(op_info(call.op).name);  // numbers of registered ops differ from program to program
    add(call.scalars, static_cast<int>(call.dtype), call.in_place);
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
  template <class... T>
  void add(T... numbers) {
    (add_bits(static_cast<int64_t>(numbers)), ...);
  }
  void add_text(const std::string& text) {
    add(text.size());
    text_ += text;
  }
  const std::string& text() const { return text_; }

 private:
  void add_bits(int64_t bits) { text_.append(reinterpret_cast<const char*>(&bits), sizeof(bits)); }
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
          value.number, static_cast<int>(value.draw), value.operands.size());
      for (const int operand : value.operands) add(operand);
      for (const Expression each : {value.expression, value.identity, value.combine, value.finish})
        add_text(each.text());
    }
  }

  std::string text_;
};

// The machine, its software and this build of the library.
std::string where_measured(Device device) {
  static const std::string library = [] {
    Dl_info info{};
    struct stat file {};
    if (!::dladdr(reinterpret_cast<void*>(key_of), &info) || ::stat(info.dli_fname, &file) != 0)
      return std::string();
    return fmt::format("{} {}.{}", file.st_size, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }();
  return fmt::format("{}\n{}\n{}\n", machine_of(device), software_of(device), library);
}

// --- Times on disk ---

constexpr char kTime[] = "time";

// Whether what a kernel does is the same in every program: not where it calls an op that a program
// registered.
bool is_in_every_program(const Node& node) {
  return node.body || static_cast<int>(node.call.op) < core::kBuiltinOps;
}

std::mutex prices_mutex;  // also keeps threads from disturbing each other's measurements
std::map<std::string, int64_t>& prices() {
  static auto* map = new std::map<std::string, int64_t>;
  return *map;
}

// Picoseconds of an addition in place, among several.
int64_t time_of_additions(Device device) {
  using Clock = std::chrono::steady_clock;
  constexpr int kCalls = 32, kSamples = 9;
  const ExcludeKeys unobserved(bit(Key::observe));
  const NoGrad constant;
  const Dims shape = {device.is_cpu() ? 1 << 16 : 1 << 21};
  Tensor x = full(shape, 0.5, {.device = device});
  const Tensor y = full(shape, 0.25, {.device = device});
  std::vector<int64_t> samples;
  for (int i = 0; i < kSamples; ++i) {
    synchronize(device);
    const auto start = Clock::now();
    for (int call = 0; call < kCalls; ++call) add_(x, y);
    synchronize(device);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    samples.push_back(took.count() * 1000 / kCalls);
  }
  std::ranges::nth_element(samples, samples.begin() + kSamples / 4);
  return std::max<int64_t>(samples[kSamples / 4], 1);
}

// What additions take now: other processes on a device, or a lower clock, make all kernels
// slower, as steadily as they are otherwise. Under prices_mutex.
int64_t probe(Device device) {
  using Clock = std::chrono::steady_clock;
  struct Reading {
    int64_t ps = 0;
    Clock::time_point at = {};
  };
  static auto* const readings = new std::map<std::string, Reading>;
  Reading& reading = (*readings)[fmt::format("{} {}", to_string(device), num_threads())];
  if (reading.ps > 0 && Clock::now() - reading.at < std::chrono::milliseconds(500))
    return reading.ps;
  try {
    reading = {time_of_additions(device), Clock::now()};
  } catch (const Error&) {  // memory is short: nothing is known of now
    return std::numeric_limits<int64_t>::max();
  }
  return reading.ps;
}

// None: there is no file, or its time was measured while the device was slower than it is now.
std::optional<int64_t> read_time(const jit::Hash128& key, Device device) {
  constexpr double kSlower = 1.3;
  std::string bytes;
  std::array<int64_t, 2> kept{};  // the time, and what the probe took then
  if (!read_kept(key, kTime, bytes) || bytes.size() != sizeof kept) return {};
  std::memcpy(kept.data(), bytes.data(), sizeof kept);
  const auto [ps, then] = kept;
  if (ps <= 0 || then <= 0) return {};
  if (static_cast<double>(then) > kSlower * static_cast<double>(probe(device))) return {};
  return ps;
}

void write_time(const jit::Hash128& key, int64_t ps, Device device) {
  const std::array<int64_t, 2> kept = {ps, probe(device)};
  jit::disk_cache::write(key, kTime, {reinterpret_cast<const char*>(kept.data()), sizeof kept});
}

}  // namespace

std::string key_of(const Graph& graph) {
  KernelKey key(graph);
  key.add_text(where_measured(graph.device));
  for (const Buffer& buffer : graph.buffers) key.add(buffer.kind, buffer.bytes);
  for (const Node& node : graph.nodes) {
    key.add_node(node);
    key.add(node.role, node.number);
    for (const std::vector<Value>* values : {&node.inputs, &node.outputs}) {
      for (const Value& value : *values) key.add(value.buffer, value.offset);
    }
  }
  for (const Output& output : graph.outputs) key.add(output.value.buffer, output.value.offset);
  for (const GradientSlot& slot : graph.gradients)
    key.add(slot.after ? slot.after->value.buffer : -1);
  for (const RequiredFusion& pair : graph.required)
    key.add(pair.a.buffer, pair.a.offset, pair.b.buffer, pair.b.offset, pair.time);
  return key.text();
}

// --- Timing ---

std::optional<std::vector<double>> replay_times(std::span<Program* const> programs, Device device,
                                                int samples) {
  constexpr double kSampleSeconds = 3e-4, kLong = 0.01, kMostSpread = 0.1;
  constexpr int kOfLong = 4, kTries = 3;
  const auto seconds_of = [device](Program& program, int replays) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < replays; ++i) program.run({});
    synchronize(device);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           replays;
  };
  std::vector<int> replays;
  double longest = 0;
  for (Program* program : programs) {
    program->prepare();
    for (int i = 0; i < 2; ++i) program->run({});  // the second one is captured
    synchronize(device);
    const double once = seconds_of(*program, 1);
    replays.push_back(std::clamp(static_cast<int>(kSampleSeconds / std::max(once, 1e-9)), 1, 1000));
    longest = std::max(longest, once);
  }
  if (longest > kLong) samples = std::min(samples, kOfLong);
  for (int tries = 0; tries < kTries; ++tries) {
    std::vector<std::vector<double>> seconds(programs.size());
    for (int i = 0; i < samples; ++i) {
      for (std::size_t p = 0; p < programs.size(); ++p)
        seconds[p].push_back(seconds_of(*programs[p], replays[p]));
    }
    // Other work and the clock slow all programs of a round down alike: ratios within rounds tell
    // more than times.
    std::vector<double> first = seconds[0];
    std::ranges::sort(first);
    const double quartile = first[static_cast<std::size_t>(samples / 4)];
    bool is_steady = programs.size() > 1 || quartile <= (1 + kMostSpread) * first.front();
    std::vector<double> times = {quartile};
    for (std::size_t p = 1; p < programs.size(); ++p) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < seconds[p].size(); ++i)
        ratios.push_back(seconds[p][i] / seconds[0][i]);
      std::ranges::sort(ratios);
      const auto at = [&](int quarters) { return ratios[ratios.size() * quarters / 4]; };
      is_steady &= at(3) <= (1 + kMostSpread) * at(1);
      times.push_back(quartile * at(2));
    }
    if (is_steady) return times;
  }
  return {};
}

// --- Memory for kernels that are timed ---

// Buffers of three kinds: of numbers that kernels read, of indices and flags, and those that
// kernels write to.
class KernelTimer::Scratch {
 public:
  explicit Scratch(Device device) : device_(device) {}

  // Appends copies of a node to `chain`, which take their operands in turn from `sets` sets of
  // memory. `chain` ends before this reserves more memory.
  void add(Graph& chain, const Kernel& kernel, int length, int sets) {
    const std::vector<Part> parts = parts_of(kernel, sets);
    for (const Part& part : parts) fill(part, sets, least_size(*kernel.node));
    while (chain.buffers.size() < kKinds) {
      const Tensor& memory = memory_[chain.buffers.size()];
      const Storage* const storage = TensorImpl::of(memory)->storage;
      chain.buffers.push_back({.kind = Buffer::Kind::captured,
                               .device = device_,
                               .bytes = storage->bytes,
                               .captured = memory,
                               .replaced = storage->replaced.load(std::memory_order_relaxed)});
    }
    for (int i = 0; i < length; ++i) {
      Node& copy = chain.nodes.emplace_back(*kernel.node);
      for (std::vector<Value>* values : {&copy.inputs, &copy.outputs}) {
        for (Value& value : *values) {
          const Part& part = *std::ranges::find(parts, value.buffer, &Part::buffer);
          value.buffer = part.kind;
          value.offset +=
              (part.begin + i % sets * part.bytes) / static_cast<int64_t>(size_of(value.dtype));
        }
      }
    }
  }

  // Makes room for the operands of all kernels, each as often as `sets`.
  void reserve(std::span<const Kernel> kernels, std::span<const int> sets) {
    std::array<int64_t, kKinds> bytes = {kLine, kLine, kLine};
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      for (const Part& part : parts_of(kernels[i], sets[i])) {
        int64_t& most = bytes[static_cast<std::size_t>(part.kind)];
        most = std::max(most, part.begin + part.bytes * sets[i]);
        if (part.updated) bytes[numbers] = std::max(bytes[numbers], part.bytes * sets[i]);
      }
    }
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      if (memory_[kind].defined() && memory_[kind].numel() >= bytes[kind]) continue;
      memory_[kind] = Tensor();  // free the smaller one first
      memory_[kind] = make_tensor(DType::boolean, Dims{bytes[kind]}, device_);
      if (kind != numbers) continue;
      // Between 2^-7 and 2 in every floating type, of which no function is denormal.
      repeat(memory_[kind], 2, [](std::uint64_t random) { return 0x3f80 | random >> (32 - 7); });
    }
  }

 private:
  enum Kind : std::uint8_t { numbers, indices, written };
  static constexpr std::size_t kKinds = 3;
  static constexpr int64_t kLine = 512;  // what allocators align to

  // The memory of one buffer of a node: of the first set, with those of the others behind it.
  struct Part {
    int buffer, kind;
    bool updated;
    DType dtype;
    int64_t begin, bytes;
  };

  static std::vector<Part> parts_of(const Kernel& kernel, int sets) {
    std::vector<Part> parts;
    std::array<int64_t, kKinds> used = {};
    for (const int buffer : buffers_of(*kernel.node)) {
      const auto of = [&](const std::vector<Value>& values) {
        return std::ranges::find(values, buffer, &Value::buffer);
      };
      const auto &in = kernel.node->inputs, &out = kernel.node->outputs;
      const bool is_read = of(in) != in.end(), is_written = of(out) != out.end();
      const DType dtype = is_read ? of(in)->dtype : of(out)->dtype;
      const bool is_number = is_floating(dtype);
      const Kind kind = is_written ? written : is_number ? numbers : indices;
      const auto bytes = static_cast<int64_t>(kernel.graph->buffers[buffer].bytes);
      const int64_t lines = (std::max<int64_t>(bytes, 1) + kLine - 1) / kLine * kLine;
      parts.push_back({buffer, kind, is_read && is_written, dtype, used[kind], lines});
      used[kind] += lines * sets;
    }
    return parts;
  }

  static Tensor bytes_of(const Tensor& memory, int64_t from, int64_t length) {
    return make_view(memory, Dims{length}, Dims{1}, from);
  }

  // The least dimension of operands of numbers, else of all: an index below it is valid in each.
  static int64_t least_size(const Node& node) {
    std::array<int64_t, 2> least{};  // of other operands, and of those of numbers; 0: none
    for (const Value& value : node.inputs) {
      int64_t& of = least[is_floating(value.dtype) ? 1 : 0];
      for (const int64_t size : value.shape) of = of == 0 ? size : std::min(of, size);
    }
    return std::max<int64_t>(least[1] != 0 ? least[1] : least[0], 1);
  }

  // Repeats values of `size` bytes each.
  template <class Next>
  void repeat(const Tensor& memory, int64_t size, const Next& next) const {
    constexpr int64_t kPattern = int64_t{1} << 17;
    const int64_t bytes = memory.numel();
    int64_t filled = std::min(bytes, kPattern);
    const Tensor pattern = make_tensor(DType::boolean, Dims{filled}, Device::cpu());
    auto* const to = static_cast<char*>(pattern.data());
    std::uint64_t state = 1;
    for (int64_t i = 0; i < filled; i += size) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const std::uint64_t value = next(state >> 32);
      std::memcpy(to + i, &value, static_cast<std::size_t>(std::min(size, filled - i)));
    }
    copy_bytes(bytes_of(memory, 0, filled), pattern);
    for (int64_t more = 0; filled < bytes; filled += more) {
      more = std::min(filled, bytes - filled);
      copy_bytes(bytes_of(memory, filled, more), bytes_of(memory, 0, more));
    }
  }

  // Indices, and operands that a kernel updates: other kernels wrote to that memory.
  void fill(const Part& part, int sets, int64_t least) const {
    if (part.kind != indices && !part.updated) return;
    const Tensor to = bytes_of(memory_[part.kind], part.begin, part.bytes * sets);
    if (is_floating(part.dtype)) return copy_bytes(to, bytes_of(memory_[numbers], 0, to.numel()));
    const auto below = static_cast<std::uint64_t>(
        part.dtype == DType::boolean ? std::min<int64_t>(least, 2) : least);
    repeat(to, static_cast<int64_t>(size_of(part.dtype)),
           [below](std::uint64_t random) { return random % below; });
  }

  Device device_;
  std::array<Tensor, kKinds> memory_;
};

KernelTimer::KernelTimer(Device device, int64_t bytes_touched)
    : device_(device), bytes_touched_(bytes_touched), scratch_(std::make_unique<Scratch>(device)) {}
KernelTimer::~KernelTimer() = default;

bool KernelTimer::can_time(const Node& node) {
  const auto has_range = [](const BodySpec& spec) {
    return std::ranges::any_of(spec.body.values, [](const jit::BodyValue& value) {
      return value.kind == jit::BodyValue::Kind::range_check;
    });
  };
  for (const BodySpec* spec = node.body.get(); spec; spec = spec->next.get()) {
    if (has_range(*spec)) return false;
  }
  const Effect effect = op_info(node.call.op).effect;
  return effect == Effect::pure || effect == Effect::draws;
}

// How many sets of operands the step's working set has room for. More than caches hold need not be.
int KernelTimer::sets_of(const Kernel& kernel) const {
  const int64_t beyond_caches = int64_t{1} << (device_.is_cpu() ? 26 : 28);
  constexpr int kMostSets = 64;
  int64_t bytes = 1;
  for (const int buffer : buffers_of(*kernel.node))
    bytes += static_cast<int64_t>(kernel.graph->buffers[buffer].bytes);
  return static_cast<int>(
      std::clamp<int64_t>(std::min(bytes_touched_, beyond_caches) / bytes, 1, kMostSets));
}

std::string KernelTimer::key_of(const Kernel& kernel) const {
  KernelKey key(*kernel.graph);
  key.add(sets_of(kernel));
  key.add_node(*kernel.node);
  return key.text();
}

std::optional<int64_t> KernelTimer::measure(const Kernel& kernel) {
  constexpr int64_t kChain = 100'000'000;  // picoseconds
  constexpr int kSamples = 9;
  const Ceilings& ceilings = *ceilings_of(device_);
  const int64_t predicted = graph::time_of(work_of(*kernel.node, device_), ceilings,
                                           std::max<int64_t>(ceilings.node_ps, 1))
                                .ps();
  const int sets = sets_of(kernel);
  const int length = std::max(
      sets, static_cast<int>(std::clamp<int64_t>(kChain / std::max<int64_t>(predicted, 1), 2, 64)));
  Graph chain;
  chain.device = device_;
  chain.fast = kernel.graph->fast;
  scratch_->reserve({&kernel, 1}, {&sets, 1});
  scratch_->add(chain, kernel, length, sets);
  Program program(std::move(chain), std::make_shared<Arena>(), {.lanes = false});
  Program* const only = &program;
  const std::optional<std::vector<double>> seconds = replay_times({&only, 1}, device_, kSamples);
  if (!seconds) return {};
  const int64_t ps = std::llround(seconds->front() * 1e12) - ceilings.replay_ps;
  return std::max<int64_t>(ps / length, 1);
}

std::optional<int64_t> KernelTimer::time_of(const Kernel& kernel) {
  if (!can_time(*kernel.node)) return {};
  const std::string key = key_of(kernel);
  const std::lock_guard lock(prices_mutex);
  if (const auto known = prices().find(key); known != prices().end()) return known->second;
  const jit::Hash128 hash = jit::hash_of(where_measured(device_) + key);
  const bool is_kept = is_in_every_program(*kernel.node);
  if (const auto known = is_kept ? read_time(hash, device_) : std::nullopt)
    return prices().emplace(key, *known).first->second;
  try {
    const ExcludeKeys unobserved(bit(Key::observe));
    const std::optional<int64_t> price = measure(kernel);
    if (!price) return {};
    prices().emplace(key, *price);
    if (is_kept) write_time(hash, *price, device_);
    return price;
  } catch (const Error&) {  // memory is short, or the kernel refuses the values
    return {};
  }
}

void forget_times() {
  const std::lock_guard lock(prices_mutex);
  prices().clear();
}

bool read_kept(const jit::Hash128& key, const char* kind, std::string& content) {
  using jit::disk_cache::Found;
  const Found found = jit::disk_cache::read(key, kind, content);
  if (found != Found::damaged) return found == Found::yes;
  static std::once_flag once;
  std::call_once(once, [&] {
    fmt::print(stderr, "[fuse] measures again, since {} is damaged (reported once)\n",
               jit::disk_cache::path_of(key, kind));
  });
  return false;
}

void KernelTimer::prepare(std::span<const Kernel> kernels) {
  std::vector<Kernel> untimed;
  {
    const std::lock_guard lock(prices_mutex);
    std::ranges::copy_if(kernels, std::back_inserter(untimed), [this](const Kernel& kernel) {
      if (!kernel.node->body || !can_time(*kernel.node)) return false;
      const std::string key = key_of(kernel);
      if (prices().contains(key)) return false;
      const auto known = read_time(jit::hash_of(where_measured(device_) + key), device_);
      if (known) prices().emplace(key, *known);
      return !known;
    });
  }
  if (untimed.empty()) return;
  try {
    const std::vector<int> once(untimed.size(), 1);
    scratch_->reserve(untimed, once);
    Graph all;
    all.device = device_;
    all.fast = untimed.front().graph->fast;
    for (const Kernel& kernel : untimed) scratch_->add(all, kernel, 1, 1);
    Program(std::move(all), std::make_shared<Arena>(), {.lanes = false}).prepare();
  } catch (const Error&) {  // each kernel that can be made is made when it is timed
  }
}

}  // namespace brrr::graph
