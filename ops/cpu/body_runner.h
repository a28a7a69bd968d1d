// Fused kernels on the CPU without a compiler, for tests of more programs than can be compiled.
#pragma once

#include <cstdint>
#include <memory>

#include <brrr/ops/jit/body.h>
#include <brrr/ops/jit/cpu_kernel.h>

namespace brrr::on_cpu {

// What runs ranges of a body's elements or rows in place of a generated function.
class BodyRunner {
 public:
  virtual ~BodyRunner() = default;
  virtual void run(const jit::CpuArguments& arguments, std::int64_t begin,
                   std::int64_t end) const = 0;
};
using MakeBodyRunner = std::unique_ptr<BodyRunner> (*)(const jit::Body& body,
                                                       const StridedSpace& reduced,
                                                       const jit::CpuOrder& order);
void set_body_runners(MakeBodyRunner make);  // null: functions are generated
bool has_body_runners();

}  // namespace brrr::on_cpu
