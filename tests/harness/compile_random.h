// Random programs eagerly and compiled, bit for bit over three calls: views, writes in place to
// arguments, captured tensors, temporaries and views of them, draws, several results, in half of
// them gradients and an update. Each graph is verified after each pass, each plan checked, and its
// calls run in an order drawn among those that it allows. A fused call of f32 or halves is also
// compared with one in f64 (tests/harness/rounding_bounds.h).
#pragma once

#include <cstdint>
#include <string>

#include <brrr/graph/compile.h>
#include <brrr/tensor/device.h>

namespace brrr::test {

struct RandomOutcome {
  std::string problem;  // "" when there is none
  std::string text;     // the program, minimized
  long steps = 0;
  bool gradients = false, writes = false;
};
RandomOutcome run_random_program(std::uint64_t seed, Device device, bool with_text = false,
                                 Mode mode = Mode::graph, bool rematerialized = false);

// Checks random programs: BRRR_SEED=n one seed, whose program is printed; BRRR_PROGRAMS=n so many,
// from that seed on if there is one; otherwise `usual`. Prints the
// number of each kind.
// `rematerialized`: under policies that differ from seed to seed, and calls in random order with
// any set of values computed again.
void check_random_programs(Device device, std::uint64_t usual, Mode mode = Mode::graph,
                           bool rematerialized = false);

}  // namespace brrr::test
