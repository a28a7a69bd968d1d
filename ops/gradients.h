// Gradient rules: the last columns of ops.def, made into functions.
#pragma once

#include <brrr/dispatch/gradient.h>

namespace brrr {

namespace gradients {
#define BRRR_UNARY(name, ...) extern const GradientRule name;
#define BRRR_BINARY(name, ...) extern const GradientRule name;
#define BRRR_TERNARY(name, ...) extern const GradientRule name;
#define BRRR_REDUCTION(name, ...) extern const GradientRule name;
#define BRRR_VIEW(name, ...) extern const GradientRule name;
#define BRRR_CONVERSION(name, ...) extern const GradientRule name;
#define BRRR_STRUCTURED(name, ...) extern const GradientRule name;
#include <brrr/dispatch/ops.def>
}  // namespace gradients

}  // namespace brrr
