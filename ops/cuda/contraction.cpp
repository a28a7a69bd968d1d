#include "brrr/ops/cuda/contraction.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>

#include "brrr/ops/cuda/contraction_tiles.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::optional<Roles> roles_of(const BodySpec& spec, const Dims& a, const Dims& b) {
  Roles roles;
  for (int d = 0; d < spec.dims.size(); ++d) {
    const bool in_a = a[d] != 0, in_b = b[d] != 0;
    if (spec.reduced >> d & 1) {
      if (!in_a || !in_b) return {};
      roles.summed.push_back(d);
    } else if (in_a && in_b) {
      roles.batches.push_back({d});
    } else if (in_a) {
      roles.rows.push_back(d);
    } else if (in_b) {
      roles.columns.push_back(d);
    } else if (spec.dims[d] != 1) {
      return {};
    }
  }
  return roles;
}

// Orders dimensions by an operand's strides, largest first, and gives the stride of their joint
// index.
std::optional<int64_t> join(const BodySpec& spec, const Dims& strides, std::vector<int>& dims) {
  std::ranges::sort(dims, [&](int p, int q) { return strides[p] > strides[q]; });
  return joint_stride(spec, strides, dims);
}

// Batches that both factors pass through as one become one.
void join_batches(const BodySpec& spec, const Dims& a, const Dims& b, Roles& roles) {
  for (std::size_t i = 0; i + 1 < roles.batches.size();) {
    std::vector<int> both = roles.batches[i];
    both.insert(both.end(), roles.batches[i + 1].begin(), roles.batches[i + 1].end());
    if (!joint_stride(spec, a, both) || !joint_stride(spec, b, both)) {
      ++i;
      continue;
    }
    roles.batches[i] = std::move(both);
    roles.batches.erase(roles.batches.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// Outputs that do not vary along any of `dims`, as bits; none if one varies along some of them, or
// does not vary along some of `batch`.
std::optional<std::uint32_t> constant_outputs(const BodySpec& spec, std::span<const Dims> strides,
                                              const std::vector<int>& dims,
                                              const std::vector<int>& batch) {
  std::uint32_t constant = 0;
  const std::size_t inputs = spec.body.inputs.size();
  for (std::size_t k = inputs; k < strides.size(); ++k) {
    const auto moves = [&](int d) { return strides[k][d] != 0; };
    if (!std::ranges::all_of(batch, moves)) return {};
    if (dims.empty() || std::ranges::all_of(dims, moves)) continue;
    if (std::ranges::any_of(dims, moves)) return {};
    constant |= 1u << (k - inputs);
  }
  return constant;
}

int64_t count_of(const BodySpec& spec, const std::vector<int>& dims) {
  int64_t count = 1;
  for (const int d : dims) count *= spec.dims[d];
  return count;
}

// The largest number that every stride of the batch is a multiple of.
int64_t common_stride(const Dims& strides) {
  int64_t common = 0;
  for (const int64_t stride : strides) common = std::gcd(common, stride);
  return common;
}

int64_t batches_of(const MatrixProduct& p) {
  int64_t batches = 1;
  for (const int64_t size : p.batch) batches *= size;
  return batches;
}

SmallFactors factors_of(const MatrixProduct& p) {
  return {p.a.row,
          p.a.col,
          p.b.row,
          p.b.col,
          static_cast<std::int32_t>(p.m),
          static_cast<std::int32_t>(p.n),
          static_cast<std::int32_t>(p.k)};
}

}  // namespace

std::optional<int64_t> joint_stride(const BodySpec& spec, const Dims& strides,
                                    const std::vector<int>& dims) {
  for (std::size_t i = 0; i + 1 < dims.size(); ++i) {
    if (strides[dims[i]] != strides[dims[i + 1]] * spec.dims[dims[i + 1]]) return {};
  }
  return dims.empty() ? 0 : strides[dims.back()];
}

std::optional<Contraction> contraction_of(const BodySpec& spec, std::span<const Dims> strides) {
  const jit::Body& body = spec.body;
  const jit::Body::Value& value = body.value(body.contraction());
  Contraction c;
  c.a = body.value(value.operands[0]).number;
  c.b = body.value(value.operands[1]).number;
  const Dims &a = strides[at(c.a)], &b = strides[at(c.b)];
  std::optional<Roles> roles = roles_of(spec, a, b);
  if (!roles) return {};
  const auto a_row = join(spec, a, roles->rows), b_col = join(spec, b, roles->columns),
             a_col = join(spec, a, roles->summed), b_row = join(spec, b, roles->summed);
  if (!a_row || !b_col || !a_col || !b_row) return {};
  // Both factors must pass through the summed dimensions in one order.
  std::vector<int> summed = roles->summed;
  if (join(spec, a, summed) != a_col || summed != roles->summed) return {};
  join_batches(spec, a, b, *roles);
  std::vector<int> batch;
  for (const std::vector<int>& dims : roles->batches)
    batch.insert(batch.end(), dims.begin(), dims.end());
  const auto first_row = constant_outputs(spec, strides, roles->rows, batch),
             first_column = constant_outputs(spec, strides, roles->columns, batch);
  if (!first_row || !first_column) return {};
  c.first_row = *first_row, c.first_column = *first_column;
  MatrixProduct& p = c.product;
  p.m = count_of(spec, roles->rows);
  p.n = count_of(spec, roles->columns);
  p.k = count_of(spec, roles->summed);
  p.a.row = *a_row, p.a.col = *a_col, p.b.row = *b_row, p.b.col = *b_col;
  Dims sizes;
  std::vector<int> order = batch;
  for (const std::vector<int>& dims : roles->batches) {
    p.batch.push_back(count_of(spec, dims));
    p.a.batch.push_back(a[dims.back()]);
    p.b.batch.push_back(b[dims.back()]);
  }
  order.insert(order.end(), roles->rows.begin(), roles->rows.end());
  order.insert(order.end(), roles->columns.begin(), roles->columns.end());
  for (const int d : order) sizes.push_back(spec.dims[d]);
  if (sizes.empty()) sizes.push_back(1);
  c.results = space_of(sizes);
  for (const Dims& operand : strides) {
    Dims of;
    for (const int d : order) of.push_back(operand[d]);
    if (of.empty()) of.push_back(0);
    add_operand(c.results, sizes, of);
  }
  coalesce(c.results);
  c.roles = std::move(*roles);
  return c;
}

namespace {

bool is_small(const BodySpec& spec, const Contraction& c) {
  MatrixProduct shape = c.product;
  if (shape.batch.size() > 1) shape.batch = Dims{batches_of(shape)};  // the kernel takes any batch
  return is_small(shape, spec.body.inputs[at(c.a)].dtype, matmul_precision() == Precision::tf32);
}

bool is_for_tiles(Device device, const BodySpec& spec, const Contraction& c,
                  std::span<const Dims> strides, bool aligned) {
  const DType dtype = spec.body.inputs[at(c.a)].dtype;
  return (is_half(dtype) || (dtype == f32 && matmul_precision() == Precision::tf32)) &&
         jit::architecture_of(device) == 90 && tiles_support(spec, c, strides, aligned);
}

// Cycles of products of one launch of tiles. `reduces`: one of them also reduces the lines of A.
int64_t cycles_of(std::span<const MatrixProduct> products, DType dtype, int multiprocessors,
                  bool reduces = false) {
  const TileConfig tiles = choose_tiles(products, dtype, multiprocessors, reduces);
  return predicted_cycles(products, dtype, tiles, multiprocessors);
}

// Tiles of both products keep all multiprocessors busy where those of each would leave some idle,
// and the epilogues of one overlap with the products of the other. `kLaunchCycles`: of a launch
// that is saved, about 1.3 us.
bool are_faster_in_one_launch(const std::array<MatrixProduct, 2>& products, DType dtype,
                              int multiprocessors, bool reduces = false) {
  constexpr int64_t kLaunchCycles = 2500;
  const std::span<const MatrixProduct> both = products;
  return cycles_of(both, dtype, multiprocessors, reduces) <
         cycles_of(both.first(1), dtype, multiprocessors) +
             cycles_of(both.last(1), dtype, multiprocessors) + kLaunchCycles;
}

// Whether tiles reduce the lines of A beside a product for less than the 5 us of a kernel of its
// own. Their results end each tile, so a tile needs many slices; and tiles that split the summed
// dimension reduce nothing. What is reduced is the gradient of a bias, the product that of a
// weight: it shares a launch with the gradient of the layer's input where that is faster, and then
// is not split anyway. Steps of 16-bit models on an H200 with bias gradients in the products and on
// their own, in us: MLPs of 2048 x 1024 x 8 274 and 305, 1024 x 1024 x 8 201 and 230; a transformer
// of 8 x 512 x 512 x 4 1216 and 1247; with 8 slices, MLPs of 512 x 2048 x 6 289 and 288; in place
// of splits, 4096 x 512 x 8 304 and 277 (nvidia-h200-2026-11-25-line-sums.json).
bool is_worth_reducing(const MatrixProduct& p, DType dtype, int multiprocessors) {
  constexpr int64_t kLeastDepth = 1024, kMostCycles = 1000;
  if (p.k < kLeastDepth) return false;
  MatrixProduct of_input;
  of_input.m = p.k, of_input.n = p.n, of_input.k = p.m;
  const std::array both{of_input, p};
  const auto takes_as_long = [&](std::span<const MatrixProduct> products) {
    return cycles_of(products, dtype, multiprocessors, true) <=
           cycles_of(products, dtype, multiprocessors) + kMostCycles;
  };
  return takes_as_long(std::span(both).last(1)) ||
         (are_faster_in_one_launch(both, dtype, multiprocessors) && takes_as_long(both));
}

}  // namespace

// Tiles are about as fast as the library. Measured on an H200, bf16 4096 x 2048 x 512: a residual
// costs 1 to 1.5 us of what a kernel of its own takes; a gelu, with its exponential and two
// results, 9 to 12, no less than a kernel of its own; steps take as long or 1 % longer. Of long
// products tiles are slower: 8192 x 4096 x 4096 takes 367 us where the library takes 350, and 483
// with three tensors to stage, which take memory from stages of factors
// (nvidia-h200-2026-11-23-column-sums.json, -25-tiled-launches.json).
bool is_generated(Device device, const BodySpec& spec, std::span<const Dims> strides,
                  bool aligned) {
  constexpr int64_t kMostOfResult = 8;  // FLOPs after the product
  constexpr int64_t kMostFlops = int64_t{1} << 37;
  const std::optional<Contraction> c = contraction_of(spec, strides);
  if (!c) return false;
  if (is_small(spec, *c)) return true;
  const MatrixProduct& p = c->product;
  if (spec.flops > kMostFlops || !is_for_tiles(device, spec, *c, strides, aligned)) return false;
  const bool reduces = c->first_column != 0;
  if (reduces &&
      !is_worth_reducing(p, spec.body.inputs[at(c->a)].dtype, jit::multiprocessors_of(device)))
    return false;
  const int64_t results = batches_of(p) * p.m * p.n;
  const int64_t after = spec.flops - 2 * results * p.k - (reduces ? p.m * p.k : 0);
  return after <= kMostOfResult * results;
}

// A batch with two strides would be a library call for each outer index, or copies. TF32 products
// with K-major factors take 0.79 to 1.01 of the library's time up to 9 Gflop, 1.03 at 275
// (bench/results/nvidia-h200-2026-11-22-tiles.json). 16-bit products take as long as the library's
// in isolation, but made steps 4 % slower (nvidia-h200-2026-11-23-steps.json).
bool is_better_alone(Device device, const BodySpec& spec, std::span<const Dims> strides,
                     bool aligned) {
  constexpr int64_t kMostFlops = int64_t{1} << 35;
  const std::optional<Contraction> c = contraction_of(spec, strides);
  if (!c || is_small(spec, *c)) return false;
  const MatrixProduct& p = c->product;
  const bool is_f32 = spec.body.inputs[at(c->a)].dtype == f32;
  const bool is_measured = is_f32 && spec.flops <= kMostFlops && std::min(p.m, p.n) >= 64;
  return (p.batch.size() > 1 || is_measured) && is_for_tiles(device, spec, *c, strides, aligned);
}

namespace {

using namespace jit::pieces;

// Reductions of a factor: each lane reduces what it loads of two lines, then lanes and warps are
// joined. `side` is a or b.
struct FactorReductions {
  FactorReductions(const jit::Body& of, int factor, char side) : body(of), side(side) {
    for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
      const jit::Body::Value& value = body.value(i);
      if (value.kind == jit::Body::Value::Kind::reduction && value.operands[0] == factor)
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
      const jit::Body::Value& value = body.value(r);
      std::string result = fmt::format(
          "finish{0}<{1}>(joined_lines(lines{0}, threadIdx.x {2} kTile, p.k, identity{0}<{1}>(), "
          "[]({1} x, {1} y) {{ return combine{0}<{1}>(x, y); }}), {1}(p.k))",
          r, type(r), side == 'a' ? '/' : '%');
      if (jit::is_rounded(body, r))
        result = fmt::format("rounded<{}>({})", c_name(value.dtype), result);
      text += fmt::format("  {} = {};\n", name_of_value(body, r), result);
    }
    return text;
  }

  const jit::Body& body;
  char side;
  std::vector<int> values;
};

std::string stores(const jit::Body& body, const Contraction& c) {
  std::string text;
  for (std::size_t o = 0; o < body.outputs.size(); ++o) {
    const jit::Body::TensorOperand& output = body.outputs[o];
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
  const jit::Body& body = *part.body;
  const Contraction& c = part.contraction;
  const int product = body.contraction();
  const jit::Body::Value& value = body.value(product);
  const FactorReductions of_a(body, value.operands[0], 'a'), of_b(body, value.operands[1], 'b');
  std::string sum = fmt::format(
      "tile.sum(p, *static_cast<float(*)[kWarps][kTile][kTile + 8]>(memory), [&](const FragmentA& "
      "a, const FragmentB& b, int k) {{\n{}{}  }})",
      of_a.visit(), of_b.visit());
  if (jit::is_rounded(body, product))
    sum = fmt::format("rounded<{}>({})", c_name(value.dtype), sum);
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

// A launch has the blocks of all parts, one after another. Blocks of the next kernel start once all
// blocks of this one have called start_next_kernel(), and may read what was written before this
// kernel's predecessor ended. So at least one block has waited for that before its call.
std::string contraction_text(std::span<const ContractionPart> parts) {
  const bool all_wait_last = std::ranges::all_of(parts, waits_last);
  std::string text(small_factors_text()), parameters, calls;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ContractionPart& part = parts[i];
    const Kernel kernel = kernel_of_part(part, !all_wait_last);
    const std::string number = fmt::format("_{}", i);
    text += fmt::format("namespace part{} {{\n{}{}{}{}}}  // namespace part{}\n", number,
                        matmul_small_text(part.schedule), functions(*part.body),
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

namespace {

struct PartOfGrid {
  std::uint32_t columns, rows, blocks;
};

// A part with what a launch of it takes. Arguments point into it.
struct PreparedPart {
  // `first`: the number of the body's first input among those of the launch.
  PreparedPart(const BodySpec& spec, Contraction found, const Tensor* const* inputs,
               const Tensor* outputs, const std::vector<bool>& prefetchable, std::size_t first)
      : part{&spec.body, std::move(found), {}} {
    const jit::Body& body = spec.body;
    const Contraction& c = part.contraction;
    factors = factors_of(c.product);
    part.schedule = small_schedule(factors, body.inputs[at(c.a)].dtype, inputs[c.a]->data(),
                                   common_stride(c.product.a.batch), inputs[c.b]->data(),
                                   common_stride(c.product.b.batch));
    // Element by element a factor's loads need the first-level cache, which may be stale.
    const auto prefetches = [&](int input) {
      return first + at(input) < prefetchable.size() && prefetchable[first + at(input)];
    };
    part.prefetch_a = part.schedule.a != OperandLayout::strided && prefetches(c.a);
    part.prefetch_b = part.schedule.b != OperandLayout::strided && prefetches(c.b);
    part.prefetch_others = true;
    for (int i = 0; i < static_cast<int>(body.inputs.size()); ++i)
      part.prefetch_others &= i == c.a || i == c.b || prefetches(i);
    jit::fill(results, c.results, 1);
    const Grid of = small_grid(factors, batches_of(c.product));
    grid = {static_cast<std::uint32_t>(of.x), static_cast<std::uint32_t>(of.y),
            static_cast<std::uint32_t>(of.x * of.y * of.z)};
    for (std::size_t o = 0; o < body.outputs.size(); ++o) data.push_back(outputs[o].data());
    for (std::size_t i = 0; i < body.inputs.size(); ++i) data.push_back(inputs[i]->data());
    for (void*& address : data) arguments.push_back(&address);
    for (const std::uint64_t& bits : spec.scalars)
      arguments.push_back(const_cast<std::uint64_t*>(&bits));
    arguments.insert(arguments.end(), {&results, &factors, &grid});
  }
  PreparedPart(const PreparedPart&) = delete;

  ContractionPart part;
  SmallFactors factors{};
  jit::Geometry results;
  PartOfGrid grid{};
  std::vector<void*> data, arguments;
};

}  // namespace

// Blocks wait for memory most of their time, so four share a multiprocessor: on an H200 the step of
// 8 layers of 256 x 256 with 128 rows takes 58.3 us where 384 blocks are one launch and 63.6 where
// they are two, in bf16 47.7 and 55.2 (nvidia-h200-2026-11-24-small-steps.json). Tiles take all.
double share_of_device(Device device, const BodySpec& spec, std::span<const Dims> strides) {
  constexpr double kBlocksOfMultiprocessor = 4;
  const std::optional<Contraction> c = contraction_of(spec, strides);
  if (!c || !is_small(spec, *c)) return 1;
  const Grid grid = small_grid(factors_of(c->product), batches_of(c->product));
  return static_cast<double>(grid.x * grid.y * grid.z) /
         (kBlocksOfMultiprocessor * jit::multiprocessors_of(device));
}

namespace {

bool fits_tile_ranges(const MatrixProduct& p) {
  constexpr int64_t kMostTiles = 65535;  // what a TileRanges counts to
  return batches_of(p) * ceil_div(p.m, 64) * ceil_div(p.n, 64) <= kMostTiles;
}

}  // namespace

bool are_better_together(Device device, const BodyStrides& one, const BodyStrides& other) {
  const std::optional<Contraction> c = contraction_of(one.spec, one.strides),
                                   d = contraction_of(other.spec, other.strides);
  if (!c || !d || is_small(one.spec, *c) != is_small(other.spec, *d)) return false;
  if (is_small(one.spec, *c))
    return on_cuda::share_of_device(device, one.spec, one.strides) +
               on_cuda::share_of_device(device, other.spec, other.strides) <=
           1;
  const DType dtype = one.spec.body.inputs[at(c->a)].dtype;
  const std::array products{c->product, d->product};
  return other.spec.body.inputs[at(d->a)].dtype == dtype &&
         std::ranges::all_of(products, fits_tile_ranges) &&
         are_faster_in_one_launch(products, dtype, jit::multiprocessors_of(device),
                                  (c->first_column | d->first_column) != 0);
}

void run_contraction(const BodySpec& spec, const Tensor* const* inputs, const Tensor* outputs,
                     const std::vector<bool>& prefetchable) {
  cu::CudaStream& stream = cu::current_stream(outputs[0].device());
  const auto operands_of = [&](const BodySpec& of) {
    std::vector<const Tensor*> operands(inputs, inputs + of.body.inputs.size());
    for (std::size_t o = 0; o < of.body.outputs.size(); ++o) operands.push_back(outputs + o);
    return operands;
  };
  const auto strides_of = [](const std::vector<const Tensor*>& operands) {
    std::vector<Dims> strides;
    for (const Tensor* t : operands) {
      strides.emplace_back(t->strides());
      for (int d = 0; d < t->rank(); ++d) {
        if (t->size(d) == 1) strides.back()[d] = 0;
      }
    }
    return strides;
  };
  const auto contraction = [&](const BodySpec& of, const std::vector<Dims>& strides) {
    std::optional<Contraction> found = contraction_of(of, strides);
    if (!found) fail("[{}] expected factors with one stride a dimension", of.body.name);
    return std::move(*found);
  };
  if (!is_small(spec, contraction(spec, strides_of(operands_of(spec))))) {
    std::vector<TilePart> parts;
    for (const BodySpec* each = &spec; each; each = each->beside.get()) {
      const std::vector<const Tensor*> operands = operands_of(*each);
      TilePart& part = parts.emplace_back(each);
      part.strides = strides_of(operands);
      part.contraction = contraction(*each, part.strides);
      for (const Tensor* t : operands) part.data.push_back(t->data());
      inputs += each->body.inputs.size();
      outputs += each->body.outputs.size();
    }
    return run_tiles(parts, stream);
  }
  std::deque<PreparedPart> prepared;
  std::vector<ContractionPart> parts;
  std::vector<void*> arguments;
  std::size_t first = 0;
  int64_t blocks = 0;
  for (const BodySpec* each = &spec; each; each = each->beside.get()) {
    const PreparedPart& part =
        prepared.emplace_back(*each, contraction(*each, strides_of(operands_of(*each))), inputs,
                              outputs, prefetchable, first);
    first += each->body.inputs.size();
    inputs += each->body.inputs.size();
    outputs += each->body.outputs.size();
    parts.push_back(part.part);
    arguments.insert(arguments.end(), part.arguments.begin(), part.arguments.end());
    blocks += part.grid.blocks;
  }
  const CUfunction kernel = jit::load_kernel(stream.device, "contraction", contraction_text(parts),
                                             {.fast = parts[0].body->fast});
  launch_programmatic(kernel, {blocks}, kSmallThreads, stream, arguments.data());
}

}  // namespace brrr::on_cuda
