// Compiles C++ source with the system's compiler ($CXX, else c++) into functions of this process:
// CPU kernels of ops that are registered at run time, and of fused programs. What was compiled once
// is kept on disk (disk_cache.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/dispatch/op_info.h>
#include <brrr/ops/cpu/loops.h>
#include <brrr/ops/jit/disk_cache.h>

namespace brrr::jit {

// The function `entry` of `source`, which is compiled inside of `namespace brrr {` after
// cpu_prelude.inl and scalar.inl. It lives as long as the process. Throws when there is no
// compiler, or it refuses the source.
void* load_cpu_function(const char* entry, std::string_view source);

// The entries of several sources, each rendered with kKernelName as its body's name. Equal sources
// are one kernel. All that are on disk from any program before are loaded from there; the others
// are compiled together.
inline constexpr std::string_view kKernelName = "this_kernel";
std::vector<void*> load_cpu_kernels(std::span<const std::string> sources);

// The name that a function's shared object has on disk.
Hash128 cpu_object_key(std::string_view source);

// The loop of one pointwise op: operands of the type computed in (the first of a select is bool),
// contiguous.
on_cpu::Loop pointwise_loop(const OpInfo& op, DType computed_in);

}  // namespace brrr::jit
