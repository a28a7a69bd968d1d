// Compiled steps: a function is traced once and replayed.
//
//   auto step = brrr::compile([&](const Tensor& x, const Tensor& y) {
//     parameters.zero_grad();
//     Tensor loss = nn::mse_loss(model(x), y);
//     backward(loss);
//     optimizer.step();
//     return loss;
//   });
//   Tensor loss = step(x, y);
//
// The first call with arguments of given shapes traces the function, plans its memory and runs it;
// later calls replay the plan: on CUDA as one graph launch, on the CPU as a list of kernel calls.
// In graph mode results have the same bits as those of the function called eagerly.
//
// - Captured tensors are read and written in place at each call. C++ variables are not captured: a
//   variable that the function assigns to holds a tensor without values afterwards, and replays do
//   not see a tensor that is later assigned to a variable.
// - Values of the host (numbers, branches, tensors made of them) are those of the first call:
//   `explain` lists them. A schedule on the device, dropout and step counters advance.
// - State that the library changes (a module's training mode, packed parameters, a module's device,
//   precision, seeds) is checked at each call. If it differs, the function is traced again.
// - After each call the leaves have the gradients that the function computed.
// - Results are new tensors that no later call overwrites. An argument, a captured tensor or a view
//   of one is returned as such. Results carry no gradient.
// - step(fixed(x), y): later calls pass x at the same address. Replays use it in place,
//   without a copy.
// - A function that reads values, waits or changes streams throws an error with op and line.
//   Arguments may not require a gradient.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <brrr/graph/generated_kernel.h>
#include <brrr/graph/remat.h>
#include <brrr/graph/step_report.h>
#include <brrr/graph/step_time.h>
#include <brrr/graph/why_not_fused.h>
#include <brrr/tensor/error.h>
#include <brrr/tensor/tensor.h>

namespace brrr {

enum class Mode : std::uint8_t {
  eager,  // calls the function
  graph,  // replays the traced calls
  fused,  // replays kernels of many calls each
};

// How generated kernels of a fused step round.
enum class Rounding : std::uint8_t {
  eager,  // every intermediate to its dtype, as the calls one by one do; no contraction to fma
  // Intermediates of f16 and bf16 stay in f32. On CUDA a product and a sum may contract to an fma,
  // and quotients and square roots have errors of up to 2 ulp.
  fast,
};

enum class OnFrozenRate : std::uint8_t { warn, ignore, refuse };
// What to do when a call cannot be replayed and runs eagerly. `warn`: prints the reason once on
// stderr.
enum class OnFallback : std::uint8_t { warn, ignore, refuse };

// An argument that has the same address in all calls, such as a batch slot that is refilled.
// The compiled step owns a reference to it, and has an entry for each tensor passed as fixed.
namespace core {
template <class T>
struct Fixed {
  T value;
};
}  // namespace core
inline core::Fixed<Tensor> fixed(const Tensor& x) { return {x}; }
inline core::Fixed<std::vector<Tensor>> fixed(std::vector<Tensor> list) {
  return {std::move(list)};
}

struct CompileOptions {
  Mode mode = Mode::graph;
  Rounding rounding = Rounding::eager;
  Remat remat = Remat::none();  // of replayed steps
  std::string name = "step";    // in messages
  // How many entries (combinations of shapes, numbers and settings) are kept. Calls that would need
  // more run eagerly.
  int most_entries = 8;
  // What to do when a call cannot be replayed.
  OnFallback fallback = OnFallback::warn;
  // What to do about a host number that scales an update of parameters (a learning rate), since it
  // is the same in every replay.
  OnFrozenRate frozen_rate = OnFrozenRate::warn;
  // While a fused step is planned, its kernels and the step are timed, and decide what is fused.
  // Off, a model of the device does. Steps with a policy of rematerialization are not timed.
  bool measure = true;
  // Independent calls run concurrently on CUDA.
  bool lanes = true;
  // Programmatic dependent launch: CUDA sets a kernel up while the previous one ends.
  bool programmatic = true;
  // Before so many first calls of each entry the function also runs eagerly. The state of the step
  // (captured tensors, arguments, gradients, generators) is copied and restored in between, and
  // what the replay gives is compared: bit for bit, or in fused steps on CUDA or with
  // Rounding::fast, to 2 % of the root mean square of a tensor. A difference throws a VerifyError,
  // with the state as it was before the call. What the function does beside (prints, counts, ops
  // with effects) it does again.
  int verify = 0;
};

// A replay differs from the function: a value of the host, or a tensor, that changed since the
// trace is the same in every replay, or a kernel is wrong.
class VerifyError : public Error {
 public:
  VerifyError(const std::string& message, std::string op, std::string where)
      : Error(message), op_(std::move(op)), where_(std::move(where)) {}
  const std::string& op() const { return op_; }        // the first call that differs; "" unknown
  const std::string& where() const { return where_; }  // "train.cpp:12 in train_step"

