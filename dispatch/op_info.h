// The entry of an op: its row, the facts derived from the row, its shape rule and its kernels.
// The rows of built-in ops are filled in by ops/table.cpp, if ops/ is part of the program; ops
// registered at run time follow them in the same table. Passes, reports and autograd query these
// facts and never name an op, so that registered ops are treated as built-in ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <brrr/dispatch/call.h>
#include <brrr/dispatch/cost.h>
#include <brrr/dispatch/dtype_rule.h>
#include <brrr/dispatch/expression.h>
#include <brrr/dispatch/gradient.h>

namespace brrr {

enum class OpKind : std::uint8_t { pointwise, reduction, arg_reduction, view, structured, formula };

// The side effects of a call. A call that is not pure is neither merged with an equal one nor, but
// for draws, run again.
enum class Effect : std::uint8_t {
  pure,     // none: equal calls give equal results, and a call without readers is removed
  draws,    // reads the random state: a recomputation must draw at the same index in the step
  checks,   // may throw: the call is kept even if its result has no reader
  ordered,  // reads or writes the state of its channel: calls of one channel keep their order
  // May read or write memory of the host, its operands and every tensor that outlives the step (an
  // op registered without a promise): keeps its order with other effects and with what touches
  // those tensors.
  unknown,
};

// The relation of a result to the operands, for passes that rewrite or follow values. For pointwise
// rows it is derived from the expression.
enum class Algebra : std::uint8_t {
  other,
  identity,       // the operand's elements
  conversion,     // the same, in another type
  negation,       // -a
  sum,            // a + b
  difference,     // a - b
  product,        // a * b
  quotient,       // a / b
  selection,      // one of its operands, chosen by comparing: maximum, minimum, clamp, where
  concatenation,  // the inputs, one after another along the dimension in the first attribute
  embedding,      // the operand's elements among zeros: attributes dim, start, size, step
  contraction,    // sums of products: matrix products
  scan,           // running sums
  uniform,        // every element is the number in the first attribute
  // Elements of operand a at the indices b along the dimension in the first attribute: one index
  // for each element of the result, or one for each position along that dimension (a list).
  gathering,
  scattering,  // operand a, with c added to it at the indices b along that dimension
  undefined,   // uninitialized memory
  // Random numbers: in [0, 1), of mean 0 and variance 1, and truth values of one probability.
  uniform_draw,
  normal_draw,
  bernoulli_draw,
};

// One attribute of a row. Its text in ops.def gives the kind: "axis", "scale:double",
// "value:number", "dims:set", "shape...".
struct Attribute {
  enum class Kind : std::uint8_t {
    integer,
    real,         // a double
    number,       // a double where the call's dtype is floating, else an integer
    shape,        // all that follow, as integers
    dims,         // a set of dimensions, as bits
    tensor_mask,  // bit k: an input replaces attribute k
  };
  std::string name;
  Kind kind = Kind::integer;
  bool is_rate = false;  // a learning rate: an attribute of the name `rate`
};

// The body of a formula row in single assignment: values are its operands, in the order of the row,
// and then one for each assignment.
struct Formula {
  struct Assignment {
    Expression expression;      // over a, b, c, ...
    std::vector<int> operands;  // the values that a, b, c, ... are
  };
  std::vector<std::string> operands;  // names: those written, those only read, the numbers
  int written = 0, elements = 0;      // numbers of operands that are written; that are tensors
  std::vector<Assignment> values;
  std::vector<int> results;  // the value of each output

  int numbers() const { return static_cast<int>(operands.size()) - elements; }
};

// CallValues of a call, a bit each: its operands, of which the last bit stands for all that follow,
// and from kResultBit on its outputs.
using CallValues = std::uint32_t;
inline constexpr int kResultBit = 24;
constexpr CallValues operand_bit(int i) { return 1u << (i < kResultBit ? i : kResultBit - 1); }
constexpr CallValues result_bit(int i) { return 1u << (kResultBit + i); }

struct GradientRule {
  void (*run)(core::Gradient& gradient) = nullptr;  // null: there is no rule
  // By operand, the values that its gradient reads; the last one stands for all further operands.
  CallValues needs[3] = {};
  // Operands that have a gradient; none of an op that is constant, or whose results are no numbers.
  CallValues differentiable = 0;

