#include "brrr/ops/jit/render_contraction.h"

#include <fmt/format.h>

#include <algorithm>

#include "brrr/ops/jit/render.h"

namespace brrr::jit {
namespace {

using namespace pieces;

// Reductions of a factor: each lane reduces what it loads of two lines, then lanes and warps are
// joined. `side` is a or b.
struct FactorReductions {
  FactorReductions(const Body& of, int factor, char side) : body(of), side(side) {
    for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
      const BodyValue& value = body.value(i);
      if (value.kind == BodyValue::Kind::reduction && value.operands[0] == factor)
        values.push_back(i);
    }
  }

  std::string type(int r) const { return std::string(register_name(body.value(r).type)); }

  // Before the product: accumulators.
  std::string begin() const {
    std::string text;
    for (const int r : values) {
      text += fmt::format(
          "  __shared__ {0} lines{1}[kWarps][kTile];\n"
          "  {0} part{1}[2] = {{identity{1}<{0}>(), identity{1}<{0}>()}};\n",
          type(r), r);
    }
    return text;
  }
  // Of an operand that is loaded.
  std::string visit() const {
    if (values.empty()) return "";
    std::string text = fmt::format(
        "    if (tile.{}0 == 0) each_element({}, k, p.k, [&](int set, "
        "Register<Element> x) {{\n",
        side == 'a' ? "col" : "row", side);
    for (const int r : values) {
      text += fmt::format("      part{0}[set] = combine{0}<{1}>(part{0}[set], map{0}<{1}>(x));\n",
                          r, type(r));
    }
    return text + "    });\n";
  }
  // After it: shared memory has the lines of each warp.
  std::string share() const {
    std::string text;
    for (const int r : values) {
      text += fmt::format(
          "  share_lines<Factor{2}::Operand>(part{0}, lines{0}, []({1} x, {1} y) {{ return "
          "combine{0}<{1}>(x, y); }});\n",
          r, type(r), side == 'a' ? "A" : "B");
    }
    return text;
  }
  // The results of this thread's row or column.
  std::string results() const {
    std::string text;
    for (const int r : values) {
      const BodyValue& value = body.value(r);
      std::string result = fmt::format(
          "finish{0}<{1}>(joined_lines(lines{0}, threadIdx.x {2} kTile, p.k, identity{0}<{1}>(), "
          "[]({1} x, {1} y) {{ return combine{0}<{1}>(x, y); }}), {1}(p.k))",
          r, type(r), side == 'a' ? '/' : '%');
      if (is_rounded(body, r)) result = fmt::format("rounded<{}>({})", c_name(value.dtype), result);
      text += fmt::format("  {} = {};\n", name_of_value(body, r), result);
    }
    return text;
  }

  const Body& body;
  char side;
  std::vector<int> values;
};

bool is_computed(const Body& body, const ContractionFactor& factor) {
  return body.value(factor.value).kind != BodyValue::Kind::input;
}

// How a kernel gets one factor: `side` is a or b.
struct FactorSource {
  FactorSource(const ContractionPart& of, char side)
      : part(of),
        body(*of.body),
        factor(side == 'a' ? of.contraction.a : of.contraction.b),
        layouts(side == 'a' ? of.computed_a : of.computed_b),
        name(fmt::format("Factor{}", side == 'a' ? 'A' : 'B')),
        side(side) {
    if (!is_computed(body, factor)) return;
    for (const int value : values_of_factor(body, factor.value)) {
      const bool is_scalar = body.value(value).kind == BodyValue::Kind::scalar;
      (is_scalar ? scalars : values).push_back(is_scalar ? body.value(value).number : value);
    }
  }

