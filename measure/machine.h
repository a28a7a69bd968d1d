// What a measurement ran on: the build, the processor, the GPUs, the libraries, the caches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace brrr::measure {

struct Processor {
  std::string model;
  std::string isa;      // the widest vector instructions: "avx512"
  std::string kernels;  // what the kernels chosen were compiled for: "v3"
  int threads = 0;      // that this process may run on
  int used = 0;         // that brrr's loops use
  std::int64_t memory_bytes = 0;
};

struct Gpu {
  int index = 0;
  std::string name;
  std::int64_t memory_bytes = 0;
  std::string compute_capability;  // "9.0"
  int multiprocessors = 0;
  std::int64_t l2_bytes = 0;
};

struct Library {
  std::string name;
  std::string version;    // empty when it cannot be used
  std::string problem;    // why not, in one line
  std::string file = {};  // that it was loaded from, where that is known
};

struct Cache {
  std::string name;
  std::string path;
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
};

struct Machine {
  std::string tag;   // "nvidia-h200" or "amd-epyc-2": names files of results
  std::string date;  // UTC, "2025-01-31T12:00:00Z"
  std::string version, build_type, compiler, system;
  Processor processor;
  std::vector<Gpu> gpus;
  std::string why_no_cuda;  // one line; empty when there is a GPU
  std::vector<Library> libraries;
  std::vector<Cache> caches;
};

Machine describe_machine();

// The part that needs CUDA's headers; empty in a build without them.
std::vector<Gpu> describe_gpus();
std::vector<Library> describe_cuda_libraries();

}  // namespace brrr::measure
