// What a generated kernel computes and how it walks through its elements. Eager asks for a spec of
// one op, fusion for a spec of many; both are rendered by the same code.
//
// Values are in single assignment order: each names the values that it uses by their numbers. In a
// kernel with reductions a value is per element until it passes through a reduction, and per result
// after that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/dispatch/op_info.h>
#include <brrr/tensor/dtype.h>

namespace brrr::jit {

struct Value {
  enum class Kind : std::uint8_t {
    input,       // an element of inputs[number]
    scalar,      // scalars[number], an argument of the kernel
    index,       // the element's place in the space, or within its reduction, counted in i64
    expression,  // `text` over its operands, called a, b, c, ...
    reduction,   // of operand a: `text` maps an element, then identity, combine, finish
    arg,  // the place of the element that stands first: `text` says whether a stands before b
  };
  Kind kind = Kind::input;
  DType dtype = f32;    // of the result
  DType type = f32;     // what T is, and what operands become; halves compute in f32
  bool select = false;  // operand a is a bool whatever T is
  int number = 0;
  std::vector<int> operands;
  std::string text, identity, combine, finish;
};

// How an operand is reached from its place: `width` neighbours at once, one element for all of
// them, or (tiled walks only) neighbours along the other side of the tile.
enum class Access : std::uint8_t { vector, broadcast, transposed };

struct Operand {
  DType dtype = f32;
  Access access = Access::vector;
  int value = 0;  // outputs: which value is stored; inputs: unused
};

enum class Walk : std::uint8_t {
  flat,     // everything contiguous: only the number of elements counts
  strided,  // `rank` dimensions, any strides; vectors along the last one
  tiled,    // the last two dimensions in tiles turned through shared memory
  rows,     // reduction, vectors and threads along the reduced elements
  columns,  // reduction, vectors along the results, threads along both
};

struct KernelSpec {
  std::string name;  // also the entry
  Walk walk = Walk::flat;
  int rank = 1;          // of the space; reductions: of the results' space
  int reduced_rank = 1;  // reductions: of the space of what one result combines
  bool wide = false;     // counts or offsets pass 2^31
  bool strict = false;   // round every half value as if it had been stored
  int width = 1;         // elements of one access
  int unroll = 1;        // accesses that a thread has under way at a time
  int threads = 256;     // of a block
  int lanes = 32;        // rows: threads of one row; columns: threads side by side. A power of two
  int tile = 32;         // tiled: the side of a tile
  std::vector<Operand> inputs, outputs;
  std::vector<DType> scalars;  // register types: never a half
  std::vector<Value> values;

  int operands() const { return static_cast<int>(inputs.size() + outputs.size()); }
  bool reduces() const { return walk == Walk::rows || walk == Walk::columns; }
  // Appends a value and returns its number.
  int add(Value value);
  int add_input(DType dtype, Access access = Access::vector);
  int add_scalar(DType dtype);
  void add_output(int value, DType dtype, Access access = Access::vector);
};

// The type that values of `dtype` have in registers.
constexpr DType register_dtype(DType dtype) { return is_half(dtype) ? f32 : dtype; }

// Throws when values are out of order, operands are missing, or what is asked for cannot be
// rendered.
void verify(const KernelSpec& spec);

// The values of one row of the op table, over operands that are there already.
int add_pointwise(KernelSpec& spec, const OpInfo& op, DType computed_in, DType result,
                  const std::vector<int>& operands);
// `result` is the output's type: accumulators are of its register type.
int add_reduction(KernelSpec& spec, const OpInfo& op, DType result, int operand);
int add_arg_reduction(KernelSpec& spec, const OpInfo& op, int operand);

// One op as a kernel. Scalars' bit i: operand i is a number; `inputs` are the types of the others,
// in order.
KernelSpec pointwise_spec(const OpInfo& op, DType computed_in, std::uint8_t scalars,
                          const std::vector<DType>& inputs, DType output);
KernelSpec copy_spec(DType from, DType to);
KernelSpec reduction_spec(const OpInfo& op, DType input, DType output);
KernelSpec arg_reduction_spec(const OpInfo& op, DType input);

// The widest access that keeps every operand at 16 bytes or less.
int widest_access(const KernelSpec& spec);

}  // namespace brrr::jit
