// Initial values of parameters, written in place. Names and bounds are PyTorch's; random values
// come from rand and randn.
#pragma once

#include <brrr/ops/functions.h>

namespace brrr::nn::init {

// An uninitialized parameter of a module of this kind. Throws "[linear] expected a floating type
// and sizes of at least 0, got i64[2, -1]".
Tensor empty_parameter(const char* kind, const Dims& shape, const Options& options);
Tensor full_parameter(const char* kind, const Dims& shape, double value, const Options& options);

void constant_(Tensor& x, double value);
void uniform_(Tensor& x, double low = 0, double high = 1);
void normal_(Tensor& x, double mean = 0, double deviation = 1);

// For a weight [out, in, ...]; fan-in and fan-out include the trailing dimensions. The variance
// preserves that of activations (kaiming, for a leaky relu) or of activations and gradients
// (xavier).
void xavier_uniform_(Tensor& weight, double gain = 1);
void xavier_normal_(Tensor& weight, double gain = 1);
void kaiming_uniform_(Tensor& weight, double negative_slope = 0);
void kaiming_normal_(Tensor& weight, double negative_slope = 0);

}  // namespace brrr::nn::init
