// Random numbers: the state that draws read, the order of its uses, and the functions that draw.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/random_state.h"
#include "brrr/ops/scalar_attr.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/runtime.h"

namespace brrr {
namespace {

// Whether the stream is known to be idle. False for a stream under capture, which cannot be
// queried.
bool known_idle(StreamState& stream) {
  try {
    return stream.idle();
  } catch (const Error&) {
    return false;
  }
}

// Seed, step and base live in a tensor on each device, so that a replayed graph can advance them.
// The place of a draw in its step is counted from the base, on the host, where the order of calls
// is known; a step that is replayed adds the number of its draws to the base.
//
// Draws on other streams are ordered after the last write of the state, and a write after all
// earlier draws. Streams are represented as in `thread_context.streams`: null is the default one.
class RandomState {
 public:
  bool defined() const { return tensor_.defined(); }
  const Tensor& tensor() const { return tensor_; }
  Device device() const { return tensor_.device(); }

  void begin(Tensor first_step) {
    tensor_ = std::move(first_step);
    wrote();
  }
  // Call before work that reads the tensor is given to the current stream.
  void will_read() {
    StreamState* const here = current();
    if (here == writer_ || std::ranges::find(readers_, here) != readers_.end()) [[likely]]
      return;
    readers_.reserve(readers_.size() + 1);
    put_after(here, writer_);
    readers_.push_back(here);
  }
  // Call before and after work that writes it.
  void will_write() {
    StreamState* const here = current();
    if (writer_ != here) put_after(here, writer_);
    for (StreamState* reader : readers_) {
      if (reader != here) put_after(here, reader);
    }
  }
  void wrote() {
    writer_ = current();
    readers_.clear();
  }

  std::int64_t place = 0;  // of the next draw in the step, from the base on
  std::int64_t base = 0;   // as on the device
  bool stepped = false;    // in the trace that is on

 private:
  StreamState* current() const { return thread_context.stream(device()); }
  void put_after(StreamState* later, StreamState* earlier) {
    StreamState* const own = runtime_of(device().type).default_stream(device());
    StreamState& before = earlier ? *earlier : *own;
    if (!known_idle(before)) order_streams(before, later ? *later : *own);
  }

  Tensor tensor_;
  StreamState* writer_ = nullptr;
  std::vector<StreamState*> readers_;  // streams other than the writer that drew since
};

struct Generators {
  std::mutex mutex;
  std::uint64_t seed = 0;
  RandomState states[RandomPlaces::kGenerators];

  RandomState& of(Device device) {
    return states[static_cast<int>(device.type) * kMaxDevices + device.index];
  }
  RandomState& on(Device device) {
    RandomState& state = of(device);
    if (!state.defined()) state.begin(first_step(device));
    return state;
  }
  Tensor first_step(Device device) const {
    const ExcludeKeys for_real(bit(Key::trace));
    const std::int64_t values[] = {static_cast<std::int64_t>(seed), 0, 0};
    return brrr::tensor<std::int64_t>(std::span<const std::int64_t>(values), {3}, device);
  }
};

// Access to all generators, by one thread at a time.
class Locked {
 public:
  Generators* operator->() const { return &all(); }

 private:
  static Generators& all() {
    static Generators* instance = new Generators;
    return *instance;
  }
  std::lock_guard<std::mutex> lock_{all().mutex};
};

void restore(const RandomPlaces& places) {
  const Locked generators;
  for (int i = 0; i < RandomPlaces::kGenerators; ++i) generators->states[i].place = places.place[i];
}

// Resets the place of an op's one draw when the op fails, so that a retry draws the same numbers.
class OneDraw {
 public:
  explicit OneDraw(Device device) : device_(device), place_(Locked()->of(device).place) {}
  ~OneDraw() {
    if (std::uncaught_exceptions() == before_) [[likely]]
      return;
    const Locked generators;
    RandomState& state = generators->of(device_);
    if (state.place == place_ + 1) state.place = place_;
  }
  OneDraw(const OneDraw&) = delete;
  OneDraw& operator=(const OneDraw&) = delete;

