// A description of the machine that a measurement ran on: build, processor, GPUs, libraries,
// caches.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace brrr::measure {

struct Processor {
  std::string model;
  std::string isa;      // the widest vector instructions: "avx512"
  std::string kernels;  // what the selected kernels use: "v3, f32 products: avx512"
  int threads = 0;      // hardware threads available to this process
  int used = 0;         // threads of brrr's loops
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
  std::string version;    // empty if the library cannot be used
  std::string problem;    // why not, in one line
  std::string file = {};  // its path, where known
};

struct Cache {
  std::string name;
  std::string path;
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
  std::string problem;  // why nothing is kept, in one line; empty if entries are, or it is off
  std::vector<std::pair<std::string, std::string>> refused = {};  // entries not used, and why
};

// Where predictions for a device come from.
struct KnownCeilings {
  std::string device;
  std::string date;                      // of the calibration; empty: they are defaults
  std::string why_defaults;              // in one line
  std::int64_t clock_mhz = 0;            // at the calibration; 0: unknown
  std::string software;                  // of the calibration: the driver and libraries
  std::vector<std::string> doubts = {};  // what disturbed it
};

struct Machine {
  std::string tag;   // "nvidia-h200", "amd-epyc-2": the stem of result files
  std::string date;  // UTC, "2025-01-31T12:00:00Z"
  std::string version, build_type, compiler, system;
  Processor processor;
  std::vector<Gpu> gpus;
  std::string why_no_cuda;  // one line; empty if there is a GPU
  std::vector<Library> libraries;
  std::vector<Cache> caches;
  std::vector<KnownCeilings> ceilings;
};

Machine describe_machine();
std::string utc_now();         // as Machine::date
std::int64_t processor_mhz();  // of the first core, now; 0: unknown

// The part that needs CUDA's headers; empty in a build without them.
std::vector<Gpu> describe_gpus();
std::vector<Library> describe_cuda_libraries();

}  // namespace brrr::measure
