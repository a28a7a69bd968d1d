// Copies, fills, progressions and triangles on CUDA, as elementwise kernels.
#include "brrr/ops/cuda/contiguous.h"
#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/kernels.h"
#include "brrr/ops/unslice.h"

namespace brrr::on_cuda {
namespace {

struct Types {
  DType from, to;
};

// `variant` tells kernels of one op and types apart.
void run(Elementwise& work, Op op, Types types, const Tensor& output, int variant,
         jit::KernelSpec (*make)(const void*)) {
  work.what = static_cast<std::uint64_t>(op) | static_cast<std::uint64_t>(variant) << 16 |
              static_cast<std::uint64_t>(types.to) << 22 |
              static_cast<std::uint64_t>(types.from) << 25;
  work.outputs[0] = output.impl();
  work.make = make;
  work.of = &types;
  run_elementwise(work);
}

jit::KernelSpec spec_named(const char* name, DType dtype) {
  jit::KernelSpec spec;
  spec.name = std::string(name) + "_" + std::string(name_of(dtype));
  return spec;
}

int add_expression(jit::KernelSpec& spec, const char* text, DType type, DType result,
                   std::vector<int> operands) {
  jit::Value value;
  value.kind = jit::Value::Kind::expression;
  value.type = type;
  value.dtype = result;
  value.text = text;
  value.operands = std::move(operands);
  return spec.add(std::move(value));
}

int add_index(jit::KernelSpec& spec) {
  jit::Value value;
  value.kind = jit::Value::Kind::index;
  value.dtype = value.type = i64;
  return spec.add(std::move(value));
}

jit::KernelSpec make_copy(const void* of) {
  const Types& types = *static_cast<const Types*>(of);
  return jit::copy_spec(types.from, types.to);
}

jit::KernelSpec make_full(const void* of) {
  const DType dtype = static_cast<const Types*>(of)->to;
  jit::KernelSpec spec = spec_named("full", dtype);
  spec.add_output(spec.add_scalar(dtype), dtype);
  return spec;
}

// In f64 or i64, then converted.
jit::KernelSpec make_arange(const void* of) {
  const Types& types = *static_cast<const Types*>(of);
  jit::KernelSpec spec = spec_named("arange", types.to);
  const int start = spec.add_scalar(types.from), step = spec.add_scalar(types.from);
  spec.add_output(
      add_expression(spec, "a + b * c", types.from, types.from, {start, add_index(spec), step}),
      types.to);
  return spec;
}

jit::KernelSpec triangle_spec(DType dtype, const char* name, const char* keep) {
  jit::KernelSpec spec = spec_named(name, dtype);
  const int x = spec.add_input(dtype), columns = spec.add_scalar(i64), rows = spec.add_scalar(i64),
            diagonal = spec.add_scalar(i64);
  // In rows of f64, i64 or f32 no element changes but to zero; halves go through f32 and come back
  // as they were.
  const int kept =
      add_expression(spec, keep, i64, boolean, {add_index(spec), columns, rows, diagonal});
  const int result = add_expression(spec, "where(a, b, K(0))", dtype, dtype, {kept, x});
  spec.values[static_cast<std::size_t>(result)].select = true;
  spec.add_output(result, dtype);
  return spec;
}
jit::KernelSpec make_upper(const void* of) {
  return triangle_spec(static_cast<const Types*>(of)->to, "triu", "a % b - a / b % c >= d");
}
jit::KernelSpec make_lower(const void* of) {
  return triangle_spec(static_cast<const Types*>(of)->to, "tril", "a % b - a / b % c <= d");
}

}  // namespace

void copy(const Call& call, Tensor* outputs) {
  const Tensor& from = call.input(0);
  Elementwise work;
  work.inputs[work.n_inputs++] = from.impl();
  run(work, Op::copy, {from.dtype(), outputs[0].dtype()}, outputs[0], 0, make_copy);
}

void empty(const Call&, Tensor*) {}

void full(const Call& call, Tensor* outputs) {
  const DType dtype = outputs[0].dtype();
  Elementwise work;
  work.scalars[work.n_scalars++] =
      argument_of(call.attrs[0], is_floating(call.dtype), jit::register_dtype(dtype));
  run(work, Op::full, {dtype, dtype}, outputs[0], 0, make_full);
}

void arange(const Call& call, Tensor* outputs) {
  const DType type = is_floating(call.dtype) ? f64 : i64;
  write_contiguous(outputs[0], [&](Tensor& output) {
    Elementwise work;
    for (int i = 0; i < 2; ++i)
      work.scalars[work.n_scalars++] = static_cast<std::uint64_t>(call.attrs[i].bits);
    run(work, Op::arange, {type, output.dtype()}, output, 0, make_arange);
  });
}

void unslice(const Call& call, Tensor* outputs) { unslice_by(full, copy, call, outputs[0]); }

void triangle(const Call& call, Tensor* outputs) {
  const Tensor from = contiguous_here(call.input(0));
  const bool upper = call.attrs[1].i() != 0;
  write_contiguous(outputs[0], [&](Tensor& output) {
    Elementwise work;
    work.inputs[work.n_inputs++] = from.impl();
    for (std::int64_t value : {output.size(-1), output.size(-2), call.attrs[0].i()}) {
      work.scalars[work.n_scalars++] = static_cast<std::uint64_t>(value);
    }
    run(work, Op::triangle, {output.dtype(), output.dtype()}, output, upper,
        upper ? make_upper : make_lower);
  });
}

}  // namespace brrr::on_cuda
