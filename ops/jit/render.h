// From a body and a schedule to source that compiles after the preludes.
//
// On CUDA a body renders to a device function in the namespace `of_<name>`, and a thin entry around
// it:
//
//   run(uint3 block, dim3 grid, void* memory, arguments...)
//
// The entry passes blockIdx, gridDim and its own shared memory, aligned to 16 bytes. All threads of
// a block return from `run`, so the same source can be a phase of a larger kernel.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/ops/jit/body.h>
#include <brrr/ops/jit/cpu_kernel.h>
#include <brrr/ops/jit/schedule.h>

namespace brrr::jit {

// CUDA C++ with the entry `body.name`, for load_kernel. An entry takes outputs, inputs, scalars, a
// FaultSink for each check, and
//   flat            i64 count of elements
//   strided, tiled  Geometry of outputs, inputs, coordinates
//   reductions      Partial*, Geometry of the results (inputs, coordinates, outputs), Geometry of
//                   the reduced elements (inputs and coordinates, and outputs where one is written
//                   per element), i64 reduced elements of one part, i64 elements of a row
// With join_lanes in the schedule, blocks write Partials of gridDim.y > 1 parts, and
// `<name>_join` combines them, so many threads a result. It takes: outputs, scalars, Partials,
// Geometry of the results, i32 parts, i64 elements of a row. A body that reduces columns takes
// ColumnPartial* in place of Partial*, and `<name>_join` combines those of all blocks. It takes:
// outputs, scalars, ColumnPartials, Geometry of the reduced elements, i32 parts, i64 elements of a
// row, i64 rows.
std::string render_cuda(const Body& body, const Schedule& schedule);
// Whether the source draws random numbers, and needs philox.inl in front.
bool draws(const Body& body);
// What the schedule should have to fit the body, as "ranks of 1 to 8"; null: it fits.
const char* misfit_of(const Body& body, const Schedule& schedule);
// The shared memory of a block, at most, for operands at any addresses.
std::int64_t shared_bytes(const Body& body, const Schedule& schedule);
// Bytes that one part of a result leaves in scratch memory, and a block of rows for each column.
std::size_t partial_size(const Body& body);
std::size_t column_partial_size(const Body& body);

// C++ with the entry `<name>`, a CpuFunction (cpu_kernel.h) of a range of elements, or of rows
// where the body reduces.
std::string render_cpu(const Body& body, const CpuWalk& walk = {});

// Pieces that the renderers share.
namespace pieces {

std::string_view c_name(DType dtype);         // of an element in memory
std::string_view register_name(DType dtype);  // of a value in a register
// "typedef float Element;\n"
std::string typedef_of(std::string_view type, std::string_view name);
std::string typedef_of(DType dtype, std::string_view name);
// The unsigned integer of the type's size: types of one size share a source.
std::string typedef_of_bits(DType dtype, std::string_view name);

// One function for each expression, and for the pieces of each reduction.
std::string functions(const Body& body);

using NameOf = std::function<std::string(std::size_t)>;

// Whether a value combines elements: of a row, or of a column.
bool is_reduction(const BodyValue& value);
DType type_of_result(const BodyValue& value);

// One pass over the elements of a row. A body without reductions has one pass.
struct RowPass {
  std::vector<int> reductions;         // values that it reduces
  std::vector<int> column_reductions;  // and those whose operands enter reductions of columns
  std::vector<int> outputs;            // that it writes per element
  std::vector<int> elements;           // values that it computes for each element
  std::vector<int> results;            // expressions of the row that follow from its reductions
  // Values that it computes for later passes, and that earlier ones computed: they are kept in
  // registers in between (keep_values).
  std::vector<int> live_out, live_in;
};
std::vector<RowPass> passes_of(const Body& body);
// The elements of a pass without values that are needed only to compute known ones.
std::vector<int> elements_without(const Body& body, const RowPass& pass,
                                  const std::function<bool(int)>& is_known);
// For passes over elements in registers: a value that several passes use is computed by the first
// and kept in registers, unless that takes more than `most` values an element.
void keep_values(const Body& body, std::vector<RowPass>& passes, int most);
// Values that a row has before any pass.
std::vector<int> values_of_rows(const Body& body);
// Reductions of columns, and values computed from them.
std::vector<int> values_of_columns(const Body& body);
std::vector<int> column_reductions(const Body& body);

// The name that statements have for a value: x<i> for the element of an input, s<i> for a scalar,
// n<i> for a coordinate, v<i> and r<i> for what is computed and reduced. Values of a row are fields
// of `row`.
std::string name_of_value(const Body& body, int value);
// `value` in a register of `type`.
std::string converted(const Body& body, int value, DType type);
// The expression of a value that is computed for each element or row. Inputs that are gathered
// from, and generators, are read through addresses g<i>. A value that an earlier pass has computed
// `again` reports nothing.
std::string computation(const Body& body, int value, bool again = false);
// The function that computes an expression.
std::string function_name(const Body& body, int value);
// sin and cos in f32 without the branch for large angles.
Body with_guarded_functions(const Body& body);
// Strength reduction: divisions of elements by a row value become multiplications by its
// reciprocal, computed once a row. A fast body leaves it at that; others correct the product to the
// bits of the division.
Body with_inverses(const Body& body);
// Statements that compute values in order.
std::string statements(const Body& body, const std::vector<int>& values, int pass = 0);

// "within(a, s1, s2) && ...": whether an element of an input is within its bounds, where
// `coordinate` gives those of the element; "" of an input without bounds.
std::string within_bounds(const Body& body, std::size_t input, const NameOf& coordinate);

// Whether an input is read through its address, and not once for each element.
bool is_address(const Body& body, std::size_t input);
// Whether an input has one element for a row, or for all.
bool is_of_rows(const Body& body, std::size_t input);

// The unroll directive of a loop over elements. `copies`: of the body, if this loop and those
// inside of it are unrolled. A loop whose copies would overflow the instruction cache is not.
std::string_view unrolled(const Body& body, int copies);

// "in0, in1, ", of as many.
std::string numbered(std::string_view name, std::size_t count);

// Parameters of a function of one element, and what it is called with: for each input, by how it is
// read, and for each coordinate. All lists end in ", " unless they are empty.
// struct DrawCaches: for each draw per element the last Philox block, which neighbouring elements
// share; "" if there is none. compute and visit take one, `caches`.
std::string draw_caches(const Body& body, const Schedule& schedule);
std::vector<int> draws_of_elements(const Body& body);
std::string element_parameters(const Body& body);
std::string element_arguments(const Body& body, const NameOf& element, const NameOf& address,
                              const NameOf& coordinate);
// Scalars and sinks, which every function is given under the same names.
std::string constant_parameters(const Body& body);
std::string constant_arguments(const Body& body);

// Of a body with reductions: struct Row, what is known of a row; struct Partial<pass>, accumulators
// of the pass; struct ColumnPartial, those of a column, which `visit` takes second, with whether
// the row is to enter them; and
//   begin_row(row, inputs..., constants..., offset of each input)  values before any pass; with
//   reductions of columns load_row, with the same arguments, has read the inputs
//   visit<pass>(partial, row, elements..., constants..., index, v<live in>..., k<live out>...,
//   y<output>..., guard)                                         an element enters
//   finish(row, partial, constants..., elements)                 results of a pass
//   leave(row, outputs..., constants..., offset of each output)  results are written
//   leave_column(partial, outputs..., constants..., offset of each output, elements)
std::string row_functions(const Body& body, const Schedule& schedule,
                          const std::vector<RowPass>& passes);
// `before_wait`: it is called before the wait for the previous kernel.
std::string row_struct(const Body& body, bool before_wait = false);  // with begin_row
std::string leave(const Body& body);
// Whether a value of the pass takes a Guard (prelude.inl): its result is right unless that fails.
bool is_guarded(const Body& body, const RowPass& pass);
bool has_row_values(const Body& body);  // else begin_row has nothing to do
std::string begin_call(const Body& body, std::string_view row, std::string_view offset);
std::string load_call(const Body& body, std::string_view row, std::string_view offset);
std::string finish_call(const Body& body, std::string_view row, std::string_view partial);
std::string leave_call(const Body& body, std::string_view row, std::string_view offset);
std::size_t partial_size_of(const Body& body, const std::vector<int>& reductions);

// A kernel: a device function of (block, memory, arguments...) and the entry around it.
struct Kernel {
  struct Parameter {
    std::string type, name;
    bool large = false;
  };
  std::string function = "run", suffix = {};  // the entry is the body's name and the suffix
  int threads = 256;
  int cluster = 1;                   // blocks of a cluster, along y
  bool reads_inputs = true;          // else it takes no pointers to them
  std::vector<Parameter> last = {};  // what it takes after outputs, inputs and constants
  std::string memory = {};           // the type of its shared memory; "": none
  std::string statements = {};
};
std::string kernel_of(const Body& body, const Kernel& kernel);
// Its function alone, and what an entry takes and passes on for it; names end in `suffix`.
std::string function_of(const Body& body, const Kernel& kernel);
std::string entry_parameters(const Body& body, const Kernel& kernel, std::string_view suffix = "");
std::string entry_arguments(const Body& body, const Kernel& kernel, std::string_view suffix = "");
// `source` in the body's namespace.
std::string of_body(const Body& body, std::string_view text);

}  // namespace pieces

// The two families of CUDA kernels.
std::string render_pointwise(const Body& body, const Schedule& schedule);
std::string render_reduction(const Body& body, const Schedule& schedule);

}  // namespace brrr::jit