 private:
  std::string op_, where_;
};

// One traced form of a step.
struct CompiledEntry {
  Device device;
  Mode mode = Mode::graph;
  std::string signature;  // "f32[32, 64], f32[32, 64]"
  std::string reason;     // why it was compiled
  std::int64_t calls = 0;
  int nodes = 0;     // calls in it
  int launches = 0;  // nodes of the CUDA graph; 0 until it is captured, and on the CPU
  int lanes = 1;
  std::size_t arena_bytes = 0;  // planned memory, shared by the entries of a step
  std::size_t least_bytes = 0;  // peak live bytes in the arena: its lower bound
  std::size_t kept_bytes = 0;   // of gradients and constants
  std::size_t constant_bytes = 0;
  std::size_t result_bytes = 0;   // results, which each call allocates
  std::size_t scratch_bytes = 0;  // workspaces that the captured graph owns
  // On the CPU: the largest workspace of a kernel, measured in the first call.
  std::size_t kernel_bytes = 0;
  // Of the host. Generated kernels are compiled while the step is planned, and on CUDA the second
  // call captures the graph.
  double trace_ms = 0, plan_ms = 0, first_run_ms = 0, capture_ms = 0;
  // Of a replay, predicted before the first; by ceilings alone, whether or not kernels were timed.
  core::StepTime predicted, by_ceilings;
  core::Roofline roofline;  // of its kernels
  bool calibrated = false;  // predicted from ceilings measured by `brrr calibrate`
  bool measured = false;    // predicted from times of the kernels (measure_kernels)
  // Under a policy of rematerialization: copies of calls that the backward pass runs again, and the
  // memory of the step with every value kept.
  int recomputed_calls = 0;
  std::size_t arena_bytes_without_remat = 0;

  // Peak memory of a replay, without arguments and gradients.
  std::size_t planned_bytes() const {
    return arena_bytes + constant_bytes + result_bytes + scratch_bytes + kernel_bytes;
  }
};

struct CompileReport {
  std::string name = {};  // of the step
  std::vector<CompiledEntry> entries = {};
  std::int64_t eager_calls = 0;                 // calls that could not be replayed
  std::vector<std::string> eager_reasons = {};  // the last few
};

namespace core {

// A number or enum among the arguments, which is part of the signature.
using Static = std::int64_t;
using StepFunction = std::function<std::vector<Tensor>(std::span<const Tensor> tensors)>;

class CompiledStep {
 public:
  std::atomic<std::uint64_t> unseen{0};  // a listener's count of calls that it leaves out

  explicit CompiledStep(CompileOptions options);
  ~CompiledStep();

