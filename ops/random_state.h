// What lies behind random numbers on each device.
#pragma once

namespace brrr {

// Gives back the memory of the state on CUDA: before the runtime is shut down. The next draw starts
// again at the seed, step 0, place 0.
void release_random_state();

}  // namespace brrr
