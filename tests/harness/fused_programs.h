// Small programs fused and eager: results, what is written in place, and how many kernels remain.
// Results are also within bounds of those in f64 (tests/harness/rounding_bounds.h).
#pragma once

#include <functional>
#include <string>

#include <brrr/graph/compile.h>
#include <brrr/tensor/device.h>

namespace brrr::test {

void check_fused_programs(Device device, Rounding rounding = Rounding::eager);
// Draws, some in transposed order, have eager's bits in each replay.
void check_fused_draws(Device device);
// How many kernels each program becomes, where there is no device to run them.
void count_fused_kernels(Device device);
// On the CPU, where the interpreter runs kernels.
void check_interpreted_programs();
// Products by generated kernels; on the CPU by the library, in kernels of their own.
void check_fused_products(Device device);
// On the CPU, or a device of compute capability 9.0.
void check_fused_tile_products(Device device);
// Calls the programs of both, fused, in f32 and bf16, and then f with the name of each.
void run_fused_programs(Device device, const std::function<void(const std::string& name)>& f);

}  // namespace brrr::test
