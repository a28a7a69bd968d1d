// Reductions on CUDA: brings the operand's layout to one of two generated kernels, splits it so
// that the device is full, and joins the parts. The order of combination depends on shapes,
// strides, the address modulo 16 and the device only.
#include <bit>
#include <cstdlib>

#include "brrr/ops/cuda/elementwise.h"
#include "brrr/ops/cuda/kernel_table.h"
#include "brrr/ops/cuda/launch.h"
#include "brrr/ops/jit/compiler.h"
#include "brrr/ops/jit/geometry.h"
#include "brrr/ops/jit/render.h"
#include "brrr/ops/jit/tuning.h"
#include "brrr/ops/kernels.h"

namespace brrr::on_cuda {
namespace {

using std::int64_t;

struct Ready {
  CUfunction main, join_warp, join_block;
  int threads;
  std::size_t partial;  // bytes
};

KernelTable<Ready>& table() {
  static KernelTable<Ready>* instance = new KernelTable<Ready>;
  return *instance;
}

constexpr int power_of_two_from(int64_t n) {
  return n <= 1 ? 1 : 1 << std::bit_width(static_cast<std::uint64_t>(n - 1));
}

// How one call is reduced. `kept` has the strides of the input and of the output, `reduced` of the
// input.
struct Plan {
  jit::Space kept, reduced;
  jit::Walk walk = jit::Walk::rows;
  int width = 1, lanes = 1, threads = 0, unroll = 1;
  bool wide = false;
  int64_t blocks = 1, parts = 1, part = 0;  // `part`: reduced elements (rows: vectors) of one part
};

// Of `loads` that a thread has to do, how many it has under way: more where few blocks share a
// multiprocessor, which would wait for memory. What is loaded stays in registers: 128 elements.
int column_unroll(int64_t loads, int width, int64_t blocks, int multiprocessors) {
  const jit::Tuning& tuned = jit::tuning();
  const int64_t most = std::min<int64_t>(
      {loads, 128 / width, tuned.column_loads / ceil_div(blocks, multiprocessors)});
  return std::max(tuned.column_unroll,
                  static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(most))));
}

// `mask`: which dimensions are reduced. The order of reduced dimensions is free but for an index
// (`ordered`).
Plan plan_of(const Tensor& input, const Tensor& output, std::uint64_t mask, bool ordered,
             Device device) {
  Plan plan;
  const auto shape = input.shape(), strides = input.strides();
  plan.kept.operands = 2;
  plan.reduced.operands = 1;
  const bool keeps_dims = output.rank() == input.rank();
  int out_dim = 0;
  for (int d = 0; d < input.rank(); ++d) {
    const bool is_reduced = mask >> d & 1;
    jit::Space& space = is_reduced ? plan.reduced : plan.kept;
    space.stride[0][space.rank] = strides[d];
    if (!is_reduced) space.stride[1][space.rank] = output.strides()[out_dim];
    if (!is_reduced || keeps_dims) ++out_dim;
    space.add_dim(shape[d]);
  }
  jit::sort_dims(plan.kept);
  if (!ordered) jit::sort_dims(plan.reduced);
  jit::coalesce(plan.kept);
  jit::coalesce(plan.reduced);
  plan.wide = !jit::is_narrow(plan.kept) || !jit::is_narrow(plan.reduced);

  const jit::Tuning& tuned = jit::tuning();
  const int64_t kept = plan.kept.count(), reduced = plan.reduced.count();
  const int64_t kept_step = std::abs(plan.kept.stride[0][plan.kept.rank - 1]);
  const int64_t reduced_step = std::abs(plan.reduced.stride[0][plan.reduced.rank - 1]);
  // Neighbouring threads go along whichever elements are neighbours in memory.
  const bool by_columns = kept > 1 && reduced > 1
                              ? (kept_step != 0 && (reduced_step == 0 || kept_step < reduced_step))
                              : kept > 1;
  plan.walk = by_columns ? jit::Walk::columns : jit::Walk::rows;

  const std::uint8_t size = static_cast<std::uint8_t>(size_of(input.dtype()));
  const void* data = input.data();
  jit::Space& along = by_columns ? plan.kept : plan.reduced;
  jit::Space& across = by_columns ? plan.reduced : plan.kept;
  // Vectors must start at multiples of their size in every row: strides of the other space count as
  // well.
  const int operands = along.operands;
  along.operands = 1;
  // Accumulators of an index are large, and columns keep `width` of them a thread in shared memory.
  plan.width = jit::vector_width(along, &data, &size,
                                 ordered && by_columns ? std::min(8, 16 / size) : 16 / size);
  along.operands = operands;
  if (along.stride[0][along.rank - 1] != 1) plan.width = 1;
  for (int d = 0; d < across.rank; ++d) {
    while (across.size[d] > 1 && across.stride[0][d] % plan.width != 0) plan.width /= 2;
  }

  const int multiprocessors = jit::multiprocessors_of(device);
  int64_t rounds;  // of `unroll` loads that one block has to do for its part
  if (by_columns) {
    plan.threads = tuned.column_threads;
    // With few elements to reduce, threads are better used side by side.
    const int below = power_of_two_from(ceil_div(reduced, tuned.column_unroll));
    plan.lanes = std::min(std::max(tuned.column_lanes, plan.threads / below),
                          power_of_two_from(kept / plan.width));
    plan.lanes = std::min(plan.lanes, plan.threads);
    // What the cache holds is read in narrow strips, down to a sector of 32 bytes, by as many
    // blocks as keep half of the device busy: that costs less than joining parts does.
    const int sector = std::max(1, 32 / (plan.width * size));
    if (input.numel() * size <= tuned.column_strips << 20) {
      while (plan.lanes > sector && kept / plan.width < plan.lanes * (multiprocessors / 2))
        plan.lanes /= 2;
    }
    plan.blocks = ceil_div(kept / plan.width, plan.lanes);
    const int down = plan.threads / plan.lanes;
    plan.unroll = column_unroll(ceil_div(reduced, down), plan.width, plan.blocks, multiprocessors);
    plan.part = down * plan.unroll;
    rounds = ceil_div(reduced, plan.part);
  } else {
    const int64_t vectors = reduced / plan.width;
    plan.threads = tuned.row_threads;
    plan.lanes = vectors > tuned.row_warp_vectors || (kept < multiprocessors && vectors > 32)
                     ? plan.threads
                     : std::min(32, power_of_two_from(vectors));
    plan.blocks = ceil_div(kept, plan.threads / plan.lanes);
    plan.unroll = tuned.row_unroll;
    plan.part = plan.lanes * plan.unroll;
    rounds = ceil_div(vectors, plan.part);
  }
  const int64_t wanted = int64_t{multiprocessors} * tuned.reduce_blocks;
  const int64_t loads = rounds * plan.unroll;
  if (plan.blocks * 2 <= wanted && loads > 2 * tuned.reduce_least) {
    const int64_t parts =
        std::clamp<int64_t>(std::min(wanted / plan.blocks, loads / tuned.reduce_least), 1, 65535);
    plan.part *= ceil_div(rounds, parts);
    plan.parts = ceil_div(by_columns ? reduced : reduced / plan.width, plan.part);
  } else {
    plan.part *= std::max<int64_t>(rounds, 1);
  }
  return plan;
}

