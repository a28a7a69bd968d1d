// The computation of a kernel, for any layouts of its operands and any device; a Schedule
// (schedule.h) says how the kernel walks through them. An eager call has a body of one op, fusion
// makes bodies of many; both are rendered by the same code (render.h).
//
// The elements of a body form a matrix. A row of it is what one reduction combines; a body without
// reductions has only elements. Values are in single assignment order and name the values that they
// use by their numbers. An element may be computed from the results of its row, and may be reduced
// again: softmax subtracts the maximum of a row, sums exponentials, and divides by the sum. A body
// with reductions of rows may also reduce columns, as the gradients of a norm do: only values of
// columns are computed from these results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/dispatch/op_info.h>
#include <brrr/tensor/dtype.h>
#include <brrr/tensor/strided_space.h>

namespace brrr::jit {

// The type that values of `dtype` have in registers.
constexpr DType register_dtype(DType dtype) { return is_half(dtype) ? f32 : dtype; }

// One assignment of a body: what it computes, from which other values.
struct BodyValue {
  enum class Kind : std::uint8_t {
    input,       // the element of inputs[number]
    scalar,      // scalars[number], an argument of the kernel
    index,       // an i64: coordinate `number` of the element, see Body::indices
    expression,  // `expression` over its operands
    reduction,   // of operand a over a row: `expression` maps an element, then identity, combine,
                 // finish
    column_reduction,  // the same over a column, on CUDA only
    contraction,  // the sum over a row of the products of operands a and b, which are inputs or
                  // computed from inputs and scalars alone: matrices whose rows and columns are the
                  // results' dimensions that only one of them varies in. f32 factors are rounded to
                  // TF32
    arg,          // the place of the element of its row that comes first: `expression` says whether
                  // the element a comes before b
    gathered,     // of inputs[number], operand a elements further than the element's own place
    draw,         // a random number; `draw` says of which distribution, inputs[number] is the
                  // {seed, step, base} of the generator, operand a the draw's place in the step
                  // (counted from base); index b and scalar c sum up to the element's place in the
                  // draw; of Bernoulli draws d is the threshold
    index_check,  // operand a, an index of a dimension of b elements. Out of range it is reported
                  // and clamped. The last operand is the position that a report names
    range_check,  // operand a, which is reported unless it is in the range from b to c
  };
  Kind kind = Kind::input;
  DType dtype = f32;            // of the result
  DType type = f32;             // what T is, and what operands become; halves compute in f32
  bool select = false;          // operand a is a bool whatever T is
  DType cpu_accumulator = f32;  // reductions: where CUDA accumulates in `type`
  int number = 0;
  std::vector<int> operands;
  Algebra draw = Algebra::uniform_draw;
  Expression expression, identity, combine, finish;

  bool is_check() const { return kind == Kind::index_check || kind == Kind::range_check; }
};

struct Body {
  // The most of each that a kernel takes; verify() refuses more. Operands are outputs, inputs and
  // coordinates: a space has room for them and for one more, by which its dimensions are ordered.
  static constexpr std::size_t kMostOperands = StridedSpace::kMaxOperands - 1;
  static constexpr std::size_t kMostNumbers = 64;  // scalars and checks
  static constexpr std::size_t kMostValues = 256;

  // An operand has one value for all elements, for each row, for each column or for each element.
  enum class Scope : std::uint8_t { one, row, column, element };  // element: row | column

  // The bounds of an input: coordinate `index` from scalar `low` on, below scalar `high`.
  struct Bound {
    int index = 0, low = 0, high = 0;
  };

  struct TensorOperand {
    DType dtype = f32;
    Scope scope = Scope::element;
    int value = 0;  // outputs: which value is stored; inputs: unused
    // Inputs per element: outside of any of these an element is 0, and its memory is not read.
    std::vector<Bound> bounds = {};
  };

  std::string name;     // also the entry
  bool strict = false;  // round every half value as if it had been stored
  bool fast = false;    // on CUDA: contraction, approximate division and square root
  std::vector<TensorOperand> inputs, outputs;
  std::vector<DType> scalars;  // register types: never a half
  // Coordinates that values may ask for, of elements or of rows. Each is an operand without memory:
  // its strides in the space that is walked are what a step along a dimension adds to it.
  std::vector<Scope> indices;
  std::vector<const char*> checks;  // the function that each check reports for: static text
  std::vector<BodyValue> values;

  bool has_bounds() const;
  int operands() const { return static_cast<int>(inputs.size() + outputs.size()); }
  // Operands that are read: inputs, then coordinates.
  std::size_t reads() const { return inputs.size() + indices.size(); }
  // Strides that a space has for it: those of outputs and of all that is read.
  std::size_t strided() const { return outputs.size() + reads(); }
  const BodyValue& value(int number) const { return values[static_cast<std::size_t>(number)]; }
  bool reduces() const;
  bool reduces_columns() const;
  int contraction() const;  // the value that is one; -1: none

  // These append a value and return its number.
  int add(BodyValue value);
  int add_input(DType dtype, Scope scope = Scope::element);
  int add_scalar(DType dtype);
  int add_index(Scope scope = Scope::element);
  int add_expression(Expression expression, DType type, DType result, std::vector<int> operands);
  void add_output(int value, DType dtype);
};

// The level of a value: computed once a row, for each element, or from reductions of columns; and
// the number of reductions of rows, one after the other, that it waits for. Each pass over a row's
// elements serves all reductions of that number.
struct Level {
  Body::Scope scope = Body::Scope::one;
  int pass = 0;
  bool of_columns = false;  // is computed once a column, after all rows

  bool per_element() const { return scope >= Body::Scope::column && !of_columns; }
  bool per_row() const { return scope <= Body::Scope::row && !of_columns; }
};
std::vector<Level> levels_of(const Body& body);
// Whether a value needs results of columns beside values that are not of columns. No kernel has
// both at the same time.
bool mixes_columns(const Body& body);

// Elements of a draw that share a Philox block.
constexpr int draws_of_block(DType dtype) { return dtype == boolean ? 8 : dtype == f64 ? 2 : 4; }

// Whether a value is explicitly rounded to its 16-bit dtype. Not if that would be redundant: it
// passes an operand through that has the dtype already, or its only uses are stores and products,
// which round.
bool is_rounded(const Body& body, int value);

// Throws unless values are in order, operands exist and are of the kind that is asked for.
void verify(const Body& body);

// The values of one row of the op table, over operands that are there already.
int add_pointwise(Body& body, const OpInfo& op, DType computed_in, DType result,
                  const std::vector<int>& operands);
// `result` is the output's type: accumulators are of its register type.
int add_reduction(Body& body, const OpInfo& op, DType result, int operand);
int add_arg_reduction(Body& body, const OpInfo& op, int operand);

// One op as a body. Scalars' bit i: operand i is a number; `inputs` are the types of the others, in
// order.
Body pointwise_body(const OpInfo& op, DType computed_in, std::uint8_t scalars,
                    const std::vector<DType>& inputs, DType output);
Body copy_body(DType from, DType to);
Body reduction_body(const OpInfo& op, DType input, DType output);
Body arg_reduction_body(const OpInfo& op, DType input);

}  // namespace brrr::jit
