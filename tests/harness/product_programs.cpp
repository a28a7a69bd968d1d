#include "tests/harness/product_programs.h"

#include "brrr/ops/functions.h"

namespace brrr::test {
const std::vector<Program> kProducts = {
    {"an activation of a layer",
     {{33, 40}, {40, 24}, {24}},
     1,
     [](const Tensors& a) { return Tensors{gelu_tanh(affine(a[0], a[1], a[2]))}; }},
    {"a layer whose sum is also returned, and a residual",
     {{64, 64}, {64, 32}, {32}, {64, 32}},
     1,
     [](const Tensors& a) {
       const Tensor x = affine(a[0], a[1], a[2]);
       return Tensors{x, tanh(x) + a[3]};
     }},
    {"batches, scaled by columns and rows",
     {{3, 20, 16}, {3, 16, 18}, {18}, {20, 1}},
     1,
     [](const Tensors& a) { return Tensors{matmul(a[0], a[1]) * a[2] + a[3]}; }},
    {"transposed factors and a transposed result",
     {{48, 32}, {24, 48}, {24, 32}},
     1,
     [](const Tensors& a) {
       const Tensor product = matmul(transpose(a[0], 0, 1), transpose(a[1], 0, 1));
       return Tensors{transpose(product, 0, 1) * 2.0 + a[2]};
     }},
    {"rows of a batch by one matrix",
     {{4, 7, 16}, {16, 12}, {4, 7, 12}},
     1,
     [](const Tensors& a) { return Tensors{relu(matmul(a[0], a[1])) * a[2]}; }},
    {"what two products read is computed in both",
     {{64, 32}, {64, 48}, {32, 24}},
     1,
     [](const Tensors& a) {
       const Tensor g = exp(a[0]);
       return Tensors{matmul(transpose(g, 0, 1), a[1]), matmul(g, a[2])};
     }},
    {"what two products read is made once if it takes long",
     {{64, 32}, {64, 48}, {32, 24}},
     2,
     [](const Tensors& a) {
       const Tensor g = gelu_tanh(a[0]);
       return Tensors{matmul(transpose(g, 0, 1), a[1]), matmul(g, a[2])};
     }},
    {"a product of two products",
     {{16, 24}, {24, 20}, {20, 8}},
     2,
     [](const Tensors& a) { return Tensors{sin(matmul(cos(matmul(a[0], a[1])), a[2]))}; }},
    {"a long sum",
     {{16, 1000}, {1000, 16}},
     1,
     [](const Tensors& a) { return Tensors{abs(matmul(a[0], a[1]))}; }},
    {"the gradients of a layer",
     {{64, 32}, {32, 48}, {64, 48}},
     2,
     [](const Tensors& a) {
       const Tensor g = a[0] * 2.0;
       return Tensors{matmul(g, a[1]) * a[2], matmul(transpose(g, 0, 1), a[2]), sum(g, {0})};
     },
     false},
    {"the gradients of a layer of more blocks than multiprocessors",
     {{64, 256}, {256, 256}, {64, 256}},
     2,
     [](const Tensors& a) {
       const Tensor g = a[0] * 2.0;
       return Tensors{matmul(g, a[1]) * a[2], matmul(transpose(g, 0, 1), a[2]), sum(g, {0})};
     },
     false,
     0,
     1e-5},
    {"two products of one factor, one of which reads the other",
     {{64, 32}, {32, 32}, {64, 32}},
     2,
     [](const Tensors& a) {
       const Tensor h = a[0] * 2.0;
       const Tensor g = matmul(h, a[1]) - a[2];
       return Tensors{g, matmul(transpose(g, 0, 1), h)};
     }},
    {"reductions of both factors",
     {{33, 70}, {70, 21}},
     1,
     [](const Tensors& a) {
       return Tensors{matmul(a[0], a[1]), sum(a[0], {1}), max(a[1], {0}, true)};
     },
     false},
    {"factors rounded to bf16",
     {{33, 40}, {24, 40}},
     1,
     [](const Tensors& a) {
       return Tensors{matmul(cast(a[0], bf16), transpose(cast(a[1], bf16), 0, 1))};
     }},
    {"transposed factors rounded to bf16",
     {{40, 32}, {40, 24}},
     1,
     [](const Tensors& a) {
       return Tensors{matmul(transpose(cast(a[0], bf16), 0, 1), cast(a[1], bf16))};
     }},
    {"factors in f32",
     {{33, 40}, {40, 24}},
     1,
     [](const Tensors& a) { return Tensors{matmul(cast(a[0], f32), cast(a[1], f32))}; }},
    {"a mask of a weight, its rows scaled",
     {{32, 64}, {48, 64}, {48, 64}, {48, 1}},
     1,
     [](const Tensors& a) {
       const Tensor weight = where(a[2] > 0.0, a[1], zeros_like(a[1])) * a[3];
       return Tensors{matmul(a[0], transpose(weight, 0, 1))};
     }},
    {"a mask of a transposed weight, its columns scaled",
     {{32, 48}, {48, 64}, {48, 64}, {1, 64}},
     1,
     [](const Tensors& a) {
       const Tensor weight = where(a[2] > 0.0, a[1], zeros_like(a[1])) * a[3];
       return Tensors{matmul(a[0], weight)};
     }},
    {"factors in different orders make one",
     {{32, 64}, {64, 32}, {64, 48}},
     1,
     [](const Tensors& a) { return Tensors{matmul(a[0] + transpose(a[1], 0, 1), a[2]) * 0.5}; }},
    {"factors that are not zero beyond their elements",
     {{17, 21}, {21, 19}, {21}},
     1,
     [](const Tensors& a) { return Tensors{matmul(2.0 / (abs(a[0]) + a[2] * a[2]), a[1] + 1.0)}; }},
    {"a factor that is also a result",
     {{32, 64}, {64, 1}},
     2,
     [](const Tensors& a) {
       const Tensor x = a[0] * 0.5;
       return Tensors{x, matmul(x, a[1])};
     }},
    {"a transposed weight, scaled along the sum",
     {{32, 64}, {64, 48}, {64, 1}},
     1,
     [](const Tensors& a) { return Tensors{matmul(a[0], a[1] * a[2])}; }},
    {"batches of normalized values",
     {{3, 20, 16}, {3, 16, 18}, {16}, {3, 20, 1}},
     1,
     [](const Tensors& a) { return Tensors{matmul((a[0] - a[2]) * a[3], a[1]) + 1.0}; }},
    {"the gradients of a layer whose weight is of another type",
     {{32, 48}, {24, 48}, {32, 24}},
     1,
     [](const Tensors& a) {
       const Tensor x = cast(a[0], bf16), w = cast(a[1], bf16), g = cast(a[2], bf16);
       return Tensors{matmul(x, transpose(w, 0, 1)), matmul(g, w)};
     }},
    {"heads of a projection",
     {{2, 9, 32}, {32, 32}, {2, 4, 9, 8}},
     1,
     [](const Tensors& a) {
       const Tensor x = matmul(a[0], a[1]);
       return Tensors{transpose(reshape(x, {2, 9, 4, 8}), 1, 2) * 0.5 + a[2]};
     }},
};

// Products too large for the small kernel. Sums have another order than the library's, and factors
// may be rounded to TF32 in another way.
constexpr double kTf32Error = 2e-2;
const std::vector<Program> kTileProducts = {
    {"a residual",
     {{256, 512}, {512, 512}, {512}, {256, 512}},
     1,
     [](const Tensors& a) { return Tensors{affine(a[0], transpose(a[1], 0, 1), a[2]) + a[3]}; },
     false,
     0,
     kTf32Error},
    {"a residual that is not whole tiles, and what was added to",
     {{200, 328}, {264, 328}, {200, 264}},
     1,
     [](const Tensors& a) {
       const Tensor x = matmul(a[0], transpose(a[1], 0, 1));
       return Tensors{x, (x + a[2]) * 0.5};
     },
     false,
     0,
     kTf32Error},
    {"scores of heads that are blocks of one tensor",
     {{2, 256, 3, 4, 64}},
     1,
     [](const Tensors& a) {
       const Tensor q = transpose(select(a[0], 2, 0), 1, 2),
                    k = transpose(select(a[0], 2, 1), 1, 2);
       return Tensors{matmul(q, transpose(k, 2, 3)) * 0.125};
     },
     false,
     0,
     kTf32Error},
};

// Values of heads, with a transposed factor: of halves only.
const std::vector<Program> kHalfTileProducts = {
    {"values of heads, in the layout of the next product",
     {{2, 4, 256, 256}, {2, 256, 3, 4, 64}},
     1,
     [](const Tensors& a) {
       const Tensor v = transpose(select(a[1], 2, 2), 1, 2);
       return Tensors{contiguous(transpose(matmul(a[0], v), 1, 2))};
     },
     false},
    {"the gradient of a weight, added to",
     {{512, 256}, {512, 384}, {256, 384}},
     1,
     [](const Tensors& a) { return Tensors{matmul(transpose(a[0], 0, 1), a[1]) + a[2]}; },
     false},
};

}  // namespace brrr::test
