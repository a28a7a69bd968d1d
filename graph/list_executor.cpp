// Replay on the CPU: runs one kernel after another. Arguments are read in place, without copies.
#include "brrr/graph/executor.h"
#include "brrr/tensor/cpu_allocator.h"

namespace brrr::graph {
namespace {

class ListExecutor final : public Executor {
 public:
  explicit ListExecutor(const Executable& executable) : run_(executable) {
    const std::vector<Buffer>& buffers = run_.graph.buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i].kind == Buffer::Kind::input)
        inputs_.emplace_back(static_cast<int>(i), buffers[i].input);
    }
  }

  void run(std::span<const Tensor> arguments, std::span<const ResultBlock> results) override {
    for (const auto& [block, argument] : inputs_) {
      void* const data = arguments[argument].data();
      run_.memory.set_address(block, static_cast<char*>(data));
    }
    for (const ResultBlock& result : results)
      run_.memory.set_address(result.block, static_cast<char*>(result.storage->data));
    if (measured_) [[likely]]
      return run_in_order(run_.launches);
    const cpu_memory::Watch watch;
    run_in_order(run_.launches);
    stats_.kernel_bytes = watch.peak();
    measured_ = true;
  }
  Stats stats() const override { return stats_; }

 private:
  Executable run_;
  bool measured_ = false;
  Stats stats_;
  std::vector<std::pair<int, int>> inputs_;  // blocks, and their arguments
};

}  // namespace

std::unique_ptr<Executor> make_list_executor(const Executable& executable) {
  return std::make_unique<ListExecutor>(executable);
}

}  // namespace brrr::graph