[[gnu::noinline]] const Ready* make(const KernelKey& key, jit::KernelSpec spec, const Plan& plan,
                                    Device device) {
  spec.walk = plan.walk;
  spec.rank = plan.kept.rank;
  spec.reduced_rank = plan.reduced.rank;
  spec.wide = plan.wide;
  spec.width = plan.width;
  spec.threads = plan.threads;
  spec.lanes = plan.lanes;
  spec.unroll = plan.unroll;
  const std::string text = jit::render_cuda(spec);
  const std::string warp = spec.name + "_join_warp", block = spec.name + "_join_block";
  const auto kernels =
      jit::load_kernels(device, {spec.name.c_str(), warp.c_str(), block.c_str()}, text);
  return table().insert(
      key, {kernels[0], kernels[1], kernels[2], spec.threads, jit::partial_size(spec)});
}

template <class MakeSpec>
void reduce(const Call& call, Tensor& output, std::uint64_t mask, bool ordered,
            MakeSpec&& make_spec) {
  if (output.numel() == 0) return;
  const Tensor& input = call.input(0);
  const Device device = input.device();
  cu::CudaStream& stream = cu::current_stream(device);
  const Plan plan = plan_of(input, output, mask, ordered, device);

  KernelKey key{
      stream.on,
      static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(input.dtype()) << 16 |
          static_cast<std::uint64_t>(output.dtype()) << 20,
      static_cast<std::uint64_t>(plan.walk) | static_cast<std::uint64_t>(plan.kept.rank) << 4 |
          static_cast<std::uint64_t>(plan.reduced.rank) << 8 |
          static_cast<std::uint64_t>(plan.wide) << 12 |
          static_cast<std::uint64_t>(plan.width) << 16 |
          static_cast<std::uint64_t>(plan.lanes) << 24 |
          static_cast<std::uint64_t>(plan.unroll) << 36};
  const Ready* ready = table().find(key);
  if (!ready) [[unlikely]]
    ready = make(key, make_spec(), plan, device);

  const bool by_columns = plan.walk == jit::Walk::columns;
  jit::Geometry kept, reduced;
  jit::fill(kept, plan.kept, by_columns ? plan.width : 1);
  jit::fill(reduced, plan.reduced, by_columns ? 1 : plan.width);
  Storage* scratch = nullptr;
  void* partials = nullptr;
  if (plan.parts > 1) {
    scratch =
        new_storage(device, static_cast<std::size_t>(output.numel() * plan.parts) * ready->partial);
    partials = scratch->data;
  }
  // Freed on this stream, so used again only after the kernels below.
  const struct Drop {
    Storage* storage;
    ~Drop() {
      if (storage) storage->drop();
    }
  } drop{scratch};

  void* out = output.data();
  const void* in = input.data();
  int64_t part = plan.part, elements = plan.reduced.count();
  void* arguments[] = {&out, &in, &partials, &kept, &reduced, &part, &elements};
  launch_in_turn(ready->main,
                 {static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.parts)},
                 static_cast<unsigned>(ready->threads), stream, arguments);
  if (plan.parts == 1) return;
  std::int32_t parts = static_cast<std::int32_t>(plan.parts);
  void* join_arguments[] = {&out, &partials, &kept, &parts, &elements};
  const bool by_blocks = parts > 128;
  const int64_t blocks = by_blocks ? output.numel() : ceil_div(output.numel(), 256 / 32);
  launch_in_turn(by_blocks ? ready->join_block : ready->join_warp, {static_cast<unsigned>(blocks)},
                 256, stream, join_arguments);
}

}  // namespace

void reduction(const Call& call, Tensor* outputs) {
  Tensor& output = outputs[0];
  reduce(call, output, static_cast<std::uint64_t>(call.attrs[0].i()), false, [&] {
    return jit::reduction_spec(op_info(call.op), call.input(0).dtype(), output.dtype());
  });
}

void arg_reduction(const Call& call, Tensor* outputs) {
  reduce(call, outputs[0], std::uint64_t{1} << call.attrs[0].i(), true,
         [&] { return jit::arg_reduction_spec(op_info(call.op), call.input(0).dtype()); });
}

}  // namespace brrr::on_cuda
