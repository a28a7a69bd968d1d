// Choices of a fused step that times decide: which calls run in kernels of their own, whether
// factors of products are copied, and whether the step is fused at all. All candidates compute the
// same values, so where their sums differ in order the choice is kept on disk and made once a
// machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include <brrr/graph/price.h>
#include <brrr/graph/program.h>

namespace brrr::graph {

struct FusionChoice {
  std::map<int, WhyNotFused> apart = {};  // calls, by number
  bool unfused = false;                   // the step is replayed call by call
  bool copies_factors = true;             // as Graph::copies_factors
  std::string text = {};                  // how it was made, for explain()
};

struct ChoiceOptions {
  // Fuses a graph, or throws where a fusion that the user requires is missing.
  std::function<void(Graph&)> fuse;
  ProgramOptions program;
  std::span<const Tensor> arguments;
  const Graph* unfused = nullptr;  // the step in graph mode; null: it must be fused
  // Whether all candidates give the same bits. Else nothing is timed where the choice cannot be
  // kept.
  bool same_bits = false;
  // In place of timing kernels, for tests.
  std::function<std::optional<std::int64_t>(const KernelTimer::Kernel&)> time_of = {};
};

// The calls of fused kernels that take less time in kernels of their own, as far as times of
// kernels tell.
std::map<int, WhyNotFused> choose_apart(const Graph& graph, const ChoiceOptions& options);

// Whether the environment allows it: not with BRRR_MEASURE=off.
bool measures_choices();

// The choice that was made for a graph on this machine before.
std::optional<FusionChoice> kept_choice(const Graph& graph);

// Times what fusion by the model makes of a graph, and what else could be made of it. Nothing that
// the step reads or writes changes.
FusionChoice choose_by_times(const Graph& graph, const ChoiceOptions& options);

}  // namespace brrr::graph
