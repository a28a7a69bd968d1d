// Matrix products that are ready to run: descriptors, an algorithm, and how much workspace it
// takes. A plan is made once per key and kept for the life of the process, so that one shape has
// one algorithm and the same bits.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <brrr/ops/cuda/matmul_layout.h>
#include <brrr/tensor/cuda_runtime.h>

namespace brrr::on_cuda {

// Which operands are first copied so that the summed dimension is adjacent in memory, the only
// layout that TF32's tensor core instructions read; the library's own way around it costs half the
// speed.
enum Pretransposed : std::uint8_t { pretranspose_none = 0, pretranspose_x = 1, pretranspose_y = 2 };

struct MatmulOperands {
  const void* x = nullptr;
  const void* y = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;  // of d's rows, where the key has it as epilogue
};

struct DestroyLibraryObject {
  void operator()(cublasLtMatmulDescOpaque_t* object) const;
  void operator()(cublasLtMatrixLayoutOpaque_t* object) const;
  void operator()(cublasLtMatmulPreferenceOpaque_t* object) const;
};
template <class T>
using LibraryObject = std::unique_ptr<T, DestroyLibraryObject>;

// The library's objects for one problem.
struct MatmulDescriptors {
  explicit MatmulDescriptors(const MatmulKey& key);

  LibraryObject<cublasLtMatmulDescOpaque_t> operation;
  LibraryObject<cublasLtMatrixLayoutOpaque_t> x, y, d;
};

struct Algorithm {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace = 0;
};

struct MatmulPlan {
  MatmulPlan(const MatmulKey& asked, std::uint8_t operands_to_transpose, cu::DeviceState& device);

  MatmulKey key;  // as asked for
  std::uint8_t pretransposed;
  MatmulKey inner;  // what the library is given once operands have been transposed
  MatmulDescriptors descriptors;
  Algorithm algorithm{};
  cu::DeviceState* on;  // another one once CUDA was shut down and started again
  cublasLtHandle_t library;
  // The bias's address is written into the descriptors: locked until the library has read them.
  mutable std::mutex bias;
};

// The key of the same problem with operands transposed.
MatmulKey pretransposed_key(const MatmulKey& key, std::uint8_t pretransposed);
// Bytes of the transposed copy of one operand, pretranspose_x or pretranspose_y.
std::size_t pretransposed_bytes(const MatmulKey& key, std::uint8_t which);

// Memory for the transposed copies of x and y; null for an operand that is not transposed.
struct TransposedCopies {
  TransposedCopies(const MatmulKey& key, std::uint8_t pretransposed);

  Tensor memory[2];
  void* data[2] = {};
};

cublasLtHandle_t matmul_library(cu::DeviceState& device);

// The algorithms that the library offers, best first by its own estimate, each once; with `widely`
// for several limits of workspace. Empty if it offers none.
std::vector<Algorithm> offered_algorithms(cublasLtHandle_t library, const MatmulKey& key,
                                          const MatmulDescriptors& descriptors, int most,
                                          bool widely);

// The plan for a key, made now if there is none. `operands` are what a measurement runs on.
const MatmulPlan& plan_for(const MatmulKey& key, const MatmulOperands& operands,
                           cu::CudaStream& stream);

// Enqueues the product. Steady state: allocates nothing, unless operands are pretransposed.
void run(const MatmulPlan& plan, const MatmulOperands& operands, cu::CudaStream& stream);
// The same with memory given. Returns the library's status; everything else that fails throws.
cublasStatus_t run_with(const MatmulPlan& plan, const MatmulOperands& operands,
                        const TransposedCopies& copies, void* workspace, cu::CudaStream& stream);

// Drops every plan and frees workspaces and the library's handles, before the runtime is shut down.
// No product may be in flight on any thread, and no graph with one may be replayed
// after it.
void release_matmul();

}  // namespace brrr::on_cuda