  bool has_gradient(int operand) const { return differentiable & operand_bit(operand); }
  CallValues needs_for(int operand) const { return needs[operand < 2 ? operand : 2]; }
};

using InferFn = void (*)(const core::Call& call, core::OutputSpec* outputs);
using CostFn = core::Cost (*)(const core::Call& call, std::span<const Tensor> outputs);
using KernelFn = void (*)(const core::Call& call, Tensor* outputs);
using ViewFn = Tensor (*)(const core::Call& call);

// The functions of an op registered at run time, beside its row.
struct RegisteredOp {
  std::function<void(core::Gradient&)> gradient;

  virtual ~RegisteredOp() = default;
};

struct OpInfo {
  const char* name = "";
  OpKind kind = OpKind::structured;
  core::DTypeRule rule = core::DTypeRule::same;
  core::DTypeSet types = core::dtype_sets::all;
  Effect effect = Effect::pure;
  std::string channel;               // Effect::ordered: the state that calls share, by a name
  Algebra algebra = Algebra::other;  // pointwise: derived
  std::int8_t arity = 0;             // inputs, scalar operands included; -1: any number
  std::uint8_t n_outputs = 1;
  double low = -2, high = 2;  // domain of samples in tests
  // Pointwise: `expression`. Reductions: map in `expression`, and the other three.
  Expression expression, identity, combine, finish;
  std::string attributes;  // their names, separated by spaces
  Formula formula;

  InferFn infer = nullptr;
  CostFn cost = nullptr;
  ViewFn view = nullptr;
  KernelFn cpu = nullptr;
  KernelFn cuda = nullptr;
  GradientRule gradient;
  std::shared_ptr<RegisteredOp> registered;  // null for built-in ops

  // --- Derived when the row enters the table ---
  std::vector<Attribute> parsed_attributes;
  int element_flops = 0;  // pointwise, formula: of one element; reductions: of one reduced element
  int result_flops = 0;   // reductions: of one result
};

namespace detail {
inline constexpr int kMaxOps = 1024;
extern const OpInfo* op_table[kMaxOps];
OpInfo* builtin_rows();          // kBuiltinOps of them, to be filled in before any call
void derive_facts(OpInfo& row);  // once the row is filled in
}  // namespace detail

inline const OpInfo& op_info(core::Op op) { return *detail::op_table[static_cast<int>(op)]; }
int op_count();  // built-in and registered

// Adds an op for good; throws when the name is taken or the table is full.
core::Op add_op(OpInfo info, std::string name);

// Whether this in-place call is an assignment (a copy), whose operand broadcasts to the output. The
// outputs of all other calls have the shape that the op's rule returns.
bool assigns(const core::Call& call);

// The type in which a call of `info` accumulates: reductions of `dtype`, running sums and products.
// The loops of the CPU, which need it as a constant, have reductions' from reduction_accumulator.
DType accumulator_of(const OpInfo& info, DType dtype, Device device);

// The body of a row that lists names in parentheses, as ops.def does.
Formula parse_formula(std::string_view written, std::string_view read, std::string_view numbers,
                      std::string_view assignments);

// Parses a row's attributes; throws on an unknown kind.
std::vector<Attribute> parse_attributes(std::string_view text);

// One attribute of a call.
struct CallAttribute {
  const core::Call& call;
  const Attribute& row;
  int place;  // among call.attrs

  bool is_number() const {
    return row.kind == Attribute::Kind::real || row.kind == Attribute::Kind::number;
  }
  // Of a number or an integer.
  double number() const {
    return row.kind == Attribute::Kind::real ? call.attrs[place].d() : call.number(place);
  }
  std::string text() const;  // "0.5", "3", "[2, 3]"
};

// Calls f with each attribute of the call in order, except those that are passed as inputs.
template <class F>
void for_each_attribute(const core::Call& call, F&& f) {
  const std::vector<Attribute>& row = op_info(call.op).parsed_attributes;
  std::int64_t as_inputs = 0;
  for (std::size_t k = 0; k < row.size(); ++k) {
    if (row[k].kind == Attribute::Kind::tensor_mask) as_inputs = call.attrs[k].i() | 1ll << k;
  }
  for (std::size_t k = 0; k < row.size() && k < call.n_attrs; ++k) {
    if (!(as_inputs >> k & 1)) f(CallAttribute{call, row[k], static_cast<int>(k)});
  }
}

}  // namespace brrr
