#include "brrr/graph/replay_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/journal.h"
#include "brrr/dispatch/keys.h"
#include "brrr/dispatch/observe.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/graph/compile.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/lower.h"
#include "brrr/graph/trace.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/counted.h"
#include "brrr/tensor/half.h"
#include "brrr/tensor/host_copy.h"

namespace brrr::graph {
namespace {

// Root of the mean square difference, relative to that of the tensor: where kernels round
// otherwise.
constexpr double kBound = 0.02;

// The values of a tensor on the host.
struct HostValues {
  bool defined = false;
  DType dtype = f32;
  Dims shape;
  std::vector<std::byte> bytes;

  HostValues() = default;
  explicit HostValues(const Tensor& x) : defined(x.defined()) {
    if (!defined) return;
    const NoGrad constant;
    const ExcludeKeys unobserved(bit(Key::observe));
    const Tensor values = contiguous(detach(x));
    dtype = x.dtype();
    shape = Dims(x.shape());
    bytes.resize(values.bytes());
    if (!bytes.empty()) copy_to_host(bytes.data(), values);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(bytes.size() / size_of(dtype)); }
  double at(std::int64_t i) const {
    return visit_dtype(dtype, [&]<class T>(T value) {
      std::memcpy(&value, bytes.data() + i * static_cast<std::int64_t>(sizeof value), sizeof value);
      if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(value);
      else
        return static_cast<double>(static_cast<float>(value));
    });
  }
  std::string place(std::int64_t i) const {
    Dims place = shape;
    for (int d = shape.size(); d-- > 0; i /= shape[d]) place[d] = i % shape[d];
    return to_string(place);
  }
  std::string describe() const { return std::string(name_of(dtype)) + to_string(shape); }
};

// "" if equal: a NaN equals any other. Else the first element that differs.
std::string difference(const HostValues& eager, const HostValues& replay, bool exact) {
  if (eager.defined != replay.defined) {
    return fmt::format("{} from the function, and {} from the replay",
                       eager.defined ? eager.describe() : "nothing",
                       replay.defined ? replay.describe() : "nothing");
  }
  if (eager.dtype != replay.dtype || eager.shape != replay.shape)
    return fmt::format("{} from the function, and {} from the replay", eager.describe(),
                       replay.describe());
  if (eager.bytes == replay.bytes) return "";
  const auto size = static_cast<std::int64_t>(size_of(eager.dtype));
  std::int64_t first = -1;
  double most = 0, errors = 0, squares = 0;
  for (std::int64_t i = 0; i < eager.count(); ++i) {
    const double a = eager.at(i), b = replay.at(i);
    const bool same = std::memcmp(eager.bytes.data() + i * size, replay.bytes.data() + i * size,
                                  static_cast<std::size_t>(size)) == 0 ||
                      (std::isnan(a) && std::isnan(b));
    const double error = same ? 0 : std::isfinite(a) && std::isfinite(b) ? a - b : INFINITY;
    errors += error * error;
    if (std::isfinite(a)) squares += a * a;
    most = std::max(most, std::abs(error));
    if (!same && first < 0) first = i;
  }
  if (first < 0) return "";
  if (!exact && is_floating(eager.dtype) && errors <= kBound * kBound * squares) return "";
  return fmt::format(
      "{} at {} from the function, and {} from the replay (they differ by at most "
      "{})",
      eager.at(first), eager.place(first), replay.at(first), most);
}

// A call that the function made eagerly.
struct EagerCall {
  Op op;
  std::string text;
  CallSite site;
  std::vector<const Storage*> inputs;
  std::vector<HostValues> outputs;
};

class Recorder final : public Observer {
 public:
  std::vector<EagerCall> calls;

