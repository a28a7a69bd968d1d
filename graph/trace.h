// Records a step instead of running it. While a Trace exists, every call on its thread becomes a
// node of its graph, and results are placeholders: tensors with shapes and without values. Tensors
// outside of the trace do not change, whether the step returns or throws.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <brrr/autograd/journal.h>
#include <brrr/dispatch/keys.h>
#include <brrr/dispatch/tracing.h>
#include <brrr/graph/ir.h>
#include <brrr/tensor/error.h>
#include <brrr/tensor/thread_context.h>

namespace brrr::graph {

// A traced tensor was used outside of its trace.
struct StaleTensor : Error {
  StaleTensor(const std::string& message, const CallSite& at) : Error(message), site(at) {}
  CallSite site;
};

class Trace final : public TraceListener {
 public:
  // `name`: of the step, for messages.
  Trace(std::string name, std::span<const Tensor> arguments);
  ~Trace() override;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static bool on_this_thread();

  // Placeholders of the arguments, to call the step with.
  const std::vector<Tensor>& inputs() const { return inputs_; }
  // The graph of the recorded calls, with the step's results as outputs.
  Graph finish(std::vector<Tensor> results);

  // The Trace key's one function.
  static void record(Call& call, Tensor* outputs, std::uint32_t keys);

  void on_host_access(const char* op, const char* why) override;
  void on_host_values(const char* op, const Tensor& made) override;
  void on_setting_read(const Setting& setting, const std::string& name) override;
  void on_setting_changed(const Setting& setting) override;
  void on_module_enter(const std::string& module) override;
  void on_module_exit() override;
  void on_tensor_named(const Tensor& x, const std::string& name) override;
  // Records that a fused step must compute both in one kernel. Does nothing outside of a trace.
  static void require_fused(const Tensor& a, const Tensor& b);
  static void mark_for_remat(const Tensor& x, bool recomputed);
  static void mark_for_remat(std::string_view name, bool recomputed);

 private:
  void note(Call& call, Tensor* outputs);
  bool is_made_here(const Tensor& x) const;
  std::string refusal_of_mark(const char* function, const Tensor& x) const;
  std::string latest_values() const;  // for messages: the last few that the trace has made
  void require_known(const Call& call, const Tensor& x) const;
  void require_order(const Call& call) const;
  int buffer_of(const Tensor& x);
  Value value_of(const Tensor& x);
  Tensor make(DType dtype, std::span<const std::int64_t> shape, Device device, Buffer::Kind kind);
  std::string refusal(const char* op, const std::string& why) const;
  [[noreturn]] void refuse(const char* op, const std::string& why) const;
  bool escapes(const autograd::Journal::LeafGradient& entry, std::span<const Tensor> results) const;
  Output output_of(const Tensor& x);
  void note_gradients(std::span<const Tensor> results);
  Origin origin_of_call() const;
  void name_gradients();

  std::string name_;
  std::uint32_t serial_;
  std::uint64_t last_sequence_ = thread_context.last_sequence;  // of the tape, before the trace
  Graph graph_;
  std::vector<Tensor> arguments_, inputs_;
  std::unordered_map<const Storage*, int> captured_;
  // The storages of captured buffers: the graph has a reference to each, and so has the trace.
  static constexpr std::uint32_t kReferences = 2;
  std::vector<Storage*> held_;
  std::unordered_map<Storage*, std::uint32_t> writes_;   // recorded writes to captured storages
  std::vector<std::shared_ptr<SettingState>> set_here_;  // settings set before they were read
  std::vector<int> modules_;                             // the current modules, outermost first
  std::unordered_map<std::string, int> module_numbers_;  // in Graph::modules
  // Names of tensors from outside, by storage and extent.
  std::map<std::tuple<const Storage*, std::int64_t, std::int64_t>, std::string> names_;
  // Of each call: the tape's last sequence before it, which a node of the call exceeds.
  std::vector<std::uint64_t> sequences_;
  bool went_backward_ = false;
  std::vector<StreamState*> streams_;  // the current ones, of each device
  std::optional<autograd::Journal> journal_;
  std::optional<RandomTrace> random_;
  std::optional<IncludeKeys> key_;
};

}  // namespace brrr::graph