  // Its type.
  std::string type() const {
    if (!is_computed(body, factor)) {
      return fmt::format("typedef StoredFactor<{}> {};\n",
                         name_of(side == 'a' ? part.schedule.a : part.schedule.b), name);
    }
    const bool pairs = layouts.front() == OperandLayout::mn_contiguous;
    std::string fields, loaded, loads, elements;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const int number = factor.inputs[i].number;
      const DType dtype = body.inputs[static_cast<std::size_t>(number)].dtype;
      fields += fmt::format("  Lines<{}> in{};\n", c_name(dtype), number);
      loaded += fmt::format("    Fragment<{}, {}, {}> x{};\n", c_name(dtype), name_of(layouts[i]),
                            pairs, number);
      loads += fmt::format("    to.x{0}.read(in{0}, line0, count, k, depth);\n", number);
      elements += fmt::format("  const {0} x{1} = loaded.x{1}.element(set, i);\n",
                              register_name(dtype), number);
    }
    for (const int scalar : scalars) {
      fields += fmt::format("  {} s{};\n", c_name(body.scalars[static_cast<std::size_t>(scalar)]),
                            scalar);
    }
    return fmt::format(
        "struct {0} {{\n  struct Loaded {{\n{1}  }};\n"
        "  typedef Fragment<Element, k_contiguous, {2}> Operand;\n{3}"
        "  BRRR_SCALAR_FN void load(Loaded& to, int line0, int count, int k, int depth) const {{\n"
        "{4}  }}\n"
        "  BRRR_SCALAR_FN Operand operand(const Loaded& loaded, int k, int depth) const {{\n"
        "    return computed<Operand>(k, depth, [&](int set, int i) {{\n"
        "{5}{6}  return {7};\n    }});\n  }}\n}};\n",
        name, loaded, pairs, fields, loads, elements, statements(body, values),
        converted(body, factor.value, part.contraction.dtype));
  }

  // An object of the type. `computed`: inputs of computed factors before those of this one.
  std::string object(std::size_t computed) const {
    std::string text;
    const auto add = [&](std::string_view line, std::string_view step, int number) {
      text += fmt::format("{}{{in{} + offset[{}], {}, {}}}", text.empty() ? "" : ", ", number,
                          number, line, step);
    };
    if (!is_computed(body, factor)) {
      const bool is_a = side == 'a';
      add(is_a ? "p.a_row" : "p.b_col", is_a ? "p.a_col" : "p.b_row", factor.first());
      return fmt::format("{}{{{}}}", name, text);
    }
    for (const ContractionFactor::Input& input : factor.inputs) {
      add(fmt::format("strides.of[{}]", 2 * computed),
          fmt::format("strides.of[{}]", 2 * computed + 1), input.number);
      ++computed;
    }
    for (const int scalar : scalars) text += fmt::format(", s{}", scalar);
    return fmt::format("{}{{{}}}", name, text);
  }

  const ContractionPart& part;
  const Body& body;
  const ContractionFactor& factor;
  const std::vector<OperandLayout>& layouts;
  std::string name;
  char side;
  std::vector<int> scalars = {}, values = {};  // numbers of scalars, and the other values
};

std::string stores(const Body& body, const Contraction& c) {
  std::string text;
  for (std::size_t o = 0; o < body.outputs.size(); ++o) {
    const Body::TensorOperand& output = body.outputs[o];
    text +=
        fmt::format("  {}{}out{}[offset[{}]] = narrow<{}>({});\n",
                    c.first_row >> o & 1 ? "if (line == 0) " : "",
                    c.first_column >> o & 1 ? "if (column == 0) " : "", o, body.inputs.size() + o,
                    c_name(output.dtype), converted(body, output.value, output.dtype));
  }
  return text;
}

bool waits_last(const ContractionPart& part) { return part.prefetch_a && part.prefetch_b; }

// The loads of a part and its wait for the previous kernel, before the product and after it.
// `starts_next_first`: of a part that waits last, the next kernel may start before that.
struct Loads {
  std::string before, after;
};
Loads loads_of(const ContractionPart& part, bool starts_next_first) {
  constexpr const char *kWait = "  wait_for_previous_kernel();\n",
                       *kStart = "  start_next_kernel();\n";
  std::string early, late;
  if (part.prefetch_a == part.prefetch_b) {
    (part.prefetch_a ? early : late) = "  tile.load(p);\n";
  } else {
    (part.prefetch_a ? early : late) = "  tile.load_a(p);\n";
    (part.prefetch_b ? early : late) = "  tile.load_b(p);\n";
  }
  (part.prefetch_others ? early : late) += "  " + begin_call(*part.body, "row", "offset") + "\n";
  if (!waits_last(part)) return {early + kWait + kStart + late, ""};
  if (starts_next_first) return {kStart + early, kWait + late};
  return {early, kWait + (kStart + late)};
}

