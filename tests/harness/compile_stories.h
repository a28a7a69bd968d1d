// Scenarios of several calls, run eagerly and compiled; their logs must be equal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include <brrr/autograd/autograd.h>

namespace brrr::test {

using Lines = std::vector<std::string>;
using Story = std::function<void(Mode mode, Lines& lines)>;

struct Named {
  const char* name;
  Story run;
};

inline void check_stories(const std::vector<Named>& stories) {
  for (const auto& [name, run] : stories) {
    INFO(name);
    Lines eager, graph;
    manual_seed(3);
    run(Mode::eager, eager);
    manual_seed(3);
    run(Mode::graph, graph);
    CHECK(eager.size() > 1);
    CHECK(graph == eager);
  }
}

inline Tensor leaf(std::uint64_t seed, const Dims& shape = {3}) {
  return requires_grad_(noise(shape, seed));
}
inline Tensor input(int call) { return noise({3}, static_cast<std::uint64_t>(1000 + call)); }

inline CompileOptions in(Mode mode) { return {.mode = mode, .frozen_rate = OnFrozenRate::ignore}; }

}  // namespace brrr::test
