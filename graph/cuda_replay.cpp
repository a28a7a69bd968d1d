#include "brrr/graph/cuda_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "brrr/graph/cuda_feed.h"
#include "brrr/graph/program.h"
#include "brrr/graph/rename.h"
#include "brrr/ops/cuda/programmatic.h"
#include "brrr/tensor/cuda_capture.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/error.h"

namespace brrr::graph {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// The memory of a block that lives elsewhere is not given to others before this stream is done.
void used_here(Storage* storage, cu::CudaStream& stream) {
  if (storage && storage->stream && storage->stream != &stream)
    cuda_runtime().record_use(*storage, stream);
}

class Replay final : public CudaReplay {
 public:
  explicit Replay(Program& program);
  ~Replay() override;

  void run(std::span<const Tensor> arguments, std::vector<Tensor>& results) override;
  int launches() const override { return launches_; }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  double capture_ms() const override { return capture_ms_; }

 private:
  // A result: a copy of a buffer of the arena into memory of its own.
  struct Result {
    int root;
    std::size_t copy;          // its number among those of `out_`
    std::vector<int> writers;  // the last call of each lane that writes to it
  };

  std::vector<int> writers_of(int root) const;
  char* address_of(int root) const;
  void take(std::span<const Tensor> arguments, cu::CudaStream& stream);
  void make_results(std::span<const Tensor> arguments, std::vector<Tensor>& results);
  void run_each(cu::CudaStream& stream);
  void capture(cu::CudaStream& stream);
  void capture_calls(cu::CudaStream& stream);
  void run_captured(const Step& step) const;
  void require_capturing(cu::CudaStream& stream, const Step& step) const;
  [[noreturn]] void cannot_capture(const Step& step, const std::string& why) const;