// The kernel of one part, without an entry. `starts_next_first`: also where it waits last.
Kernel kernel_of_part(const ContractionPart& part, bool starts_next_first) {
  const Body& body = *part.body;
  const Contraction& c = part.contraction;
  const int product = body.contraction();
  const BodyValue& value = body.value(product);
  const FactorReductions of_a(body, value.operands[0], 'a'), of_b(body, value.operands[1], 'b');
  std::string sum = fmt::format(
      "tile.sum(p, *static_cast<float(*)[kWarps][kTile][kTile + 8]>(memory), [&](const "
      "FactorA::Operand& a, const FactorB::Operand& b, int k) {{\n{}{}  }})",
      of_a.visit(), of_b.visit());
  if (is_rounded(body, product)) sum = fmt::format("rounded<{}>({})", c_name(value.dtype), sum);
  const Loads loads = loads_of(part, starts_next_first);
  const FactorSource a(part, 'a'), b(part, 'b');
  Kernel kernel;
  kernel.last = {{fmt::format("Geometry<{}>", body.operands()), "results", true},
                 {"SmallFactors", "p"}};
  if (!part.computed_a.empty() || !part.computed_b.empty()) {
    kernel.last.push_back(
        {fmt::format("ComputedStrides<{}>", part.computed_a.size() + part.computed_b.size()),
         "strides"});
  }
  kernel.statements = fmt::format(
      "  const i64 matrix = i64(block.z()) * p.m * p.n;\n"
      "  i64 offset[{0}];\n"
      "  locate<{1}, {2}>(results, matrix, offset);\n"
      "  SmallTile<FactorA, FactorB> tile{{{3}, {4}, int(block.y()) * kTile, int(block.x()) * "
      "kTile}};\n"
      "  const int line = tile.row0 + threadIdx.x / kTile, column = tile.col0 + threadIdx.x % "
      "kTile;\n"
      "  const bool inside = line < p.m && column < p.n;\n"
      "  locate<{1}, {2}>(results, inside ? matrix + i64(line) * p.n + column : matrix, offset);\n"
      "  Row row;\n{5}{6}{7}"
      "  {8} = {9};\n",
      body.operands(), c.results.rank, !is_narrow(c.results), a.object(0),
      b.object(part.computed_a.size()), loads.before, of_a.begin(), of_b.begin(),
      name_of_value(body, product), sum);
  if (!of_a.values.empty() || !of_b.values.empty()) {
    kernel.statements +=
        of_a.share() + of_b.share() + "  __syncthreads();\n" + of_a.results() + of_b.results();
  }
  kernel.statements += loads.after + "  if (!inside) return;\n" +
                       statements(body, passes_of(body).front().results) + stores(body, c);
  return kernel;
}

}  // namespace

namespace {

std::vector<OperandLayout> computed_layouts(const Body& body, const ContractionFactor& factor,
                                            const Contraction& c, std::int64_t lines,
                                            const std::function<int(int)>& alignment_of) {
  if (!is_computed(body, factor)) return {};
  std::vector<FactorLines> inputs;
  std::vector<DType> types;
  std::vector<int> alignments;
  for (const ContractionFactor::Input& input : factor.inputs) {
    inputs.push_back(
        {lines, c.product.k, input.line_stride, input.depth_stride, &input.batch_strides});
    types.push_back(body.inputs[static_cast<std::size_t>(input.number)].dtype);
    alignments.push_back(alignment_of(input.number));
  }
  return layouts_of(inputs, types, alignments, c.dtype);
}

}  // namespace

