// Epilogues of matmul_tiles.cu written by hand, in the form in which a generator writes them.
#pragma once

#include <cstdint>
#include <string>

#include <brrr/ops/jit/render.h>
#include <brrr/ops/jit/tiles.h>

namespace brrr::testing {

// The same with these staged tensors transposed, as bits.
inline std::string with_transposed(std::string text, unsigned inputs, unsigned outputs) {
  const std::string flags = "kTransposedInputs = 0, kTransposedOutputs = 0;";
  return text.replace(text.find(flags), flags.size(),
                      "kTransposedInputs = " + std::to_string(inputs) +
                          ", kTransposedOutputs = " + std::to_string(outputs) + ";");
}

inline constexpr const char* kPlain = R"(struct Epilogue {
  typedef Result Staged;
  static constexpr int kInputs = 0, kOutputs = kStaged;
  static constexpr u32 kTransposedInputs = 0, kTransposedOutputs = 0;
  Result* d;
  i64 row_stride, col_stride, outer_stride, inner_stride;
  i32 inner_batches;
  struct Columns {};
  BRRR_SCALAR_FN Columns columns(i32, i32, i32) const { return {}; }
  BRRR_SCALAR_FN void apply(i32 batch, i32 row, i32 col, i32 count, const Columns&,
                            const float (&sums)[2], const float (*)[2],
                            float (*outputs)[2]) const {
    if constexpr (kStaged) {
      outputs[0][0] = sums[0];
      outputs[0][1] = sums[1];
    } else {
      const i32 outer = batch / inner_batches, inner = batch - outer * inner_batches;
      Result* to = d + (outer * outer_stride + inner * inner_stride + row * row_stride);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (i < count) to[(col + i) * col_stride] = narrow<Result>(sums[i]);
    }
  }
};
)";

// Stores the sums in D.
struct PlainEpilogue {
  jit::TileEpilogue epilogue;
  struct Arguments {
    void* d;
    std::int64_t row_stride, col_stride;
    std::int64_t outer_stride, inner_stride;  // between matrices of the two batch dimensions
    std::int32_t inner_batches;
  } arguments;
};
inline PlainEpilogue plain_epilogue(const jit::MatrixProduct& p, DType result, void* d) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(d) % 16 == 0;
  const bool stages = can_stage(p, result, p.d, aligned);
  PlainEpilogue plain;
  plain.epilogue.text = jit::pieces::typedef_of(result, "Result") +
                        "constexpr bool kStaged = " + (stages ? "true" : "false") + ";\n" +
                        with_transposed(kPlain, 0, stages && is_staged_transposed(p.d));
  plain.epilogue.staged = result;
  if (stages) plain.epilogue.outputs.push_back(p.d);
  const int rank = p.batch.size();
  plain.arguments = {d,
                     p.d.row,
                     p.d.col,
                     rank > 1 ? p.d.batch[0] : 0,
                     rank > 0 ? p.d.batch[rank - 1] : 0,
                     static_cast<std::int32_t>(rank > 0 ? p.batch[rank - 1] : 1)};
  return plain;
}

// Two outputs: pre = sum + bias of the column, which the backward pass reads, and gelu_tanh(pre).
inline constexpr const char* kBiasGelu = R"(
struct Epilogue {
  typedef Element Staged;
  static constexpr int kInputs = 0, kOutputs = 2;
  static constexpr u32 kTransposedInputs = 0, kTransposedOutputs = 0;
  const Element* bias;
  struct Columns {
    float bias[2];
  };
  BRRR_SCALAR_FN Columns columns(i32, i32 col, i32 count) const {
    Columns columns = {};
    if (count > 0) columns.bias[0] = widen(bias[col]);
    if (count > 1) columns.bias[1] = widen(bias[col + 1]);
    return columns;
  }
  BRRR_SCALAR_FN void apply(i32, i32, i32, i32, const Columns& columns, const float (&sums)[2],
                            const float (*)[2], float (*outputs)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float a = rounded<Element>(sums[i] + columns.bias[i]);
      outputs[0][i] = a;
      outputs[1][i] = over(a, 1.0f + exp(-1.59576912160573071176f * a * (1.0f + a * a * 0.044715f)));
    }
  }
};
)";

// d = sum * gelu_tanh'(pre): the input gradient of the product after a gelu.
inline constexpr const char* kGeluGradient = R"(
struct Epilogue {
  typedef Element Staged;
  static constexpr int kInputs = 1, kOutputs = 1;
  static constexpr u32 kTransposedInputs = 0, kTransposedOutputs = 0;
  const Element* unused;
  struct Columns {};
  BRRR_SCALAR_FN Columns columns(i32, i32, i32) const { return {}; }
  BRRR_SCALAR_FN void apply(i32, i32, i32, i32, const Columns&, const float (&sums)[2],
                            const float (*inputs)[2], float (*outputs)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x = inputs[0][i], x2 = x * x;
      const float s = over(1.0f, 1.0f + exp(-1.59576912160573071176f * x * (1.0f + x2 * 0.044715f)));
      const float slope = 1.59576912160573071176f * (1.0f + x2 * 0.134145f);
      outputs[0][i] = sums[i] * (s + x * s * (1.0f - s) * slope);
    }
  }
};
)";

// d = sum + residual, where the residual may be d itself.
inline constexpr const char* kResidual = R"(
struct Epilogue {
  typedef Element Staged;
  static constexpr int kInputs = 1, kOutputs = 1;
  static constexpr u32 kTransposedInputs = 0, kTransposedOutputs = 0;
  const Element* unused;
  struct Columns {};
  BRRR_SCALAR_FN Columns columns(i32, i32, i32) const { return {}; }
  BRRR_SCALAR_FN void apply(i32, i32, i32, i32, const Columns&, const float (&sums)[2],
                            const float (*inputs)[2], float (*outputs)[2]) const {
    outputs[0][0] = sums[0] + inputs[0][0];
    outputs[0][1] = sums[1] + inputs[0][1];
  }
};
)";

// The sums, and those of the lines of A: the gradients of a weight and of a bias.
inline constexpr const char* kWithLineSums = R"(
struct Epilogue {
  typedef Element Staged;
  static constexpr int kInputs = 0, kOutputs = 1;
  static constexpr u32 kTransposedInputs = 0, kTransposedOutputs = 0;
  Element* of_lines;
  struct Columns {};
  BRRR_SCALAR_FN Columns columns(i32, i32, i32) const { return {}; }
  BRRR_SCALAR_FN void apply(i32, i32, i32, i32, const Columns&, const float (&sums)[2],
                            const float (*)[2], float (*outputs)[2]) const {
    outputs[0][0] = sums[0];
    outputs[0][1] = sums[1];
  }
  typedef float Sum;
  static BRRR_SCALAR_FN Sum identity() { return 0; }
  static BRRR_SCALAR_FN Sum map(float x) { return x; }
  static BRRR_SCALAR_FN Sum combine(Sum a, Sum b) { return a + b; }
  BRRR_SCALAR_FN void store_line(i32 line, Sum joined, i32) const {
    of_lines[line] = narrow<Element>(joined);
  }
};
)";

}  // namespace brrr::testing