  Program& program_;
  Feed in_, out_, back_;
  std::vector<int> fed_;          // the arguments of `in_`
  std::vector<int> handed_back_;  // and of `back_`
  std::vector<Result> results_;
  bool warm_ = false;
  std::unique_ptr<cu::CapturePool> pool_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  cu::CudaStream* captured_on_ = nullptr;
  int launches_ = 0;
  std::size_t scratch_bytes_ = 0;
  double capture_ms_ = 0;
};

Replay::Replay(Program& program)
    : program_(program),
      in_(Edge::feed, program.graph().device),
      out_(Edge::hand_out, program.graph().device),
      back_(Edge::hand_back, program.graph().device) {
  const Graph& graph = program.graph();
  const std::vector<int> writes = writes_of(graph);
  for (std::size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& buffer = graph.buffers[i];
    if (buffer.kind != Buffer::Kind::input) continue;
    if (program.plan().in_arena[i] < 0) continue;  // nobody reads it
    in_.add({nullptr, address_of(static_cast<int>(i)), buffer.bytes});
    fed_.push_back(buffer.input);
    if (writes[i] == 0) continue;
    back_.add({address_of(static_cast<int>(i)), nullptr, buffer.bytes});
    handed_back_.push_back(buffer.input);
  }
  for (const Output& output : graph.outputs) {
    if (output.value.buffer < 0) continue;
    const Buffer::Kind kind = graph.buffers[at(output.value.buffer)].kind;
    if (kind != Buffer::Kind::temporary) continue;
    const int root = program.plan().places[at(output.value.buffer)].root;
    if (program.plan().in_arena[at(root)] < 0) continue;  // a gradient too, which is kept
    if (std::ranges::find(results_, root, &Result::root) != results_.end()) continue;
    out_.add({address_of(root), nullptr, graph.buffers[at(root)].bytes});
    results_.push_back({root, out_.size() - 1, writers_of(root)});
  }
}

Replay::~Replay() {
  if (exec_) BRRR_CUDA_TRY(cuGraphExecDestroy, exec_);
  if (graph_) BRRR_CUDA_TRY(cuGraphDestroy, graph_);
}

// Parts of a joined result are made in its place, each in its own lane.
std::vector<int> Replay::writers_of(int root) const {
  const Plan& plan = program_.plan();
  std::vector<int> of_lane(at(plan.lanes), -1);
  for (const Step& step : program_.steps()) {
    for (const Value& v : program_.graph().nodes[at(step.node)].outputs) {
      if (plan.places[at(v.buffer)].root == root) of_lane[at(plan.lane[at(step.node)])] = step.node;
    }
  }
  std::erase(of_lane, -1);
  return of_lane;
}

char* Replay::address_of(int root) const {
  const Plan& plan = program_.plan();
  return static_cast<char*>(program_.arena_storage()->data) + plan.in_arena[at(root)] +
         plan.places[at(root)].offset;
}

void Replay::take(std::span<const Tensor> arguments, cu::CudaStream& stream) {
  for (std::size_t i = 0; i < fed_.size(); ++i) {
    const Tensor& argument = arguments[at(fed_[i])];
    in_[i].from = argument.data();
    used_here(argument.impl()->storage, stream);
  }
  for (std::size_t i = 0; i < handed_back_.size(); ++i) {
    back_[i].to = arguments[at(handed_back_[i])].data();
  }
  for (Storage* storage : program_.outside()) used_here(storage, stream);
  used_here(program_.arena_storage(), stream);
}

void Replay::make_results(std::span<const Tensor> arguments, std::vector<Tensor>& results) {
  const Graph& graph = program_.graph();
  std::vector<Storage*> made(results_.size());
  const auto storage_for = [&](int root) {
    const auto found = std::ranges::find(results_, root, &Result::root);
    if (found == results_.end()) {
      Storage* kept = program_.storage_of(root);
      kept->retain();
      return kept;
    }
    Storage*& storage = made[static_cast<std::size_t>(found - results_.begin())];
    if (storage) {
      storage->retain();
    } else {
      storage = new_storage(graph.device, graph.buffers[at(root)].bytes);
      out_[found->copy].to = storage->data;
    }
    return storage;
  };
  for (const Output& output : graph.outputs) {
    const Value& value = output.value;
    if (output.real.defined() || value.buffer < 0) {
      results.push_back(output.real);
    } else if (const Buffer& buffer = graph.buffers[at(value.buffer)];
               buffer.kind == Buffer::Kind::input) {
      results.push_back(
          make_view(arguments[at(buffer.input)], value.shape, value.strides, value.offset));
    } else {
      const int root = program_.plan().places[at(value.buffer)].root;
      results.push_back(
          make_tensor_on(storage_for(root), value.dtype, value.shape, value.strides, value.offset));
    }
  }
}

void Replay::run(std::span<const Tensor> arguments, std::vector<Tensor>& results) {
  const Device device = program_.graph().device;
  cu::CudaStream& stream = cu::current_stream(device);
  program_.arena().order(stream);
  make_results(arguments, results);
  take(arguments, stream);
  if (!warm_) {
    // Kernels are compiled and products measured now, which a capture does not allow.
    Feed::prepare(std::array{&in_, &out_, &back_});
    run_each(stream);
    warm_ = true;
    return;
  }
  if (!exec_) capture(stream);
  in_.set_addresses(exec_);
  out_.set_addresses(exec_);
  back_.set_addresses(exec_);
  if (&stream != captured_on_) pool_->launched_on(stream);
  BRRR_CUDA(cuGraphLaunch, exec_, stream.handle);
}

void Replay::run_each(cu::CudaStream& stream) {
  in_.launch(stream);
  program_.run_steps();
  out_.launch(stream);
  back_.launch(stream);
}

// What goes wrong in a capture is told with the call, which may be a user's.
void Replay::run_captured(const Step& step) const {
  try {
    step.run();
  } catch (const CudaError&) {
    rethrow_with(program_.graph().nodes[at(step.node)].site);
  } catch (const OutOfMemory&) {
    rethrow_with(program_.graph().nodes[at(step.node)].site);
  } catch (const Error& error) {
    cannot_capture(step, error.what());
  }
}

void Replay::cannot_capture(const Step& step, const std::string& why) const {
  const Node& node = program_.graph().nodes[at(step.node)];
  fail(fmt::format("[{}] cannot be captured in a CUDA graph: {} (at {})", step.name, why,
                   describe(node.site)));
}

// A driver that took offence at a call says so now, and not at the end of the capture.
void Replay::require_capturing(cu::CudaStream& stream, const Step& step) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  BRRR_CUDA(cuStreamIsCapturing, stream.handle, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
  cannot_capture(step, "it does what a graph cannot hold");
}

void Replay::capture_calls(cu::CudaStream& origin) {
  const Plan& plan = program_.plan();
  const Device device = program_.graph().device;
  // One stream a lane; the last one is for results, which nothing in the graph waits for.
  std::vector<std::optional<Stream>> lanes(at(plan.lanes) + 1);
  const auto stream_of = [&](std::size_t lane) -> cu::CudaStream& {
    if (lane == 0) return origin;
    if (!lanes[lane]) {
      lanes[lane].emplace(device);
      pool_->join(static_cast<cu::CudaStream&>(*lanes[lane]->state()));
    }
    return static_cast<cu::CudaStream&>(*lanes[lane]->state());
  };
  std::vector<std::unique_ptr<EventState>> met(program_.graph().nodes.size());
  std::vector<bool> awaited(program_.graph().nodes.size());
  std::vector<int> tail(at(plan.lanes), -1);
  for (const Step& step : program_.steps()) {
    for (int before : plan.after[at(step.node)]) {
      if (plan.lane[at(before)] != plan.lane[at(step.node)]) awaited[at(before)] = true;
    }
    tail[at(plan.lane[at(step.node)])] = step.node;
  }
  for (int last : tail) {
    if (last >= 0) awaited[at(last)] = true;
  }
  for (const Result& result : results_) {
    for (const int writer : result.writers) awaited[at(writer)] = true;
  }

  in_.launch(origin);
  for (const Step& step : program_.steps()) {
    const auto lane = at(plan.lane[at(step.node)]);
    cu::CudaStream& stream = stream_of(lane);
    bool alone = true;  // it waits for its own lane only
    for (int before : plan.after[at(step.node)]) {
      if (at(plan.lane[at(before)]) == lane) continue;
      met[at(before)]->make_wait(stream);
      alone = false;
    }
    {
      const std::optional<StreamGuard> here =
          lane == 0 ? std::optional<StreamGuard>() : std::optional<StreamGuard>(*lanes[lane]);
      const on_cuda::Programmatic early(!program_.options().programmatic ? on_cuda::Early::never
                                        : alone                          ? on_cuda::Early::always
                                                : on_cuda::Early::from_second);
      run_captured(step);
    }
    require_capturing(stream, step);
    if (!awaited[at(step.node)]) continue;
    met[at(step.node)] = cu::make_event(*origin.on, false);
    met[at(step.node)]->record(stream);
  }
  if (!results_.empty()) {
    cu::CudaStream& last = stream_of(at(plan.lanes));
    for (const Result& result : results_) {
      for (const int writer : result.writers) met[at(writer)]->make_wait(last);
    }
    out_.launch(last);
    const auto done = cu::make_event(*origin.on, false);
    done->record(last);
    done->make_wait(origin);
  }
  for (std::size_t lane = 1; lane < tail.size(); ++lane) {
    if (tail[lane] >= 0) met[at(tail[lane])]->make_wait(origin);
  }
  back_.launch(origin);
}

void Replay::capture(cu::CudaStream& stream) {
  const auto start = std::chrono::steady_clock::now();
  pool_ = std::make_unique<cu::CapturePool>(*stream.on);
  cu::begin_capture(*pool_, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  try {
    capture_calls(stream);
  } catch (...) {
    try {
      if (const CUgraph partial = cu::end_capture(*pool_, stream))
        BRRR_CUDA_TRY(cuGraphDestroy, partial);
    } catch (const Error&) {  // the first error is the one to tell
    }
    pool_.reset();
    throw;
  }
  try {
    graph_ = cu::end_capture(*pool_, stream);
    std::size_t count = 0;
    BRRR_CUDA(cuGraphGetNodes, graph_, nullptr, &count);
    std::vector<CUgraphNode> nodes(count);
    BRRR_CUDA(cuGraphGetNodes, graph_, nodes.data(), &count);
    in_.find_nodes(nodes);
    out_.find_nodes(nodes);
    back_.find_nodes(nodes);
    launches_ = static_cast<int>(count);
    BRRR_CUDA(cuGraphInstantiate, &exec_, graph_, 0);
    BRRR_CUDA(cuGraphUpload, exec_, stream.handle);
  } catch (...) {
    if (exec_) BRRR_CUDA_TRY(cuGraphExecDestroy, std::exchange(exec_, nullptr));
    if (graph_) BRRR_CUDA_TRY(cuGraphDestroy, std::exchange(graph_, nullptr));
    pool_.reset();
    throw;
  }
  scratch_bytes_ = pool_->bytes();
  captured_on_ = &stream;
  const auto end = std::chrono::steady_clock::now();
  capture_ms_ = std::chrono::duration<double, std::milli>(end - start).count();
}

}  // namespace

std::unique_ptr<CudaReplay> make_cuda_replay(Program& program) {
  return std::make_unique<Replay>(program);
}

}  // namespace brrr::graph
