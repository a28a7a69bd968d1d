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
  // Of a fragment that is loaded.
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
          "  share_lines<Fragment{2}>(part{0}, lines{0}, []({1} x, {1} y) {{ return "
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
      "tile.sum(p, *static_cast<float(*)[kWarps][kTile][kTile + 8]>(memory), [&](const FragmentA& "
      "a, const FragmentB& b, int k) {{\n{}{}  }})",
      of_a.visit(), of_b.visit());
  if (is_rounded(body, product)) sum = fmt::format("rounded<{}>({})", c_name(value.dtype), sum);
  const Loads loads = loads_of(part, starts_next_first);
  Kernel kernel;
  kernel.last = {{fmt::format("Geometry<{}>", body.operands()), "results"}, {"SmallFactors", "p"}};
  kernel.statements = fmt::format(
      "  const i64 matrix = i64(block.z()) * p.m * p.n;\n"
      "  i64 offset[{0}];\n"
      "  locate<{1}, {2}>(results, matrix, offset);\n"
      "  SmallTile tile{{reinterpret_cast<const Bits*>(in{3}) + offset[{3}], "
      "reinterpret_cast<const Bits*>(in{4}) + offset[{4}], int(block.y()) * kTile, "
      "int(block.x()) * kTile}};\n"
      "  const int line = tile.row0 + threadIdx.x / kTile, column = tile.col0 + threadIdx.x % "
      "kTile;\n"
      "  const bool inside = line < p.m && column < p.n;\n"
      "  locate<{1}, {2}>(results, inside ? matrix + i64(line) * p.n + column : matrix, offset);\n"
      "  Row row;\n{5}{6}{7}"
      "  {8} = {9};\n",
      body.operands(), c.results.rank, !is_narrow(c.results), c.a, c.b, loads.before, of_a.begin(),
      of_b.begin(), name_of_value(body, product), sum);
  if (!of_a.values.empty() || !of_b.values.empty()) {
    kernel.statements +=
        of_a.share() + of_b.share() + "  __syncthreads();\n" + of_a.results() + of_b.results();
  }
  kernel.statements += loads.after + "  if (!inside) return;\n" +
                       statements(body, passes_of(body).front().results) + stores(body, c);
  return kernel;
}

}  // namespace

ContractionPart contraction_part(const BodySpec& spec, Contraction contraction,
                                 FactorAlignment alignment,
                                 const std::function<bool(int)>& is_final) {
  ContractionPart part{&spec.body, std::move(contraction), {}};
  const Contraction& c = part.contraction;
  part.schedule = small_schedule(c.product, c.dtype, alignment);
  // Element by element a factor's loads need the first-level cache, which may be stale.
  part.prefetch_a = part.schedule.a != OperandLayout::strided && is_final(c.a);
  part.prefetch_b = part.schedule.b != OperandLayout::strided && is_final(c.b);
  part.prefetch_others = true;
  for (int i = 0; i < static_cast<int>(spec.body.inputs.size()); ++i)
    part.prefetch_others &= i == c.a || i == c.b || is_final(i);
  return part;
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
    text += fmt::format("namespace part{} {{\n{}{}{}{}}}  // namespace part{}\n", number,
                        matmul_small_source(part.schedule), functions(*part.body),
                        row_struct(*part.body, part.prefetch_others),
                        function_of(*part.body, kernel), number);
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
