// A program on CUDA: its calls one by one the first time, then as a graph that is launched at once.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::graph {

class Program;

class CudaReplay {
 public:
  virtual ~CudaReplay() = default;
  virtual void run(std::span<const Tensor> arguments, std::vector<Tensor>& results) = 0;
  virtual int launches() const = 0;               // kernels of the captured graph; 0 before
  virtual std::size_t scratch_bytes() const = 0;  // that kernels of the captured graph ask for
  virtual double capture_ms() const = 0;
};

std::unique_ptr<CudaReplay> make_cuda_replay(Program& program);

}  // namespace brrr::graph
