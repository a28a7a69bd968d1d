#include "brrr/nn/init.h"

#include <algorithm>
#include <cmath>

#include "brrr/autograd/autograd.h"
#include "brrr/ops/arguments.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/tensor_impl.h"
#include "brrr/tensor/thread_context.h"

namespace brrr::nn::init {
namespace {

struct Fans {
  double in, out;
};

Fans fans_of(const char* name, const Tensor& weight) {
  if (!weight.defined() || weight.rank() < 2) {
    fail("[{}] expected a weight of at least 2 dimensions, got {}", name, weight.describe());
  }
  double each = 1;
  for (int i = 2; i < weight.rank(); ++i) each *= static_cast<double>(weight.size(i));
  return {static_cast<double>(weight.size(1)) * each, static_cast<double>(weight.size(0)) * each};
}

double kaiming_deviation(const char* name, const Tensor& weight, double slope) {
  const double in = fans_of(name, weight).in;
  return in == 0 ? 0 : std::sqrt(2 / (1 + slope * slope) / in);
}
double xavier_deviation(const char* name, const Tensor& weight, double gain) {
  const Fans fans = fans_of(name, weight);
  const double both = fans.in + fans.out;
  return both == 0 ? 0 : gain * std::sqrt(2 / both);
}

// 16-bit floats are drawn in f32 and rounded once.
Options draw_options(const Tensor& x) { return {is_half(x.dtype()) ? f32 : x.dtype(), x.device()}; }

// The bound of the uniform distribution with this standard deviation.
double bound_of(double deviation) { return std::sqrt(3.0) * deviation; }

}  // namespace

Tensor empty_parameter(const char* kind, const Dims& shape, const Options& options) {
  const bool sized = std::ranges::all_of(shape, [](std::int64_t size) { return size >= 0; });
  if (!sized || !is_floating(options.dtype)) {
    fail("[{}] expected a floating type and sizes of at least 0, got {}{}", kind,
         name_of(options.dtype), to_string(shape));
  }
  const CompositeScope scope(kind);
  return empty(shape, options);
}

Tensor full_parameter(const char* kind, const Dims& shape, double value, const Options& options) {
  Tensor parameter = empty_parameter(kind, shape, options);
  constant_(parameter, value);
  return parameter;
}

void constant_(Tensor& x, double value) {
  require_defined("constant_", x);
  const CompositeScope scope("constant_");
  const NoGrad constant;
  fill_(x, value);
}

void uniform_(Tensor& x, double low, double high) {
  require_defined("uniform_", x);
  const CompositeScope scope("uniform_");
  if (!(low <= high && std::isfinite(high - low)))
    fail("[uniform_] expected finite bounds in order, got {} and {}", low, high);
  const NoGrad constant;
  copy_(x, rand(x.shape(), draw_options(x)) * (high - low) + low);
}

void normal_(Tensor& x, double mean, double deviation) {
  require_defined("normal_", x);
  const CompositeScope scope("normal_");
  if (!(std::isfinite(mean) && deviation >= 0 && std::isfinite(deviation))) {
    fail("[normal_] expected a finite mean and a finite deviation of at least 0, got {} and {}",
         mean, deviation);
  }
  const NoGrad constant;
  copy_(x, randn(x.shape(), draw_options(x)) * deviation + mean);
}

void xavier_uniform_(Tensor& weight, double gain) {
  const CompositeScope scope("xavier_uniform_");
  const double bound = bound_of(xavier_deviation("xavier_uniform_", weight, gain));
  uniform_(weight, -bound, bound);
}
void xavier_normal_(Tensor& weight, double gain) {
  const CompositeScope scope("xavier_normal_");
  normal_(weight, 0, xavier_deviation("xavier_normal_", weight, gain));
}
void kaiming_uniform_(Tensor& weight, double negative_slope) {
  const CompositeScope scope("kaiming_uniform_");
  const double bound = bound_of(kaiming_deviation("kaiming_uniform_", weight, negative_slope));
  uniform_(weight, -bound, bound);
}
void kaiming_normal_(Tensor& weight, double negative_slope) {
  const CompositeScope scope("kaiming_normal_");
  normal_(weight, 0, kaiming_deviation("kaiming_normal_", weight, negative_slope));
}

}  // namespace brrr::nn::init