ContractionPart contraction_part(const BodySpec& spec, Contraction contraction,
                                 const std::function<int(int)>& alignment_of,
                                 const std::function<bool(int)>& is_final) {
  ContractionPart part{&spec.body, std::move(contraction), {}};
  const Contraction& c = part.contraction;
  part.schedule =
      small_schedule(c.product, c.dtype, {alignment_of(c.a.first()), alignment_of(c.b.first())});
  part.computed_a = computed_layouts(spec.body, c.a, c, c.product.m, alignment_of);
  part.computed_b = computed_layouts(spec.body, c.b, c, c.product.n, alignment_of);
  // What is loaded at once is in registers: of more inputs than two, half as much.
  if (c.a.inputs.size() + c.b.inputs.size() > 2) part.schedule.ahead = 1;
  // Element by element a factor's loads need the first-level cache, which may be stale.
  const auto may_prefetch = [&](const ContractionFactor& factor, OperandLayout stored,
                                const std::vector<OperandLayout>& computed) {
    const bool is_strided =
        computed.empty() ? stored == OperandLayout::strided
                         : std::ranges::find(computed, OperandLayout::strided) != computed.end();
    return !is_strided && std::ranges::all_of(factor.inputs, [&](const auto& input) {
      return is_final(input.number);
    });
  };
  part.prefetch_a = may_prefetch(c.a, part.schedule.a, part.computed_a);
  part.prefetch_b = may_prefetch(c.b, part.schedule.b, part.computed_b);
  part.prefetch_others = true;
  for (int i = 0; i < static_cast<int>(spec.body.inputs.size()); ++i)
    part.prefetch_others &= c.a.reads(i) || c.b.reads(i) || is_final(i);
  return part;
}

std::vector<std::int64_t> strides_of_computed(const Body& body, const Contraction& c) {
  std::vector<std::int64_t> strides;
  for (const ContractionFactor* factor : {&c.a, &c.b}) {
    if (!is_computed(body, *factor)) continue;
    for (const ContractionFactor::Input& input : factor->inputs)
      strides.insert(strides.end(), {input.line_stride, input.depth_stride});
  }
  return strides;
}

// A launch has the blocks of all parts, one after another. Blocks of the next kernel start once all
// blocks of this one have called start_next_kernel(), and may read what was written before this
// kernel's predecessor ended. So at least one block has waited for that before its call.
std::string contraction_source(std::span<const ContractionPart> parts) {
  const bool all_wait_last = std::ranges::all_of(parts, waits_last);
  std::string text(small_factors_source()), parameters, calls;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ContractionPart& part = parts[i];
    const Kernel kernel = kernel_of_part(part, !all_wait_last);
    const std::string number = fmt::format("_{}", i);
    text += fmt::format(
        "namespace part{} {{\n{}{}{}{}{}{}}}  // namespace part{}\n", number,
        matmul_small_source(part.schedule.dtype, part.schedule.ahead), functions(*part.body),
        FactorSource(part, 'a').type(), FactorSource(part, 'b').type(),
        row_struct(*part.body, part.prefetch_others), function_of(*part.body, kernel), number);
    parameters += fmt::format("{}{}, PartOfGrid part{}", i ? ", " : "",
                              entry_parameters(*part.body, kernel, number), number);
    calls += fmt::format(
        "  if (index < part{0}.blocks) {{\n    part{0}::run(BlockOfPart{{part{0}.columns, "
        "part{0}.rows, index}}, memory, {1});\n    return;\n  }}\n  index -= part{0}.blocks;\n",
        number, entry_arguments(*part.body, kernel, number));
  }
  return text + fmt::format(
                    "extern \"C\" __global__ void __launch_bounds__({}) contraction({}) {{\n"
                    "  __shared__ alignas(16) char memory[sizeof(float[part_0::kWarps][part_0::"
                    "kTile][part_0::kTile + 8])];\n"
                    "  u32 index = blockIdx.x;\n{}}}\n",
                    kSmallThreads, parameters, calls);
}

}  // namespace brrr::jit
