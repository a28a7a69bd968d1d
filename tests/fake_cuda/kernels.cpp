#include "tests/fake_cuda/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "brrr/ops/jit/geometry.h"
#include "brrr/tensor/cuda_faults.h"
#include "tests/fake_cuda/small_product.h"

namespace brrr::testing {
namespace {

template <class T>
T* pointer(const FakeLaunch& launch, int i) {
  return launch.argument<T*>(i);
}

// A flat kernel: out, then the operands, then the number of elements.
template <class Out, class F>
void define_flat(FakeCuda& fake, const char* name, std::vector<std::size_t> operands, F element) {
  const int last = static_cast<int>(operands.size()) + 1;
  operands.insert(operands.begin(), 8);
  operands.push_back(8);
  fake.define_kernel(name, operands, [=](const FakeLaunch& launch) {
    Out* out = pointer<Out>(launch, 0);
    for (std::int64_t i = 0; i < launch.argument<std::int64_t>(last); ++i)
      out[i] = element(launch, i);
  });
}

struct Scatter {  // as scatter.cu has it
  float* out;
  const float* source;
  const std::int64_t* index;
  std::int64_t places, bound, out_stride, source_stride, index_stride, position_stride;
};

// As boundary_copies.cu has it.
struct FedPart {
  const char* from;
  char* to;
  std::int64_t bytes;
};

void define_elementwise(FakeCuda& fake) {
  const auto in = [](const FakeLaunch& l, int operand, std::int64_t i) {
    return pointer<const float>(l, operand)[i];
  };
  define_flat<float>(fake, "copy_f32_f32", {8},
                     [=](const FakeLaunch& l, std::int64_t i) { return in(l, 1, i); });
  define_flat<float>(fake, "add_f32", {8, 8}, [=](const FakeLaunch& l, std::int64_t i) {
    return in(l, 1, i) + in(l, 2, i);
  });
  define_flat<float>(fake, "mul_f32", {8, 4}, [=](const FakeLaunch& l, std::int64_t i) {
    return in(l, 1, i) * l.argument<float>(2);
  });
  define_flat<bool>(fake, "ge_f32", {8, 4}, [=](const FakeLaunch& l, std::int64_t i) {
    return in(l, 1, i) >= l.argument<float>(2);
  });
  define_flat<float>(fake, "where_f32", {8, 8, 4}, [=](const FakeLaunch& l, std::int64_t i) {
    return pointer<const bool>(l, 1)[i] ? in(l, 2, i) : l.argument<float>(3);
  });
  define_flat<std::int64_t>(fake, "add_i64", {8, 8}, [=](const FakeLaunch& l, std::int64_t i) {
    return pointer<const std::int64_t>(l, 1)[i] + l.argument<std::int64_t>(2);
  });
  // Outputs, operands, the rate, then three weights, a decay of 0 and the number of elements.
  fake.define_kernel("adam_step_f32", {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 8},
                     [=](const FakeLaunch& l) {
                       const float rate = in(l, 9, 0), eps = l.argument<float>(12);
                       for (std::int64_t i = 0; i < l.argument<std::int64_t>(14); ++i) {
                         const float g = in(l, 6, i), m = in(l, 4, i), v = in(l, 5, i);
                         const float mean = m + l.argument<float>(10) * (g - m);
                         const float square = v + l.argument<float>(11) * (g * g - v);
                         const float root = std::sqrt(square / in(l, 8, 0)) + eps;
                         pointer<float>(l, 0)[i] = in(l, 3, i) - mean / (root * in(l, 7, 0)) * rate;
                         pointer<float>(l, 1)[i] = mean;
                         pointer<float>(l, 2)[i] = square;
                       }
                     });
  fake.define_kernel("sub_f32", {8, 8, 8, sizeof(jit::Geometry)}, [](const FakeLaunch& l) {
    const auto g = l.argument<jit::Geometry>(3);
    for (std::int64_t row = 0; row < g.size[0]; ++row) {
      for (std::int64_t column = 0; column < g.size[1]; ++column) {
        const auto at = [&](int k) { return row * g.stride[k][0] + column * g.stride[k][1]; };
        pointer<float>(l, 0)[at(0)] =
            pointer<const float>(l, 1)[at(1)] - pointer<const float>(l, 2)[at(2)];
      }
    }
  });
}

void define_indexed(FakeCuda& fake) {
  // With a threshold booleans, else floats.
  fake.define_kernel("draw", {8, 8, 4, 4, 8}, [](const FakeLaunch& l) {
    const auto* state = pointer<const std::int64_t>(l, 1);
    const auto place = l.argument<std::uint32_t>(2), threshold = l.argument<std::uint32_t>(3);
    for (std::int64_t i = 0; i < l.argument<std::int64_t>(4); ++i) {
      const auto mixed = static_cast<std::uint64_t>(state[0] * 31 + state[1] * 17 + place * 7 + i);
      const std::uint64_t drawn = mixed * 2654435761u % 1024;
      if (threshold > 0) {
        pointer<bool>(l, 0)[i] = drawn * 64 < threshold;
      } else {
        pointer<float>(l, 0)[i] = static_cast<float>(drawn) / 1024;
      }
    }
  });
  fake.define_kernel(
      "scatter_serial", {sizeof(Scatter), sizeof(jit::Geometry), sizeof(cu::FaultSink)},
      [](const FakeLaunch& l) {
        const auto s = l.argument<Scatter>(0);
        for (std::int64_t j = 0; j < s.places; ++j)
          s.out[s.index[j * s.index_stride] * s.out_stride] += s.source[j * s.source_stride];
      });
  fake.define_kernel("fault_scaled", {8, 8, 8}, [](const FakeLaunch& l) {
    for (unsigned i = 0; i < l.block[0]; ++i) {
      pointer<float>(l, 1)[i] =
          pointer<const float>(l, 0)[i] * static_cast<float>(l.argument<double>(2));
    }
  });
}

void define_sums(FakeCuda& fake) {
  // A sum of everything: main leaves one partial sum for each row of blocks, join adds them.
  const std::size_t geometry = sizeof(jit::Geometry);
  fake.define_kernel("sum_f32", {8, 8, 8, geometry, geometry, 8, 8}, [](const FakeLaunch& l) {
    const auto reduced = l.argument<jit::Geometry>(4);
    const auto elements = l.argument<std::int64_t>(6);
    const std::int64_t part = l.argument<std::int64_t>(5) * (elements / reduced.count);
    for (unsigned y = 0; y < l.grid[1]; ++y) {
      float sum = 0;
      for (std::int64_t i = y * part; i < std::min(elements, (y + 1) * part); ++i)
        sum += pointer<const float>(l, 1)[i];
      pointer<float>(l, 2)[y] = sum;
    }
  });
  fake.define_kernel("sum_f32_join", {8, 8, geometry, 4, 8}, [](const FakeLaunch& l) {
    float sum = 0;
    for (int i = 0; i < l.argument<std::int32_t>(3); ++i) sum += pointer<const float>(l, 1)[i];
    *pointer<float>(l, 0) = sum;
  });
}

void define_copies_at_edges(FakeCuda& fake) {
  for (const char* edge : {"copy_arguments", "copy_results", "write_back_arguments"}) {
    fake.define_kernel(edge, {16 * sizeof(FedPart)}, [](const FakeLaunch& l) {
      const auto* parts = static_cast<const FedPart*>(l.arguments[0]);
      for (unsigned i = 0; i < l.grid[1]; ++i) {
        if (parts[i].bytes > 0)
          std::memcpy(parts[i].to, parts[i].from, static_cast<std::size_t>(parts[i].bytes));
      }
    });
  }
}

}  // namespace

void define_kernels(FakeCuda& fake) {
  define_small_product(fake);
  define_elementwise(fake);
  define_indexed(fake);
  define_sums(fake);
  define_copies_at_edges(fake);
}

}  // namespace brrr::testing
