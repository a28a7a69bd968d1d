// First values of parameters, written in place. Names and bounds are PyTorch's; draws are those of
// rand and randn.
#pragma once

#include "tensor/tensor.h"

namespace brrr::nn::init {

void constant_(Tensor& x, double value);
void uniform_(Tensor& x, double low = 0, double high = 1);
void normal_(Tensor& x, double mean = 0, double deviation = 1);

// For a weight of [out, in, ...], in and out multiplied by what follows: values whose variance
// keeps that of activations (kaiming, for a leaky relu) or of activations and gradients (xavier).
void xavier_uniform_(Tensor& weight, double gain = 1);
void xavier_normal_(Tensor& weight, double gain = 1);
void kaiming_uniform_(Tensor& weight, double negative_slope = 0);
void kaiming_normal_(Tensor& weight, double negative_slope = 0);

}  // namespace brrr::nn::init
