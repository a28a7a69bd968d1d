// The levels of the instruction set that CPU kernels use. All levels give the same bits.
#pragma once

#include <string>
#include <string_view>

namespace brrr::on_cpu {

// The value of BRRR_ISA, which excludes levels.
std::string_view asked_isa();

// The level that kernels are compiled for at run time: that of the stamped loops, or "v4", which
// has AVX-512, where they have "v3" and the machine has it.
std::string_view generated_isa();

// What all kernels use, for reports: "v3, generated kernels: v4, small f32 products: avx512".
std::string selected_isas();

}  // namespace brrr::on_cpu
