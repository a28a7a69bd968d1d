#include "brrr/ops/cuda/contraction.h"

#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "brrr/ops/body_kernel.h"
#include "brrr/ops/cuda/matmul_tiles.h"
#include "brrr/ops/cuda/programmatic_launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/contraction_choice.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render_contraction.h"
#include "brrr/ops/jit/tile_epilogue.h"
#include "brrr/ops/matmul.h"
#include "brrr/tensor/cuda_runtime.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool takes_tf32() { return matmul_precision() == Precision::tf32; }

jit::MatmulTarget target_of(Device device) {
  return {jit::multiprocessors_of(device), jit::architecture_of(device), takes_tf32()};
}

}  // namespace

bool has_tiles(Device device) { return target_of(device).has_tiles(); }

bool is_generated(Device device, const BodySpec& spec, std::span<const Dims> strides,
                  bool aligned) {
  return jit::is_generated({spec, strides}, aligned, target_of(device));
}

bool is_better_alone(Device device, const BodySpec& spec, std::span<const Dims> strides,
                     bool aligned) {
  return jit::is_better_alone({spec, strides}, aligned, target_of(device));
}

double share_of_device(Device device, const BodySpec& spec, std::span<const Dims> strides) {
  return jit::share_of_device({spec, strides}, target_of(device));
}

bool are_better_together(Device device, const BodyStrides& one, const BodyStrides& other) {
  return jit::are_better_together(one, other, target_of(device));
}

namespace {

// A body of a launch, with its operands: inputs, then outputs.
struct BodyInLaunch {
  const BodySpec* spec = nullptr;
  int first = 0;  // the number of its first input among those of the launch
  std::vector<Dims> strides;
  std::vector<void*> data;
  jit::Contraction contraction;

  void* address(int operand) const { return data[at(operand)]; }
};

std::vector<BodyInLaunch> bodies_of(const BodySpec& spec, const Tensor* const* inputs,
                                    const Tensor* outputs, const jit::MatmulTarget& target) {
  std::vector<BodyInLaunch> bodies;
  int first = 0;
  for (const BodySpec* each = &spec; each; each = each->next.get()) {
    BodyInLaunch& body = bodies.emplace_back();
    body.spec = each;
    body.first = first;
    const auto add = [&](const Tensor& t) {
      body.strides.push_back(strides_of(t));
      body.data.push_back(t.data());
    };
    const std::size_t read = each->body.inputs.size(), written = each->body.outputs.size();
    for (std::size_t i = 0; i < read; ++i) add(*inputs[i]);
    for (std::size_t o = 0; o < written; ++o) add(outputs[o]);
    std::optional<jit::Contraction> found = jit::contraction_for({*each, body.strides}, target);
    if (!found) fail("[{}] expected factors with one stride a dimension", each->body.name);
    body.contraction = std::move(*found);
    first += static_cast<int>(read), inputs += read, outputs += written;
  }
  return bodies;
}

struct PartOfGrid {
  std::uint32_t columns, rows, blocks;
};

// A part of a launch with what the entry takes for it. Arguments point into it.
struct PreparedPart {
  PreparedPart(const BodyInLaunch& of, const std::vector<bool>& prefetchable)
      : part(jit::contraction_part(
            *of.spec, of.contraction, [&](int input) { return alignment_of(of.address(input)); },
            [&](int input) {
              const std::size_t number = at(of.first + input);
              return number < prefetchable.size() && prefetchable[number];
            })) {
    const jit::Body& body = of.spec->body;
    const jit::Contraction& c = part.contraction;
    factors = jit::small_factors(c.product);
    jit::fill(results, c.results, 1);
    const jit::SmallGrid blocks = jit::small_grid(c.product);
    grid = {static_cast<std::uint32_t>(blocks.columns), static_cast<std::uint32_t>(blocks.rows),
            static_cast<std::uint32_t>(blocks.blocks())};
    const auto first_output = of.data.begin() + static_cast<std::ptrdiff_t>(body.inputs.size());
    data.assign(first_output, of.data.end());
    data.insert(data.end(), of.data.begin(), first_output);
    for (void*& address : data) arguments.push_back(&address);
    for (const std::uint64_t& bits : of.spec->scalars)
      arguments.push_back(const_cast<std::uint64_t*>(&bits));
    arguments.insert(arguments.end(), {&results, &factors});
    strides = jit::strides_of_computed(body, c);
    if (!strides.empty()) arguments.push_back(strides.data());
    arguments.push_back(&grid);
  }
  PreparedPart(const PreparedPart&) = delete;