  void before(const Call& call) override {
    if (!is_recorded(call) || depth_++ > 0) return;  // a kernel may make calls
    EagerCall& made =
        calls.emplace_back(EagerCall{call.op, describe(call), CallSite::here(), {}, {}});
    for (std::uint32_t i = 0; i < call.n_inputs; ++i)
      made.inputs.push_back(TensorImpl::of(call.input(static_cast<int>(i)))->storage);
  }
  void after(const Call& call, std::span<const Tensor> outputs) override {
    if (!is_recorded(call) || --depth_ > 0) return;
    for (const Tensor& output : outputs) calls.back().outputs.emplace_back(output);
  }

 private:
  bool is_recorded(const Call& call) const {
    return std::this_thread::get_id() == thread_ && op_info(call.op).kind != OpKind::view;
  }
  std::thread::id thread_ = std::this_thread::get_id();
  int depth_ = 0;
};

// A reference to a storage that compiled steps do not take for the caller's.
class Held {
 public:
  explicit Held(Storage* storage) : storage_(storage) {
    storage->retain();
    storage->replay_refs.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Held() {
    if (!storage_) return;
    storage_->replay_refs.fetch_sub(1, std::memory_order_acq_rel);
    storage_->drop();
  }
  Held(Held&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  Held& operator=(Held&&) = delete;
  Storage* get() const { return storage_; }

  Tensor view(DType dtype, std::span<const std::int64_t> shape,
              std::span<const std::int64_t> strides, std::int64_t offset) const {
    storage_->retain();
    return make_tensor_on(storage_, dtype, shape, strides, offset);
  }
  // All of it, in elements of `dtype`.
  Tensor whole(DType dtype) const {
    const Dims shape = {static_cast<std::int64_t>(storage_->bytes / size_of(dtype))};
    return view(dtype, shape, Dims{1}, 0);
  }

 private:
  Storage* storage_;
};

// The threads that run functions for checks.
struct CheckingThreads {
  std::atomic<int> count = 0;
  std::mutex mutex;
  std::vector<std::thread::id> list;
};
CheckingThreads& checking_threads() {
  static auto* threads = new CheckingThreads;
  return *threads;
}

class CheckingScope {
 public:
  CheckingScope() {
    CheckingThreads& threads = checking_threads();
    const std::lock_guard lock(threads.mutex);
    threads.list.push_back(std::this_thread::get_id());
    ++threads.count;
  }
  ~CheckingScope() {
    CheckingThreads& threads = checking_threads();
    const std::lock_guard lock(threads.mutex);
    threads.list.erase(std::ranges::find(threads.list, std::this_thread::get_id()));
    --threads.count;
  }
  CheckingScope(const CheckingScope&) = delete;
  CheckingScope& operator=(const CheckingScope&) = delete;
};

struct Saved {
  Held memory;
  Tensor bytes;
  std::uint32_t version;
};

struct Gradient {
  Tensor leaf;
  std::string what;
  std::optional<Held> memory;  // before the call; none: it had no gradient
  Value value;                 // its layout in that memory
};

// A piece of the state that a replay may change.
struct Piece {
  std::string what;
  const Held* memory;
  DType dtype;
};

struct Difference {
  std::string text, op, where;
};

Storage* storage_of(const Tensor& x) { return TensorImpl::of(x)->storage; }

}  // namespace

TracedCalls::TracedCalls(const Graph& traced) : graph(traced), live(traced.nodes.size()) {
  for (Buffer& buffer : graph.buffers) buffer.captured = Tensor();
  for (GradientSlot& slot : graph.gradients) slot.leaf = slot.before = Tensor();
  for (GradientSlot& slot : graph.gradients) {
    if (slot.after) slot.after->outside = Tensor();
  }
  for (Output& output : graph.outputs) output.outside = Tensor();
  Graph needed = graph;
  remove_dead(needed);
  for (const Node& node : needed.nodes) live[static_cast<std::size_t>(node.number)] = true;
}

struct ReplayCheck::State {
  std::string name;
  std::shared_ptr<const TracedCalls> traced;
  std::vector<Tensor> arguments;
  bool exact;
  std::vector<Saved> saved;
  std::vector<int> captured;  // of each buffer: its place in `saved`; -1: it is not captured
  std::vector<Gradient> gradients;
  std::vector<Piece> pieces;
  RandomPlaces places = random_places();
  std::vector<RandomAdvance> draws;
  Recorder recorder;
  std::vector<HostValues> results, state;  // what the function gave
  std::string error, where;                // what it threw
  std::optional<Difference> first;         // the first traced call that gives something else

