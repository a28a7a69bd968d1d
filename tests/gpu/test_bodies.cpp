// Bodies that eager never makes, on the device against the CPU: several passes over rows that stay
// in registers or are read again, operands of rows and columns, gathered elements, draws, checks.
#include "brrr/tensor/error.h"
#include "tests/gpu/delay.h"
#include "tests/harness/catch.h"
#include "tests/harness/jit_cuda_bodies.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

TEST_CASE("bodies of many levels on CUDA give the results of f64", "[gpu][bodies][sanitized]") {
  for (const DType dtype : {f32, f64}) {
    for (const Case& c : cases_with_references(dtype)) {
      INFO(c.body.name << " " << name_of(dtype) << " " << c.dims[0] << " x " << c.dims[1]);
      std::vector<Tensor> outputs = run_on_cuda(c, kGpu);
      for (Tensor& output : outputs) output = to(output, cpu);
      CHECK(error_of(c, outputs) <= std::max(c.tolerance, dtype == f32 ? 2e-6 : 1e-12));
    }
  }
}

TEST_CASE("sums of columns by blocks of clusters give the results of f64", "[gpu][bodies]") {
  int in_clusters = 0;
  for (const auto& [rows, cols] : {std::pair{2, 8},
                                   {17, 3},
                                   {255, 100},
                                   {1000, 24},
                                   {1001, 1},
                                   {4097, 1000},
                                   {9000, 512},
                                   {700, 4096}}) {
    for (const DType dtype : {f32, bf16}) {
      Case c = bias_gradient_case(dtype, rows, cols);
      INFO(name_of(dtype) << " " << rows << " x " << cols);
      const Scheduled s = schedule_of(c, c.inputs, outputs_of(c, cpu), shape_of(kGpu));
      in_clusters += s.schedule.cluster > 1;
      const Tensor sums = to(run_on_cuda(c, kGpu)[0], cpu);
      CHECK(error_of(c, {sums}) <= (dtype == f32 ? 2e-6 : 4e-3));
      CHECK(values_of(to(run_on_cuda(c, kGpu)[0], cpu)) == values_of(sums));
    }
  }
  if (shape_of(kGpu).cluster > 1) CHECK(in_clusters >= 6);
}

TEST_CASE("sums of columns that are stored as well give the results of f64", "[gpu][bodies]") {
  for (const auto& [rows, cols] :
       {std::pair{2048, 1024}, {4001, 520}, {1025, 1032}, {65537, 24}, {3000, 4096}, {40000, 33}}) {
    for (const DType dtype : {f32, bf16}) {
      const Case c = bias_gradient_case(dtype, rows, cols, true);
      INFO(name_of(dtype) << " " << rows << " x " << cols);
      const Scheduled s = schedule_of(c, c.inputs, outputs_of(c, cpu), shape_of(kGpu));
      CHECK(s.schedule.parts > 1);
      CHECK(s.schedule.cluster == 1);
      const std::vector<Tensor> outputs = run_on_cuda(c, kGpu);
      const std::vector<Tensor> here = {to(outputs[0], cpu), to(outputs[1], cpu)};
      CHECK(error_of(c, here) <= (dtype == f32 ? 2e-6 : 4e-3));
      CHECK(values_of(to(run_on_cuda(c, kGpu)[0], cpu)) == values_of(here[0]));
    }
  }
}

TEST_CASE("generated draws, coordinates and checks on CUDA are those of the CPU",
          "[gpu][bodies][sanitized]") {
  for (const bool by_halves : {false, true}) {
    const Case dropout = dropout_case(f32, 37, 53, by_halves);
    const std::vector<Tensor> here = run_on_cpu(dropout), there = run_on_cuda(dropout, kGpu);
    for (std::size_t i = 0; i < here.size(); ++i)
      CHECK(values_of(here[i]) == values_of(to(there[i], cpu)));
  }

  const Case gather = gather_case(f32, 16, 24, false);
  const std::vector<Tensor> clamped = run_on_cuda(gather, kGpu);
  CHECK_THROWS_WITH(synchronize(kGpu),
                    Catch::Contains("[gather] expected indices in [0, 11), got 11 at position 3"));
  synchronize(kGpu);
  CHECK(error_of(gather, {to(clamped[0], cpu)}) == 0);
}
