// Everything that a program built on brrr needs.
#pragma once

#include "autograd/autograd.h"
#include "autograd/gradcheck.h"
#include "dispatch/observe.h"
#include "ops/functions.h"
#include "ops/matmul.h"
#include "ops/register_op.h"
#include "tensor/allocator.h"
#include "tensor/dlpack.h"
#include "tensor/error.h"
#include "tensor/host_copy.h"
#include "tensor/npy.h"
#include "tensor/runtime.h"
#include "tensor/safetensors.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/thread_pool.h"
