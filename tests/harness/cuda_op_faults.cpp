#include "tests/harness/cuda_op_faults.h"

#include <algorithm>

#include "brrr/graph/compile.h"
#include "brrr/ops/cuda/matmul_plan.h"
#include "brrr/ops/formulas.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"
#include "brrr/ops/random_state.h"
#include "brrr/ops/register_op.h"
#include "brrr/tensor/cuda_api.h"
#include "brrr/tensor/cuda_testing.h"
#include "brrr/tensor/error.h"
#include "brrr/tensor/host_copy.h"
#include "brrr/tensor/runtime.h"

namespace brrr::test {
namespace {

using Tensors = std::vector<Tensor>;

Tensor counted(const Dims& shape, Device device, float step = 1) {
  std::vector<float> values(static_cast<std::size_t>(checked_numel(shape, 4, "counted")));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = step * static_cast<float>(static_cast<int>(i * 7 % 13) - 5);
  return tensor(values, shape, device);
}

// Appends what `f` makes of the tensors.
template <class F>
FaultStep makes(std::vector<std::string> names, F f) {
  return {std::move(names), [f](Tensors& t) {
            Tensor made = f(t);
            t.push_back(std::move(made));
          }};
}

Op scaled_op() {
  static const Op op = [] {
    StructuredOp scaled;
    scaled.cost = cost_of_moving;
    scaled.name = "fault_scaled";
    scaled.attributes = "factor:double";
    scaled.infer = [](const Call& call, OutputSpec* outputs) {
      const Tensor& x = call.input(0);
      outputs[0] = {x.dtype(), x.device(), Dims(x.shape())};
    };
    scaled.cuda_kernel.entry = "fault_scaled";
    scaled.cuda_kernel.source =
        "extern \"C\" __global__ void fault_scaled(const float* in, float* out, double factor) {\n"
        "  out[threadIdx.x] = in[threadIdx.x] * float(factor);\n}\n";
    scaled.cuda_kernel.launch = [](const Call& call, const Tensor*) {
      LaunchConfig launch;
      launch.block[0] = static_cast<unsigned>(call.input(0).numel());
      return launch;
    };
    return register_op(scaled);
  }();
  return op;
}

Tensors two(Device device) { return {counted({96}, device), counted({96}, device, 0.5f)}; }

void add_elementwise(std::vector<FaultWorkload>& all) {
  all.push_back({"add", two, {makes({"add"}, [](const Tensors& t) { return add(t[0], t[1]); })}});
  all.push_back({"strided and broadcast",
                 [](Device device) {
                   return Tensors{counted({5, 7}, device), counted({5, 1}, device, 2)};
                 },
                 {makes({"sub"}, [](const Tensors& t) { return sub(t[0], t[1]); })}});
  all.push_back(
      {"a step of Adam",
       [](Device device) {
         return Tensors{counted({96}, device), counted({96}, device, 0.5f),
                        counted({96}, device, 0), counted({}, device, -0.1f)};
       },
       {makes({"adam_step"}, [](const Tensors& t) {
         return adam_step({t[0], t[1], t[2], t[1], t[3], t[3], t[3], 0.1, 0.1, 0.1, 0})[0];
       })}});
  all.push_back({"a reduction in two kernels",
                 [](Device device) { return Tensors{counted({1 << 18}, device)}; },
                 {makes({"sum"}, [](const Tensors& t) { return sum(t[0]); })}});
}

void add_products_and_scatters(std::vector<FaultWorkload>& all) {
  const auto matrices = [](Device device) {
    return Tensors{counted({6, 5}, device), counted({5, 4}, device)};
  };
  all.push_back({"a shape's first product", matrices, {makes({"matmul"}, [](const Tensors& t) {
                   return matmul(t[0], t[1]);
                 })}});
  all.push_back(
      {"a product whose algorithm is measured", matrices, {makes({"matmul"}, [](const Tensors& t) {
         const MatmulChoiceGuard choice(MatmulChoice::measured);
         return matmul(t[0], t[1]);
       })}});
  all.push_back(
      {"a small product and a row",
       [](Device device) {
         return Tensors{counted({6, 5}, device), counted({5, 4}, device), counted({4}, device, 2)};
       },
       {makes({"affine"}, [](const Tensors& t) {
         const MatmulPrecisionGuard tf32(Precision::tf32);
         return affine(t[0], t[1], t[2]);
       })}});
  all.push_back(
      {"scatter_add",
       [](Device device) {
         std::vector<std::int64_t> index(20);
         for (std::size_t i = 0; i < index.size(); ++i)
           index[i] = static_cast<std::int64_t>(i * i % 10);
         return Tensors{counted({10}, device), tensor(index, {20}, device), counted({20}, device)};
       },
       {makes({"scatter_add"},
              [](const Tensors& t) { return scatter_add(t[0], 0, t[1], t[2]); })}});
  all.push_back({"a registered op", two, {makes({"fault_scaled"}, [](const Tensors& t) {
                   return call_op(scaled_op(), {t[0]}, {2.5})[0];
                 })}});
}

void add_draws_and_copies(std::vector<FaultWorkload>& all) {
  const auto seeded = [](Device device) {
    manual_seed(11);
    return Tensors{counted({100}, device)};
  };
  all.push_back({"random numbers and dropout",
                 seeded,
                 {makes({"rand"},
                        [](const Tensors& t) {
                          return rand({40}, {f32, t[0].device()});
                        }),
                  makes({"dropout"}, [](const Tensors& t) { return dropout(t[0], 0.25); }),
                  {{"next_random_step"}, [](Tensors& t) { next_random_step(t[0].device()); }},
                  makes({"rand"}, [](const Tensors& t) {
                    return rand({8}, {f32, t[0].device()});
                  })}});
  all.push_back({"from the host, over the device, and back",
                 [](Device device) { return Tensors{counted({30000}, device)}; },
                 {makes({"tensor"},
                        [](const Tensors& t) {
                          return counted({50, 700}, t[0].device());
                        }),
                  makes({"copy"}, [](const Tensors& t) { return clone(t[0]); }),
                  makes({"to"}, [](const Tensors& t) { return to(t[1], cpu); })}});
  all.push_back({"an optimizer's step in place",
                 [](Device device) {
                   return Tensors{counted({64}, device), counted({64}, device, 0.25f),
                                  counted({64}, device, 3)};
                 },
                 {{{"mul_"}, [](Tensors& t) { mul_(t[1], 0.5f); }},
                  {{"add_"}, [](Tensors& t) { add_(t[1], t[2]); }},
                  {{"add_"}, [](Tensors& t) { add_(t[0], t[1]); }},
                  {{"copy_"}, [](Tensors& t) { copy_(t[2], t[0]); }}}});
}

void add_steps_and_streams(std::vector<FaultWorkload>& all) {
  // Listed, captured and launched; arguments go in, two results come out, and two calls may run
  // side by side.
  const auto compiled = [](Device device) {
    return Tensors{counted({96}, device), counted({96}, device, 0.5f), counted({96}, device, 3)};
  };
  all.push_back(
      {"a compiled step", compiled, {makes({"compile", "add", "mul"}, [](const Tensors& t) {
         auto step = compile([&](const Tensor& x) {
           const Tensor side = mul(t[1], 2);
           const Tensor main = add(add(x, t[1]), t[2]);
           return std::pair(add(main, side), side);
         });
         for (int i = 0; i < 2; ++i) step(t[0]);
         const auto [first, second] = step(t[2]);
         return add(first, second);
       })}});
  all.push_back({"two streams", two, {makes({"add", "cuda"}, [](const Tensors& t) {
                   const Stream stream(t[0].device());
                   stream.wait(Stream::default_of(t[0].device()).record());
                   const StreamGuard guard(stream);
                   Tensor made = add(add(t[0], t[1]), t[1]);
                   Stream::default_of(t[0].device()).wait(stream.record());
                   return made;
                 })}});
}

std::vector<FaultWorkload> make_workloads() {
  std::vector<FaultWorkload> all;
  add_elementwise(all);
  add_products_and_scatters(all);
  add_draws_and_copies(all);
  add_steps_and_streams(all);
  return all;
}

Bits bits_of(const Tensors& tensors) {
  Bits all;
  for (const Tensor& tensor : tensors) {
    all.emplace_back(tensor.bytes());
    copy_to_host(all.back().data(), tensor);
  }
  return all;
}

}  // namespace

const std::vector<FaultWorkload>& fault_workloads() {
  static const auto* all = new std::vector<FaultWorkload>(make_workloads());
  return *all;
}

std::vector<Bits> clean_run(const FaultWorkload& workload, Device device) {
  Tensors tensors = workload.make(device);
  std::vector<Bits> bits = {bits_of(tensors)};
  for (const FaultStep& step : workload.steps) {
    step.run(tensors);
    bits.push_back(bits_of(tensors));
  }
  return bits;
}

std::vector<std::pair<std::string_view, long>> calls_of(const FaultWorkload& workload,
                                                        Device device) {
  Tensors tensors = workload.make(device);
  synchronize(device);
  cu::count_calls(true);
  for (const FaultStep& step : workload.steps) step.run(tensors);
  synchronize(device);
  auto calls = cu::call_counts();
  cu::count_calls(false);
  return calls;
}

FaultOutcome faulted_run(const FaultWorkload& workload, Device device, std::string_view call,
                         long k, int code, const std::vector<Bits>& clean) {
  FaultOutcome outcome;
  const auto expect = [&](bool good, const std::string& otherwise) {
    if (!good && outcome.problem.empty()) outcome.problem = otherwise;
  };
  Tensors tensors = workload.make(device);
  synchronize(device);
  const auto attempt = [&](const FaultStep& step, const Bits& before) {
    try {
      step.run(tensors);
    } catch (const Error& error) {
      cu::clear_faults();
      outcome.thrown = true;
      const std::string text = error.what();
      const bool memory = dynamic_cast<const OutOfMemory*>(&error) != nullptr;
      expect(memory || dynamic_cast<const CudaError*>(&error), "not a typed error: " + text);
      expect(text.find(memory ? "out of memory on cuda" : call) != std::string::npos,
             "does not name the call: " + text);
      expect(std::ranges::any_of(
                 step.names,
                 [&](const std::string& name) { return text.starts_with("[" + name + "]"); }),
             "does not name the op: " + text);
      expect(bits_of(tensors) == before, "changed what was there: " + text);
      step.run(tensors);
    }
  };
  cu::fail_call(call, k, code);
  for (std::size_t i = 0; i < workload.steps.size(); ++i) attempt(workload.steps[i], clean[i]);
  attempt({{"synchronize"}, [&](Tensors&) { synchronize(device); }}, clean.back());
  cu::clear_faults();
  expect(bits_of(tensors) == clean.back(),
         "the results differ from those of a run without a fault");
  return outcome;
}

std::pair<int, int> codes_of(std::string_view call) {
  if (call.starts_with("nvrtc")) return {NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_INTERNAL_ERROR};
  if (call.starts_with("cublas")) return {CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INTERNAL_ERROR};
  return {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
}

void release_kept() {
  on_cuda::release_matmul();
  release_random_state();
}

}  // namespace brrr::test
