// The measured choice: runs the library's algorithms on real operands and takes the fastest, once
// per shape, GPU, driver and library. The result is kept on disk beside the compiled kernels.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <brrr/ops/cuda/matmul_plan.h>

namespace brrr::on_cuda {

// Null when nothing may be measured now (a stream is being captured, memory is out) and nothing is
// on disk.
std::unique_ptr<MatmulPlan> tuned_plan(const MatmulKey& key, const MatmulOperands& operands,
                                       cu::CudaStream& stream);

// The result of a measurement, as stored.
struct Tuned {
  Algorithm algorithm{};
  std::uint8_t pretransposed = pretranspose_none;
  double microseconds = 0;
};

// The text that names a measurement on disk: equal for equal problems on equal machines.
std::string tuning_name(const MatmulKey& key, const std::string& gpu, int driver,
                        std::size_t library, std::size_t workspace_limit);
std::string to_bytes(const Tuned& tuned);
std::optional<Tuned> tuned_from(std::string_view bytes);  // nothing when they are damaged

// One candidate of a measurement.
struct AlgorithmCandidate {
  std::uint8_t pretransposed = pretranspose_none;
  Algorithm algorithm{};
  int offered = 0;          // its place among all that were offered
  double microseconds = 0;  // negative: it failed
};
// Measures every candidate for a problem; the fastest first, and of long products only those that
// came near it. Throws while the stream is being captured.
std::vector<AlgorithmCandidate> measure_candidates(const MatmulKey& key,
                                                   const MatmulOperands& operands,
                                                   cu::CudaStream& stream,
                                                   int most_per_layout = 32);
// `time` gives the microseconds of some runs.
using TimeOfRuns = std::function<double(const AlgorithmCandidate&, int runs)>;
// Launched eagerly, short products are bound by the host. A candidate whose launch costs more host
// time than the cheapest one's, beyond noise, is charged the difference. Kernels in clusters and
// sums in parts cost more.
void add_host_times(std::vector<AlgorithmCandidate>& candidates, const TimeOfRuns& host);
// Sorts candidates by a first look at each. Those that may be the best are then timed interleaved.
// Of long products the best few are timed for as long as the clock takes to settle, and only these
// few are left: the others' times, from a cooler GPU, would look better than they are.
void narrow_down(std::vector<AlgorithmCandidate>& candidates, const TimeOfRuns& time);
// The first offered of the candidates that measure equal to the best, so that processes agree.
const AlgorithmCandidate& choice_of(std::span<const AlgorithmCandidate> candidates);

// Gives the streams on which products were timed back to the driver.
void release_tuning();

}  // namespace brrr::on_cuda
