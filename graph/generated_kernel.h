// The description of a fused step's kernel that `kernels()` returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <brrr/graph/step_time.h>

namespace brrr::core {

struct GeneratedKernel {
  std::vector<std::string> calls;          // "sub", "exp", ...
  std::vector<std::string> reads, writes;  // "%3 f32[64, 128]"
  std::int64_t bytes_read = 0, bytes_written = 0, flops = 0;
  KernelTime predicted;
  int registers = -1;    // of a thread on CUDA, once it ran; -1: unknown
  int local_bytes = -1;  // of a thread: its stack and what spills; -1: unknown
  std::string line;      // of its last call: "train.cpp:12 in train_step"
  std::string source;    // "": not compiled yet, or not kept
};

}  // namespace brrr::core