  int save(Storage* storage) {
    const auto known =
        std::ranges::find(saved, storage, [](const Saved& each) { return each.memory.get(); });
    if (known != saved.end()) return static_cast<int>(known - saved.begin());
    Held memory(storage);
    const Tensor bytes = memory.whole(boolean);
    Tensor copy = make_tensor(boolean, bytes.shape(), bytes.device());
    if (storage->bytes > 0) copy_bytes(copy, bytes);
    saved.push_back({std::move(memory), copy, storage->version.load(std::memory_order_relaxed)});
    return static_cast<int>(saved.size()) - 1;
  }

  void restore() {
    for (const Saved& each : saved) {
      if (each.memory.get()->bytes > 0) copy_bytes(each.memory.whole(boolean), each.bytes);
      each.memory.get()->version.store(each.version, std::memory_order_relaxed);
    }
    const std::lock_guard lock(autograd::accumulation_mutex());
    for (const Gradient& gradient : gradients) {
      const Tensor now = autograd::collected_gradient(gradient.leaf);
      if (!gradient.memory) {
        if (now.defined()) autograd::set_collected_gradient(gradient.leaf, Tensor());
        continue;
      }
      const Value& v = gradient.value;
      const Tensor before = gradient.memory->view(v.dtype, v.shape, v.strides, v.offset);
      if (!now.defined() || !now.same_view_as(before))
        autograd::set_collected_gradient(gradient.leaf, before);
    }
    rewind_random(places);
  }

  std::vector<HostValues> state_now() const {
    std::vector<HostValues> values;
    for (const Piece& piece : pieces) values.emplace_back(piece.memory->whole(piece.dtype));
    for (const Gradient& gradient : gradients)
      values.emplace_back(autograd::collected_gradient(gradient.leaf));
    return values;
  }
  std::string what(std::size_t i) const {
    return i < pieces.size() ? pieces[i].what : gradients[i - pieces.size()].what;
  }

