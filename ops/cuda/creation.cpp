// Copies, fills, progressions and triangles on CUDA, as elementwise kernels.
#include <algorithm>

#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/cuda/transpose.h"
#include "brrr/ops/jit/add_call.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/unslice.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

struct Types {
  DType from, to;
};

// `variant` distinguishes kernels of one op and types.
void run(Elementwise& work, Op op, Types types, int variant, jit::Body (*make)(const void*)) {
  work.what = static_cast<std::uint64_t>(op) | static_cast<std::uint64_t>(variant) << 16 |
              static_cast<std::uint64_t>(types.to) << 22 |
              static_cast<std::uint64_t>(types.from) << 25;
  work.make = make;
  work.of = &types;
  run_elementwise(work);
}

jit::Body body_named(const char* name, DType dtype) {
  jit::Body body;
  body.name = std::string(name) + "_" + std::string(name_of(dtype));
  return body;
}

jit::Body make_copy(const void* of) {
  const Types& types = *static_cast<const Types*>(of);
  return jit::copy_body(types.from, types.to);
}

jit::Body make_full(const void* of) {
  const DType dtype = static_cast<const Types*>(of)->to;
  jit::Body body = body_named("full", dtype);
  body.add_output(body.add_scalar(dtype), dtype);
  return body;
}

// In f64 or i64, then converted.
jit::Body make_arange(const void* of) {
  const Types& types = *static_cast<const Types*>(of);
  jit::Body body = body_named("arange", types.to);
  const int start = body.add_scalar(types.from), step = body.add_scalar(types.from);
  body.add_output(
      body.add_expression("a + b * c", types.from, types.from, {start, body.add_index(), step}),
      types.to);
  return body;
}

jit::Body triangle_body(DType dtype, const char* name, Expression keep) {
  jit::Body body = body_named(name, dtype);
  const int x = body.add_input(dtype), columns = body.add_scalar(i64), rows = body.add_scalar(i64),
            diagonal = body.add_scalar(i64);
  // Kept elements must not change: f64, i64 and f32 are loaded as they are, and 16-bit floats
  // survive the conversion to f32 and back.
  const int kept =
      body.add_expression(keep, i64, boolean, {body.add_index(), columns, rows, diagonal});
  const int result = body.add_expression("where(a, b, K(0))", dtype, dtype, {kept, x});
  body.values[static_cast<std::size_t>(result)].select = true;
  body.add_output(result, dtype);
  return body;
}
jit::Body make_upper(const void* of) {
  return triangle_body(static_cast<const Types*>(of)->to, "triu", "a % b - a / b % c >= d");
}
jit::Body make_lower(const void* of) {
  return triangle_body(static_cast<const Types*>(of)->to, "tril", "a % b - a / b % c <= d");
}

// Whether a matrix becomes contiguous along its other dimension.
bool is_transposition(const Tensor& from, const Tensor& to) {
  constexpr std::int64_t kLeast = 64;
  if (from.rank() != 2 || from.dtype() != to.dtype() || size_of(from.dtype()) < 2) return false;
  if (std::min(from.size(0), from.size(1)) < kLeast ||
      !std::ranges::equal(from.shape(), to.shape()))
    return false;
  return from.strides()[0] == 1 && from.strides()[1] >= from.size(0) && to.strides()[1] == 1 &&
         to.strides()[0] >= to.size(1);
}

}  // namespace

void copy(const Call& call, Tensor* outputs) {
  const Tensor& from = call.input(0);
  if (is_transposition(from, outputs[0]))
    return transpose_matrices({.from = from.data(),
                               .to = outputs[0].data(),
                               .rows = from.size(0),
                               .cols = from.size(1),
                               .from_leading = from.strides()[1],
                               .to_leading = outputs[0].strides()[0],
                               .from_batch = 0,
                               .to_batch = 0,
                               .batches = 1},
                              from.dtype(), cu::current_stream(from.device()));
  Elementwise work;
  work.add_output(outputs[0]);
  work.add_input(from);
  run(work, Op::copy, {from.dtype(), outputs[0].dtype()}, 0, make_copy);
}

void cast(const Call& call, Tensor* outputs) { copy(call, outputs); }

void empty(const Call&, Tensor*) {}

void full(const Call& call, Tensor* outputs) {
  const DType dtype = outputs[0].dtype();
  Elementwise work;
  work.add_output(outputs[0]);
  work.add_scalar(
      jit::scalar_bits(call.attrs[0], is_floating(call.dtype), jit::register_dtype(dtype)));
  run(work, Op::full, {dtype, dtype}, 0, make_full);
}

void arange(const Call& call, Tensor* outputs) {
  const DType type = is_floating(call.dtype) ? f64 : i64;
  write_contiguous(outputs[0], [&](Tensor& output) {
    Elementwise work;
    work.add_output(output);
    for (int i = 0; i < 2; ++i) work.add_scalar(static_cast<std::uint64_t>(call.attrs[i].bits));
    run(work, Op::arange, {type, output.dtype()}, 0, make_arange);
  });
}

void unslice(const Call& call, Tensor* outputs) { unslice_by(full, copy, call, outputs[0]); }

void triangle(const Call& call, Tensor* outputs) {
  const Tensor from = contiguous_here(call.input(0));
  const bool upper = call.attrs[1].i() != 0;
  write_contiguous(outputs[0], [&](Tensor& output) {
    Elementwise work;
    work.add_output(output);
    work.add_input(from);
    for (std::int64_t value : {output.size(-1), output.size(-2), call.attrs[0].i()})
      work.add_scalar(static_cast<std::uint64_t>(value));
    run(work, Op::triangle, {output.dtype(), output.dtype()}, upper,
        upper ? make_upper : make_lower);
  });
}

}  // namespace brrr::on_cuda
