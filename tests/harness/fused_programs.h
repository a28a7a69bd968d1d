// Small programs fused and eager: results, what is written in place, and how many kernels remain.
#pragma once

#include <brrr/tensor/device.h>

namespace brrr::test {

void check_fused_programs(Device device);
// Products by generated kernels.
void check_fused_products(Device device);

}  // namespace brrr::test