  std::optional<Difference> first_difference();
  std::optional<Difference> compare_call(const Node& node, const EagerCall& eager,
                                         std::span<const Tensor> inputs,
                                         std::span<const Tensor> outputs);
  [[noreturn]] void report(const std::string& what);
};

ReplayCheck::ReplayCheck(std::string name, std::shared_ptr<const TracedCalls> traced,
                         const Graph& planned, std::span<const Tensor> arguments, bool exact)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.name = std::move(name);
  s.traced = std::move(traced);
  s.arguments.assign(arguments.begin(), arguments.end());
  s.exact = exact;
  s.draws = planned.draws;
  std::vector<const Storage*> apart;  // compared as gradients, or the state of a generator
  for (const GradientSlot& slot : planned.gradients) {
    const Tensor now = autograd::collected_gradient(slot.leaf);
    Gradient gradient{slot.leaf, "the gradient of " + describe(planned, slot.leaf), {}, {}};
    if (now.defined()) {
      gradient.memory.emplace(storage_of(now));
      gradient.value = {-1, now.dtype(), Dims(now.shape()), Dims(now.strides()),
                        now.storage_offset()};
      s.save(storage_of(now));
      apart.push_back(storage_of(now));
    }
    if (slot.before.defined()) apart.push_back(storage_of(slot.before));
    s.gradients.push_back(std::move(gradient));
  }
  for (const Node& node : s.traced->graph.nodes) {
    if (op_info(node.call.op).effect == Effect::draws)
      apart.push_back(storage_of(planned.buffers[node.inputs[0].buffer].captured));
  }
  std::vector<std::pair<int, Piece>> pieces;
  for (std::size_t i = 0; i < planned.buffers.size(); ++i) {
    const Tensor& x = planned.buffers[i].captured;
    s.captured.push_back(x.defined() ? s.save(storage_of(x)) : -1);
    if (x.defined() && std::ranges::find(apart, storage_of(x)) == apart.end())
      pieces.push_back({s.captured.back(), {describe(planned, x), nullptr, x.dtype()}});
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    pieces.push_back({s.save(storage_of(arguments[i])),
                      {fmt::format("argument {}", i), nullptr, arguments[i].dtype()}});
  }
  for (auto& [place, piece] : pieces) {
    piece.memory = &s.saved[static_cast<std::size_t>(place)].memory;
    s.pieces.push_back(std::move(piece));
  }
}

ReplayCheck::~ReplayCheck() = default;

bool ReplayCheck::on_this_thread() {
  CheckingThreads& threads = checking_threads();
  if (threads.count == 0) [[likely]]
    return false;
  const std::lock_guard lock(threads.mutex);
  return std::ranges::find(threads.list, std::this_thread::get_id()) != threads.list.end();
}

void ReplayCheck::run_eagerly(const Function& function) {
  State& s = *state_;
  std::vector<Tensor> handles;
  for (const Gradient& gradient : s.gradients)
    handles.push_back(autograd::collected_gradient(gradient.leaf));
  try {
    const CheckingScope scope;
    const Observing watching(s.recorder);
    for (const Tensor& result : function(s.arguments)) s.results.emplace_back(result);
  } catch (const StaleTensor& error) {
    s.error = error.what();
    s.where = describe(error.site);
  } catch (const Error& error) {
    s.error = error.what();
  } catch (...) {
    s.restore();
    throw;
  }
  s.state = s.state_now();
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const Tensor& leaf = s.gradients[i].leaf;
    if (TensorImpl::of(autograd::collected_gradient(leaf)) != TensorImpl::of(handles[i]))
      autograd::set_collected_gradient(leaf, handles[i]);
  }
  s.restore();
  if (s.exact || !s.error.empty()) return;
  // The bound would hide values that are nearly the same in every replay: a rate that decays.
  s.first = s.first_difference();
  s.restore();
}

// Runs the traced calls one by one, from the state before the call, beside those that the function
// made. Either may make calls at the edges of the step that the other does not: writes of a
// gradient, or of the state of a generator.
std::optional<Difference> ReplayCheck::State::first_difference() {
  const ExcludeKeys unobserved(bit(Key::observe));
  const NoGrad constant;
  const Graph& graph = traced->graph;
  for (const RandomAdvance& advance : draws) before_replay(advance);
  std::vector<Tensor> memory(graph.buffers.size());  // of what the calls make
  const auto view_of = [&](const Value& value) {
    const Buffer& buffer = graph.buffers[value.buffer];
    if (buffer.kind == Buffer::Kind::captured)
      return saved[static_cast<std::size_t>(captured[value.buffer])].memory.view(
          value.dtype, value.shape, value.strides, value.offset);
    if (buffer.kind == Buffer::Kind::input)
      return make_view(arguments[buffer.input], value.shape, value.strides, value.offset);
    Tensor& made = memory[value.buffer];
    if (!made.defined()) made = make_tensor(value.dtype, value.shape, graph.device);
    return make_view(made, value.shape, value.strides, value.offset);
  };
  const auto match = [&](std::size_t node, std::size_t call) {
    return node < graph.nodes.size() && call < recorder.calls.size() &&
           graph.nodes[node].call.op == recorder.calls[call].op;
  };
  std::size_t call = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::vector<Tensor> inputs, outputs;
    std::vector<const Tensor*> pointers;
    for (const Value& input : node.inputs) inputs.push_back(view_of(input));
    for (const Tensor& input : inputs) pointers.push_back(&input);
    for (const Value& output : node.outputs) outputs.push_back(view_of(output));
    if (!match(i, call) && match(i, call + 1)) ++call;
    const bool is_extra = !match(i, call) && (match(i + 1, call) || call == recorder.calls.size());
    Launch launch(node, graph.device);
    launch.call.inputs = pointers.data();
    launch.outputs = outputs.data();
    const EagerCall* const eager = is_extra ? nullptr : &recorder.calls[call++];
    if (eager && eager->op != node.call.op) {
      return Difference{fmt::format("which every replay calls as {}", describe(launch.call)),
                        eager->text, describe(eager->site)};
    }
    run_in_order({&launch, 1});
    if (!eager || !traced->live[i]) continue;
    if (std::optional<Difference> found = compare_call(node, *eager, inputs, outputs)) return found;
  }
  return {};
}