 private:
  Device device_;
  std::int64_t place_;
  int before_ = std::uncaught_exceptions();
};

void require_floating(const char* name, DType dtype) {
  if (!is_floating(dtype)) fail("[{}] expected a floating dtype, got {}", name, name_of(dtype));
}

// `threshold`: of bernoulli.
Tensor draw(const char* name, Op op, const Dims& shape, Options options,
            std::optional<std::int64_t> threshold = {}) {
  const CompositeScope scope(name);
  if (!threshold) require_floating(name, options.dtype);
  require_device(options.device, name);
  const OpScope reading(name);
  const OneDraw one(options.device);
  Tensor state;
  std::int64_t place;
  {
    const Locked generators;
    RandomState& mine = generators->on(options.device);
    mine.will_read();
    state = mine.tensor();
    place = mine.place++;
  }
  const Tensor* inputs[] = {&state};
  Call call(op, inputs, 1);
  call.dtype = options.dtype;
  call.add_attr(place);
  if (threshold) call.add_attr(*threshold);
  call.add_shape(shape);
  return dispatch(call);
}

// The largest integer up to which a floating type represents every integer.
std::int64_t most_counted(DType dtype) {
  const int digits = dtype == f64 ? 53 : dtype == f32 ? 24 : dtype == f16 ? 11 : 8;
  return std::int64_t{1} << digits;
}

// Like a meta tensor is a meta tensor, without a draw; like a traced one, a draw of the trace.
Tensor draw_like(const char* name, Op op, const Tensor& x, DType dtype,
                 std::optional<std::int64_t> threshold = {}) {
  if (!threshold) require_floating(name, dtype);
  const Options like{dtype, x.device()};
  return x.without_values() ? meta(x.shape(), like) : draw(name, op, x.shape(), like, threshold);
}

}  // namespace

RandomPlaces random_places() {
  const Locked generators;
  RandomPlaces places;
  for (int i = 0; i < RandomPlaces::kGenerators; ++i) {
    const RandomState& state = generators->states[i];
    places.place[i] = state.place;
    places.base[i] = state.base;
    places.version[i] = state.defined() ? state.tensor().version() : 0;
  }
  return places;
}

void rewind_random(const RandomPlaces& places) {
  const Locked generators;
  for (int i = 0; i < RandomPlaces::kGenerators; ++i) {
    generators->states[i].place = places.place[i];
    generators->states[i].base = places.base[i];
  }
}

RandomReplay::RandomReplay(const RandomPlaces& places) : before_(random_places()) {
  if (std::memcmp(places.version, before_.version, sizeof places.version) != 0) {
    fail(
        "[random] expected the seed and the step that numbers were drawn with, got another seed or "
        "step: it changed in between");
  }
  restore(places);
}

RandomReplay::~RandomReplay() { restore(before_); }

void manual_seed(std::uint64_t seed) {
  refuse_while_tracing("manual_seed", "every replay would draw the same numbers again");
  const OpScope scope("manual_seed");
  const CompositeScope composite("manual_seed");
  const Locked generators;
  generators->seed = seed;
  for (RandomState& state : generators->states) {
    state.place = state.base = 0;
    if (!state.defined()) continue;
    state.will_write();
    // Written in place: compiled steps reference the tensor itself.
    Tensor target = state.tensor();
    copy_(target, generators->first_step(state.device()));
    state.wrote();
  }
}

void next_random_step(Device device) {
  const OpScope scope("next_random_step");
  const CompositeScope composite("next_random_step");
  const Locked generators;
  RandomState& state = generators->on(device);
  state.will_write();
  add_(slice(state.tensor(), 0, 1, 2), 1);
  if (state.base != 0 || tracing()) zero_(slice(state.tensor(), 0, 2, 3));
  state.wrote();
  state.place = 0;
  if (tracing()) {
    state.stepped = true;
  } else {
    state.base = 0;
  }
}

RandomTrace::RandomTrace() : before_(random_places()) {
  const Locked generators;
  for (RandomState& state : generators->states) {
    state.place = 0;
    state.stepped = false;
  }
}

RandomTrace::~RandomTrace() { restore(before_); }

std::vector<RandomAdvance> RandomTrace::finish() {
  const Locked generators;
  std::vector<RandomAdvance> advances;
  for (RandomState& state : generators->states) {
    if (!state.defined() || (state.place == 0 && !state.stepped)) continue;
    advances.push_back({state.device(), state.place, state.stepped});
    if (state.place > 0) add_(slice(state.tensor(), 0, 2, 3), state.place);
  }
  return advances;
}

void before_replay(const RandomAdvance& advance) {
  const Locked generators;
  RandomState& state = generators->on(advance.device);
  state.will_write();
  if (state.place == 0) return;
  add_(slice(state.tensor(), 0, 2, 3), state.place);
  state.base += std::exchange(state.place, 0);
}

void after_replay(const RandomAdvance& advance) {
  const Locked generators;
  RandomState& state = generators->on(advance.device);
  state.base = advance.draws + (advance.stepped ? 0 : state.base);
  state.wrote();
}

void release_random_state() {
  const Locked generators;
  for (int i = 0; i < kMaxDevices; ++i) generators->of(cuda(i)) = {};
}

namespace infer {

void uniform(const Call& call, OutputSpec* out) {
  out[0] = {call.dtype, call.input(0).device(), call.shape_from(1)};
}

void normal(const Call& call, OutputSpec* out) { uniform(call, out); }

void bernoulli(const Call& call, OutputSpec* out) {
  out[0] = {boolean, call.input(0).device(), call.shape_from(2)};
}

}  // namespace infer

Tensor rand(const Dims& shape, Options options) {
  return draw("rand", Op::uniform, shape, options);
}
Tensor randn(const Dims& shape, Options options) {
  return draw("randn", Op::normal, shape, options);
}

Tensor rand_like(const Tensor& x) {
  require_defined("rand_like", x);
  return draw_like("rand_like", Op::uniform, x, x.dtype());
}
Tensor randn_like(const Tensor& x) {
  require_defined("randn_like", x);
  return draw_like("randn_like", Op::normal, x, x.dtype());
}

Tensor randint(std::int64_t low, std::int64_t high, const Dims& shape, Options options) {
  const CompositeScope scope("randint");
  if (low >= high || static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) >
                         (std::uint64_t{1} << 53)) {
    fail("[randint] expected low below high by at most 2^53, got {} and {}", low, high);
  }
  // Refuses ranges with integers that the type cannot represent: these would be rounded, so that
  // the distribution would be uneven and could include `high`.
  const auto has = [&](std::int64_t value) {
    if (!is_floating(options.dtype)) return is_representable(options.dtype, value);
    const std::int64_t most = most_counted(options.dtype);
    return -most <= value && value <= most;
  };
  for (const std::int64_t end : {low, high - 1}) {
    if (!has(end)) throw_out_of_range("randint", options.dtype, end);
  }
  require_device(options.device, "randint");
  const OneDraw one(options.device);
  const Tensor unit = rand(shape, {f64, options.device});
  return cast(cast(floor(unit * static_cast<double>(high - low)), i64) + low, options.dtype);
}

Tensor bernoulli(const Tensor& probability) {
  const Composite scope("bernoulli", probability);
  const DType wide =
      is_floating(probability.dtype()) && !is_half(probability.dtype()) ? probability.dtype() : f32;
  const Tensor p = checked(probability, 0, 1);
  const OneDraw one(p.device());
  return cast(lt(draw_like("bernoulli", Op::uniform, p, wide), p), p.dtype());
}

Tensor dropout(const Tensor& x, double p) {
  const Composite scope("dropout", x);
  if (!(p >= 0 && p <= 1)) fail("[dropout] expected a probability in [0, 1], got {}", p);
  if (!is_floating(x.dtype())) fail("[dropout] expected a floating dtype, got {}", x.describe());
  if (p == 0) return x;
  if (p == 1) return x * 0;
  const OneDraw one(x.device());
  const std::int64_t threshold = std::llround((1 - p) * 65536);
  const Tensor keep = draw_like("dropout", Op::bernoulli, x, boolean, threshold);
  return where(keep, x * (1 / (1 - p)), 0);
}

}  // namespace brrr