  // `function` is called with the tensors to use for `arguments`, to trace or eagerly.
  // Those that are fixed the function knows already.
  std::vector<Tensor> call(std::span<const Tensor> arguments, std::span<const Tensor> fixed,
                           std::span<const Static> statics, const StepFunction& function);
  CompileReport report() const;
  std::string explain() const;
  std::string graph_text(int entry, int format) const;
  LiveBytes live_bytes(int entry) const;
  std::vector<UnfusedEdge> unfused(int entry) const;
  std::vector<GeneratedKernel> kernels(int entry) const;
  std::vector<LaunchCost> launches(int entry) const;
  void measure_kernels();
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class T>
concept StaticArgument =
    std::is_arithmetic_v<std::remove_cvref_t<T>> || std::is_enum_v<std::remove_cvref_t<T>>;

Static static_of(double value);
template <StaticArgument T>
Static as_static(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_of(static_cast<double>(value));
  } else {
    return static_cast<Static>(value);
  }
}

// The type of the function's parameter for an argument.
template <class A>
struct Given {
  using Type = A;
};
template <class T>
struct Given<Fixed<T>> {
  using Type = T;
};
template <class A>
using GivenFor = typename Given<std::remove_cvref_t<A>>::Type;

// The kind of an argument, as part of the signature.
template <class A>
constexpr Static kind_of() {
  using T = std::remove_cvref_t<A>;
  if constexpr (std::is_same_v<T, Tensor>) return 0;
  if constexpr (std::is_same_v<T, std::vector<Tensor>>) return 1;
  if constexpr (std::is_same_v<T, Fixed<Tensor>>) return 2;
  if constexpr (std::is_same_v<T, Fixed<std::vector<Tensor>>>) return 3;
  return 4 + (std::is_same_v<T, bool> | std::is_floating_point_v<T> << 1 | std::is_enum_v<T> << 2 |
              std::is_unsigned_v<T> << 3 | static_cast<Static>(sizeof(T)) << 4);
}

// Whether a kind is a number's, which is followed by its value; a list's is followed by its length.
constexpr bool is_number(Static kind) { return kind >= 4; }
constexpr bool is_floating_number(Static kind) { return is_number(kind) && (kind - 4) & 2; }
constexpr bool has_static(Static kind) { return is_number(kind) || kind == 1 || kind == 3; }

// Arguments to lists of tensors and numbers, and back.
struct Flattened {
  std::vector<Tensor> tensors, fixed;
  std::vector<Static> statics;

  void add(const Tensor& x) { tensors.push_back(x); }
  void add(const std::vector<Tensor>& list) {
    statics.push_back(static_cast<Static>(list.size()));
    tensors.insert(tensors.end(), list.begin(), list.end());
  }
  void add(const Fixed<Tensor>& x) { fixed.push_back(x.value); }
  void add(const Fixed<std::vector<Tensor>>& list) {
    statics.push_back(static_cast<Static>(list.value.size()));
    fixed.insert(fixed.end(), list.value.begin(), list.value.end());
  }
  template <StaticArgument T>
  void add(T value) {
    statics.push_back(as_static(value));
  }
};

class Unflatten {
 public:
  explicit Unflatten(std::span<const Tensor> tensors) : tensors_(tensors) {}
  Tensor like(const Tensor&) { return tensors_[next_++]; }
  std::vector<Tensor> like(const std::vector<Tensor>& list) {
    std::vector<Tensor> result(tensors_.begin() + static_cast<std::ptrdiff_t>(next_),
                               tensors_.begin() + static_cast<std::ptrdiff_t>(next_ + list.size()));
    next_ += list.size();
    return result;
  }
  template <class T>
  T like(const Fixed<T>& argument) {
    return argument.value;
  }
  template <StaticArgument T>
  T like(T value) {
    return value;
  }

 private:
  std::span<const Tensor> tensors_;
  std::size_t next_ = 0;
};

// Results: a tensor, a vector of them, or a std::array, std::pair or std::tuple.
template <class R>
struct Results {
  static std::vector<Tensor> to_list(const R& all) {
    return std::apply([](const auto&... each) { return std::vector<Tensor>{each...}; }, all);
  }
  static R from_list(std::vector<Tensor> list) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return R{std::move(list[I])...}; }
    (std::make_index_sequence<std::tuple_size_v<R>>());
  }
};
template <>
struct Results<Tensor> {
  static std::vector<Tensor> to_list(const Tensor& x) { return {x}; }
  static Tensor from_list(std::vector<Tensor> list) { return std::move(list[0]); }
};
template <>
struct Results<std::vector<Tensor>> {
  static std::vector<Tensor> to_list(std::vector<Tensor> list) { return list; }
  static std::vector<Tensor> from_list(std::vector<Tensor> list) { return list; }
};

}  // namespace core

// The result of compile(), called like the function. Arguments are tensors, vectors of tensors,
// either of them fixed(), and numbers; each combination of numbers has an entry of its own.
template <class F>
class Compiled {
 public:
  Compiled(F function, CompileOptions options)
      : function_(std::move(function)),
        step_(std::make_unique<core::CompiledStep>(std::move(options))) {
    if constexpr (requires {
                    typename F::result_type;
                    function_ == nullptr;
                  }) {
      if (function_ == nullptr) core::fail("[compile] expected a function, got none");
    }
  }

