// Compares a replay with an eager call of its function on the same state (CompileOptions::verify).
//
// `run_eagerly` copies the step's state, calls the function, keeps what it gives and restores the
// state; then the step is replayed; `compare` throws where the two differ. Only then, or where
// rounding hides small differences, the traced calls run once more, one by one, to find the first
// that differs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

// The traced calls of an entry that is yet to be verified, without references to captured tensors,
// which would count as the caller's.
struct TracedCalls {
  Graph graph;
  std::vector<bool> live;  // whether a result or the state depends on a call

  explicit TracedCalls(const Graph& traced);
};

class ReplayCheck {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor> arguments)>;

  // `planned`: the program's graph, with the captured tensors. `exact`: the replay has eager's
  // bits.
  ReplayCheck(std::string name, std::shared_ptr<const TracedCalls> traced, const Graph& planned,
              std::span<const Tensor> arguments, bool exact);
  ~ReplayCheck();
  ReplayCheck(const ReplayCheck&) = delete;
  ReplayCheck& operator=(const ReplayCheck&) = delete;

  void run_eagerly(const Function& function);
  // Whether this thread runs a function eagerly for a check.
  static bool on_this_thread();
  // Throws a VerifyError, with the state as it was before, if the replay gave something else.
  void compare(std::span<const Tensor> results);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace brrr::graph