  jit::ContractionPart part;
  jit::SmallFactors factors{};
  std::vector<std::int64_t> strides;  // of computed factors
  jit::Geometry results;
  PartOfGrid grid{};
  std::vector<void*> data, arguments;  // outputs, then inputs
};

void run_small(std::span<const BodyInLaunch> bodies, const std::vector<bool>& prefetchable,
               cu::CudaStream& stream) {
  std::deque<PreparedPart> prepared;
  std::vector<jit::ContractionPart> parts;
  std::vector<void*> arguments;
  int64_t blocks = 0;
  for (const BodyInLaunch& body : bodies) {
    const PreparedPart& part = prepared.emplace_back(body, prefetchable);
    parts.push_back(part.part);
    arguments.insert(arguments.end(), part.arguments.begin(), part.arguments.end());
    blocks += part.grid.blocks;
  }
  const CUfunction kernel = jit::load_kernel(
      stream.device, "contraction", contraction_source(parts), {.fast = parts[0].body->fast});
  launch_programmatic(kernel, {blocks}, jit::kSmallThreads, stream, arguments.data());
}

bool is_aligned(const void* address) { return alignment_of(address) >= 16; }

void run_tiles(std::span<const BodyInLaunch> bodies, cu::CudaStream& stream) {
  const DType dtype = bodies.front().contraction.dtype;
  std::vector<jit::TiledProduct> products;
  std::vector<TileOperands> operands;
  std::vector<jit::BodyEpilogue> epilogues;
  for (const BodyInLaunch& body : bodies) {
    const jit::Contraction& c = body.contraction;
    const void *a = body.address(c.a.first()), *b = body.address(c.b.first());
    if (!jit::tiles_support(c.product, dtype, is_aligned(a) && is_aligned(b)))
      fail("[{}] expected factors whose rows begin at multiples of 16 bytes", body.spec->body.name);
    std::uint32_t aligned = 0;
    for (std::size_t k = 0; k < body.data.size(); ++k)
      aligned |= std::uint32_t{is_aligned(body.data[k])} << k;
    jit::BodyEpilogue& epilogue =
        epilogues.emplace_back(jit::body_epilogue({*body.spec, body.strides}, c, aligned));
    for (const jit::BodyEpilogue::Address& each : epilogue.addresses)
      epilogue.words[each.word] = reinterpret_cast<std::uintptr_t>(body.address(each.operand));
    TileOperands& of = operands.emplace_back(TileOperands{a, b, {}});
    for (const int operand : epilogue.staged) of.staged.push_back(body.address(operand));
    products.push_back({c.product, std::move(epilogue.tile)});
  }
  const jit::TileConfig config =
      jit::choose_fitting_tiles(products, dtype, jit::multiprocessors_of(stream.device));
  std::vector<const void*> arguments;
  for (const jit::BodyEpilogue& epilogue : epilogues) arguments.push_back(epilogue.words.data());
  launch(plan_tiles(products, operands, dtype, config, stream.device), arguments, stream);
}

}  // namespace

void run_contraction(const BodySpec& spec, const Tensor* const* inputs, const Tensor* outputs,
                     const std::vector<bool>& prefetchable) {
  cu::CudaStream& stream = cu::current_stream(outputs[0].device());
  const std::vector<BodyInLaunch> bodies =
      bodies_of(spec, inputs, outputs, target_of(stream.device));
  const jit::Contraction& first = bodies.front().contraction;
  if (jit::is_small(first.product, first.dtype, takes_tf32()))
    return run_small(bodies, prefetchable, stream);
  run_tiles(bodies, stream);
}

}  // namespace brrr::on_cuda