std::optional<Difference> ReplayCheck::State::compare_call(const Node& node, const EagerCall& eager,
                                                           std::span<const Tensor> inputs,
                                                           std::span<const Tensor> outputs) {
  const OpInfo& op = op_info(node.call.op);
  if (op.algebra == Algebra::undefined) return {};
  std::string values;
  for (std::size_t k = 0; k < outputs.size() && k < eager.outputs.size() && values.empty(); ++k)
    values = difference(eager.outputs[k], HostValues(outputs[k]), true);
  if (values.empty()) return {};
  Difference found{"which gives " + values, eager.text, describe(eager.site)};
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  Call call = node.call;
  call.inputs = pointers.data();
  if (op.effect != Effect::draws && describe(call) != eager.text) {
    found.text = fmt::format("which every replay calls as {}", describe(call));
    return found;
  }
  for (std::size_t k = 0; k < node.inputs.size() && k < eager.inputs.size(); ++k) {
    const int buffer = node.inputs[k].buffer;
    if (captured[buffer] < 0 || storage_of(inputs[k]) == eager.inputs[k]) continue;
    found.text =
        fmt::format("whose operand {} is another tensor in every replay: it gives {}", k, values);
    return found;
  }
  return found;
}

void ReplayCheck::State::report(const std::string& what) {
  restore();
  if (!first) {
    throw VerifyError(
        fmt::format("[{}] verify expected the replay to give what the function gives, got {}; each "
                    "of the traced calls gives the function's values by itself",
                    name, what),
        "", "");
  }
  throw VerifyError(
      fmt::format("[{}] verify expected the replay to give what the function gives, got {}; the "
                  "first call that differs is {} (at {}), {}",
                  name, what, first->op, first->where, first->text),
      first->op.substr(0, first->op.find('(')), first->where);
}

void ReplayCheck::compare(std::span<const Tensor> given) {
  State& s = *state_;
  if (!s.error.empty()) {
    s.restore();
    const std::string at = s.where.empty() ? "" : fmt::format(" (at {})", s.where);
    throw VerifyError(
        fmt::format("[{}] verify expected the replay to give what the function gives, but the "
                    "function throws: {}{}",
                    s.name, s.error, at),
        s.error.substr(1, s.error.find(']') - 1), s.where);
  }
  std::string differs;
  const auto look = [&](const std::string& what, const HostValues& eager, const HostValues& now) {
    if (!differs.empty()) return;
    const std::string values = difference(eager, now, s.exact);
    if (!values.empty()) differs = fmt::format("{} with {}", what, values);
  };
  if (given.size() != s.results.size()) {
    differs = fmt::format("{} where the function gives {}", counted(given.size(), "result"),
                          s.results.size());
  }
  for (std::size_t i = 0; i < std::min(given.size(), s.results.size()); ++i)
    look(fmt::format("result {}", i), s.results[i], HostValues(given[i]));
  const std::vector<HostValues> state = s.state_now();
  for (std::size_t i = 0; i < state.size(); ++i) look(s.what(i), s.state[i], state[i]);
  if (differs.empty() && !s.first) return;
  s.restore();
  if (s.exact) s.first = s.first_difference();
  s.report(differs.empty() ? "other calls" : differs);
}

}  // namespace brrr::graph
