// Programs over ops in which every call into CUDA fails once. The same ones run on the fake driver,
// cold, and on a GPU.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::test {

// One op or a few: the last call writes to a tensor of the list, or appends its result.
struct FaultStep {
  std::vector<std::string> names;  // of the ops that an error may name
  std::function<void(std::vector<Tensor>& tensors)> run;
};
struct FaultWorkload {
  std::string name;
  std::function<std::vector<Tensor>(Device device)> make;
  std::vector<FaultStep> steps;
};
const std::vector<FaultWorkload>& fault_workloads();

using Bits = std::vector<std::vector<unsigned char>>;

// A run without a fault: all tensors' bits before each step and at the end.
std::vector<Bits> clean_run(const FaultWorkload& workload, Device device);
// Every CUDA call of the steps, with its count.
std::vector<std::pair<std::string_view, long>> calls_of(const FaultWorkload& workload,
                                                        Device device);

struct FaultOutcome {
  std::string problem;  // "": none
  bool thrown = false;
};
// The k-th such call of the steps fails. A step that throws must change nothing, name the op and
// the call, and succeed at the second try.
FaultOutcome faulted_run(const FaultWorkload& workload, Device device, std::string_view call,
                         long k, int code, const std::vector<Bits>& clean);

// Two error codes of the library of `call`; the first one means out of memory.
std::pair<int, int> codes_of(std::string_view call);

// Releases the CUDA memory that ops cache between calls.
void release_kept();

}  // namespace brrr::test