  template <class... A>
  requires(std::invocable<F&, core::GivenFor<A>&...>) auto operator()(A&&... arguments) {
    using R = std::remove_cvref_t<std::invoke_result_t<F&, core::GivenFor<A>&...>>;
    core::Flattened flat;
    ((flat.statics.push_back(core::kind_of<A>()), flat.add(arguments)), ...);
    const auto call = [&](std::span<const Tensor> tensors) -> std::vector<Tensor> {
      core::Unflatten next(tensors);
      // Braces guarantee evaluation from left to right.
      std::tuple<core::GivenFor<A>...> list{next.like(arguments)...};
      if constexpr (std::is_void_v<R>) {
        std::apply(function_, list);
        return {};
      } else {
        return core::Results<R>::to_list(std::apply(function_, list));
      }
    };
    std::vector<Tensor> results = step().call(flat.tensors, flat.fixed, flat.statics, call);
    if constexpr (!std::is_void_v<R>) return core::Results<R>::from_list(std::move(results));
  }

  // The compiled entries: why each was made, its calls, memory and times.
  CompileReport report() const { return step().report(); }
  // The same as text, with the numbers of the host that every replay repeats.
  std::string explain() const { return step().explain(); }
  // The traced calls of an entry.
  std::string graph_text(int entry = 0) const { return step().graph_text(entry, 0); }
  std::string graph_dot(int entry = 0) const { return step().graph_text(entry, 1); }
  std::string graph_json(int entry = 0) const { return step().graph_text(entry, 2); }
  // Under a policy of rematerialization: the live bytes of an entry, call by call, before and
  // after.
  core::LiveBytes live_bytes(int entry = 0) const { return step().live_bytes(entry); }
  // The values that kernels of a fused entry pass to one another through memory, with reasons.
  std::vector<core::UnfusedEdge> unfused(int entry = 0) const { return step().unfused(entry); }
  // The kernels that were generated for a fused entry, with their source.
  std::vector<core::GeneratedKernel> kernels(int entry = 0) const { return step().kernels(entry); }
  // The launches of an entry, in order, with their predicted costs.
  std::vector<core::LaunchCost> launches(int entry = 0) const { return step().launches(entry); }
  // Times each kernel of the entries by itself, on memory of its own, once in a process:
  // predictions are made of these times from then on. Takes milliseconds a kernel.
  void measure_kernels() { step().measure_kernels(); }
  // Drops all entries and frees the planned memory: the next call traces again, with the host's
  // values at that time.
  void clear() { step().clear(); }

  // Whether there is a step: a default-constructed Compiled<R(A...)> has none.
  explicit operator bool() const { return step_ != nullptr; }

 private:
  template <class>
  friend class Compiled;

  Compiled() = default;
  Compiled(F function, std::unique_ptr<core::CompiledStep> step)
      : function_(std::move(function)), step_(std::move(step)) {}
  core::CompiledStep& step() const {
    if (!step_) core::fail("[compile] expected a compiled step, got an empty one");
    return *step_;
  }

  F function_;
  std::unique_ptr<core::CompiledStep> step_;
};

// A compiled step by the signature of its function, whatever the function's type: for the members
// of a class. It is called like any other.
//
//   class Trainer {
//     Compiled<Tensor(Tensor, Tensor)> step_ = compile(...);
//   };
template <class R, class... A>
class Compiled<R(A...)> : public Compiled<std::function<R(A...)>> {
  using Base = Compiled<std::function<R(A...)>>;

 public:
  Compiled() = default;
  template <class F>
  requires std::is_invocable_r_v<R, F&, A...> Compiled(Compiled<F> compiled)
      : Base(
            [f = std::make_shared<F>(std::move(compiled.function_))](A... arguments) -> R {
              if constexpr (std::is_void_v<R>) {
                (*f)(std::forward<A>(arguments)...);
              } else {
                return (*f)(std::forward<A>(arguments)...);
              }
            },
            std::move(compiled.step_)) {}
};

template <class F>
Compiled<std::decay_t<F>> compile(F&& function, CompileOptions options = {}) {
  return {std::forward<F>(function), std::move(options)};
}

// Asserts that a fused step computes `a` and `b` in one kernel. If it does not, compiling the step
// throws an Error that names the obstacle. Does nothing in other modes and outside of compiled
// functions.
//
//   const Tensor scores = matmul(q, k), weights = softmax(scores * scale, -1);
//   require_fused(scores, weights);
void require_fused(const Tensor& a, const Tensor& b);

}  // namespace brrr
