// Owns the correspondence between the spaces of two groups.
#include "brrr/graph/fusion_group.h"

#include <functional>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/fusion_indexed.h"
#include "brrr/ops/jit/add_call.h"

namespace brrr::graph {
namespace {

using std::int64_t;

// The sizes of blocks along their dimension.
std::vector<int64_t> sizes_of_blocks(const Node& node) {
  std::vector<int64_t> sizes;
  for (const Value& input : node.inputs) sizes.push_back(input.shape[jit::block_dim(node.call)]);
  return sizes;
}

bool has_fusable_blocks(const Node& node) {
  const int dim = jit::block_dim(node.call);
  return !node.call.in_place && node.outputs[0].shape[dim] > 1 &&
         jit::blocks_of(node.call, sizes_of_blocks(node)).has_value();
}

}  // namespace

// --- Groups of one call -----------------------------------------------------------------------

bool is_fusable(const Node& node) {
  const OpInfo& op = op_info(node.call.op);
  if (is_indexed(op) ? !is_fusable_indexed(node)
                     : !jit::has_values(op) || op.effect != Effect::pure)
    return false;
  if (op.kind == OpKind::reduction && node.inputs[0].numel() == node.outputs[0].numel())
    return false;
  if (op.algebra == Algebra::contraction &&
      node.inputs[0].shape[node.inputs[0].shape.size() - 1] == 1)
    return false;
  if (jit::is_made_of_blocks(op) && !has_fusable_blocks(node)) return false;
  return std::ranges::all_of(node.outputs, [](const Value& v) { return v.numel() > 0; }) &&
         std::ranges::all_of(node.inputs, [](const Value& v) { return v.numel() > 0; });
}

bool needs_coordinates(const OpInfo& op) { return is_indexed(op) || jit::is_made_of_blocks(op); }

bool is_made_in_place(const Graph& graph, const Node& node) {
  if (op_info(node.call.op).algebra != Algebra::concatenation) return false;
  for (int d = 0; d < jit::block_dim(node.call); ++d) {
    if (node.outputs[0].shape[d] != 1) return false;
  }
  return std::ranges::all_of(node.inputs, [&graph](const Value& part) {
    return graph.is_temporary(part.buffer) && is_whole(graph, part);
  });
}

bool is_scattered_copy(const Node& node) {
  constexpr int64_t kLarge = 1 << 14, kShort = 128;  // elements
  if (!jit::is_copy(op_info(node.call.op))) return false;
  const Value &from = node.inputs[0], &to = node.outputs[0];
  if (from.shape != to.shape || to.numel() < kLarge) return false;
  int64_t run = 1;
  for (int d = to.shape.size() - 1; d >= 0; --d) {
    if (to.shape[d] == 1) continue;
    if (from.strides[d] != run || to.strides[d] != run) break;
    run *= to.shape[d];
  }
  return run < kShort;
}

namespace {

// A product of matrices over batch, rows, columns, and the summed dimension.
Group contraction_group(const Node& node, int number) {
  const Value &a = node.inputs[0], &result = node.outputs[0];
  const int rank = result.shape.size();
  Dims shape = result.shape;
  shape.push_back(a.shape[a.shape.size() - 1]);
  Group group;
  for (int d = 0; d <= rank; ++d) {
    if (shape[d] == 1) continue;
    group.sizes.push_back(shape[d]);
    group.reduced.push_back(d == rank);
  }
  // `last` has the dimensions of the space that the value's last ones are; those before are batch.
  const auto access_of = [&](const Value& value, std::initializer_list<int> last) {
    std::vector<int64_t> strides(rank + 1, 0);
    int of = value.shape.size();
    const auto set = [&](int d) {
      --of;
      if (value.shape[of] != 1) strides[d] = value.strides[of];
    };
    for (std::size_t k = last.size(); k-- > 0 && of > 0;) set(last.begin()[k]);
    for (int d = rank - 3; of > 0; --d) set(d);
    Access access{value.buffer, value.dtype, {}, value.offset};
    for (int d = 0; d <= rank; ++d) {
      if (shape[d] != 1) access.strides.push_back(strides[d]);
    }
    return access;
  };
  const int row = rank - 2, column = rank - 1, summed = rank;
  Member member{number, {}, {}};
  member.inputs = {access_of(a, {row, summed}), access_of(node.inputs[1], {summed, column})};
  for (std::size_t k = 2; k < node.inputs.size(); ++k)
    member.inputs.push_back(access_of(node.inputs[k], {row, column}));
  member.outputs = {access_of(result, {row, column})};
  group.members.push_back(std::move(member));
  return group;
}

// Rewrites the reads of a concatenation's parts over the whole result, with bounds.
void bound_blocks(const Node& node, Member& member) {
  const std::vector<int64_t> sizes = sizes_of_blocks(node);
  const jit::Blocks blocks = *jit::blocks_of(node.call, sizes);
  const Dims& shape = node.outputs[0].shape;
  int along = 0;  // the dimension of the group
  for (int d = 0; d < blocks.dim; ++d) along += shape[d] != 1;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    Access& read = member.inputs[k];
    read.offset -= blocks.starts[k] * read.strides[along];
    AffineBound bound{Dims::filled(read.strides.size(), 0), -blocks.starts[k], sizes[k]};
    bound.strides[along] = 1;
    read.bounds.push_back(std::move(bound));
  }
}

}  // namespace

Group group_of(const Node& node, int number) {
  if (op_info(node.call.op).algebra == Algebra::contraction) return contraction_group(node, number);
  if (is_indexed(op_info(node.call.op))) return indexed_group(node, number);
  const bool reduces = op_info(node.call.op).kind == OpKind::reduction;
  const Dims& shape = reduces ? node.inputs[0].shape : node.outputs[0].shape;
  const std::uint64_t mask = reduces ? static_cast<std::uint64_t>(node.call.attrs[0].i()) : 0;
  Group group;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    group.sizes.push_back(shape[d]);
    group.reduced.push_back(mask >> d & 1);
  }
  const auto access_of = [&](const Value& value, bool result) {
    Access access{value.buffer, value.dtype, {}, value.offset};
    const int missing = shape.size() - value.shape.size();
    // Without kept dimensions, those of a result follow one another.
    int next = 0;
    const bool packed = reduces && result && missing > 0;
    for (int d = 0; d < shape.size(); ++d) {
      const bool is_reduced = mask >> d & 1;
      const int of = packed ? (is_reduced ? -1 : next++) : d - missing;
      if (shape[d] == 1) continue;
      const bool varies = of >= 0 && !(result && is_reduced) && value.shape[of] > 1;
      access.strides.push_back(varies ? value.strides[of] : 0);
    }
    return access;
  };
  Member member{number, {}, {}};
  for (const Value& input : node.inputs) member.inputs.push_back(access_of(input, false));
  if (jit::is_made_of_blocks(op_info(node.call.op))) bound_blocks(node, member);
  for (const Value& output : node.outputs) member.outputs.push_back(access_of(output, true));
  group.members.push_back(std::move(member));
  return group;
}

std::optional<Correspondence> correspond(Group& consumer, const Access& read, const Group& producer,
                                         const Access& made) {
  std::vector<int> dims;  // of the producer that the result varies in, by stride, largest first
  for (int d = 0; d < producer.rank(); ++d) {
    if (made.strides[d] != 0) dims.push_back(d);
  }
  std::ranges::sort(dims, std::greater(), [&](int d) { return made.strides[d]; });
  Correspondence found;
  found.origin = Dims::filled(producer.rank(), 0);
  int64_t offset = read.offset - made.offset;
  if (offset < 0) return {};
  for (const int d : dims) {
    const int64_t stride = made.strides[d];
    if (stride < 0) return {};
    found.origin[d] = offset / stride;
    offset %= stride;
  }
  if (offset != 0) return {};
  Dims last = found.origin;  // the last coordinates that the read reaches
  for (int h = 0; h < consumer.rank(); ++h) {
    const int64_t stride = read.strides[h], size = consumer.sizes[h];
    if (stride == 0) {
      found.steps.push_back({});
      continue;
    }
    const auto along = std::ranges::find_if(dims, [&](int d) {
      return stride > 0 && made.strides[d] <= stride && stride % made.strides[d] == 0;
    });
    if (along == dims.end()) return {};
    const int d = *along;
    const int64_t factor = stride / made.strides[d], extent = producer.sizes[d];
    if (last[d] + factor * (size - 1) < extent) {
      last[d] += factor * (size - 1);
      found.steps.push_back({d, factor});
      continue;
    }
    // The read passes the end of the dimension after `inner` steps, and continues in the next
    // larger one.
    const int64_t inner = extent / factor;
    if (extent % factor != 0 || inner <= 1 || size % inner != 0 || inner == size ||
        consumer.rank() == kMaxDims)
      return {};
    consumer.split(h, inner);
    return {};
  }
  for (const int d : dims) {
    if (last[d] >= producer.sizes[d]) return {};
  }
  return found;
}

bool covers(const Correspondence& c, const Group& consumer, const Group& producer) {
  for (int d = 0; d < producer.rank(); ++d) {
    if (producer.reduced[d]) continue;
    int64_t steps = 1;
    for (int h = 0; h < consumer.rank(); ++h) {
      if (c.steps[h].dim == d) steps *= consumer.sizes[h];
    }
    if (c.origin[d] != 0 || steps != producer.sizes[d]) return false;
  }
  return true;
}

namespace {

// The part of a space in which a read is within its bounds, as the start and size of a range in
// each dimension. False if the bounds are no such box.
bool ranges_of(const Access& read, const Dims& sizes, Dims& lows, Dims& lengths) {
  lows = Dims::filled(sizes.size(), 0);
  lengths = sizes;
  for (const AffineBound& bound : read.bounds) {
    int along = -1;
    for (int h = 0; h < sizes.size(); ++h) {
      if (bound.strides[h] == 0) continue;
      if (along >= 0 || bound.strides[h] != 1) return false;
      along = h;
    }
    if (along < 0) return false;
    int64_t& low = lows[along];
    const int64_t high = std::min(low + lengths[along], bound.size - bound.offset);
    low = std::max(low, -bound.offset);
    lengths[along] = high - low;
    if (high <= low) return false;
  }
  return true;
}

}  // namespace

std::optional<Correspondence> correspond_within(Group& consumer, const Access& read,
                                                const Group& producer, const Access& made) {
  Dims lows, lengths, sizes = consumer.sizes;
  if (!ranges_of(read, sizes, lows, lengths)) return {};
  // Temporarily restricts the consumer to the ranges.
  Access cut = read;
  for (int h = 0; h < lows.size(); ++h) cut.offset += lows[h] * read.strides[h];
  consumer.sizes = lengths;
  std::optional<Correspondence> c = correspond(consumer, cut, producer, made);
  if (consumer.sizes.size() != sizes.size()) {
    // One dimension was split: the first whose size has changed.
    const auto split =
        static_cast<int>(std::ranges::mismatch(consumer.sizes, lengths).in2 - lengths.begin());
    if (lengths[split] != sizes[split]) return {};
    const int64_t inner = consumer.sizes[split + 1];
    sizes[split] /= inner;
    sizes.insert(split + 1, inner);
    consumer.sizes = sizes;
    return {};
  }
  consumer.sizes = sizes;
  if (!c) return {};
  for (int h = 0; h < lows.size(); ++h) {
    const DimStep& step = c->steps[h];
    if (step.dim >= 0) c->origin[step.dim] -= step.factor * lows[h];
  }
  return c;
}

void pull(Group& producer, const Correspondence& c, const Group& consumer,
          const std::vector<AffineBound>& bounds) {
  producer.each_access([&](Access& access) {
    access.each_function([&](Dims& of, int64_t& offset) {
      Dims strides;
      for (const DimStep& step : c.steps)
        strides.push_back(step.dim < 0 ? 0 : step.factor * of[step.dim]);
      for (int d = 0; d < c.origin.size(); ++d) offset += c.origin[d] * of[d];
      of = strides;
    });
    access.bounds.insert(access.bounds.end(), bounds.begin(), bounds.end());
  });
  producer.sizes = consumer.sizes;
  producer.reduced = consumer.reduced;
}

bool spread(Group& group, const Access& read, const Group& product, const Access& factor) {
  bool bounded = false;
  group.each_access([&](const Access& access) { bounded |= !access.bounds.empty(); });
  if (bounded || !factor.bounds.empty()) return false;
  std::vector<int> of;  // the product's dimension of each
  for (int h = 0; h < group.rank(); ++h) {
    int d = 0;
    while (d < product.rank() &&
           (factor.strides[d] != read.strides[h] || product.sizes[d] != group.sizes[h] ||
            product.reduced[d] != group.reduced[h] || std::ranges::find(of, d) != of.end()))
      ++d;
    if (d == product.rank() || read.strides[h] == 0) return false;
    of.push_back(d);
  }
  if (std::ranges::count_if(factor.strides, [](int64_t s) { return s != 0; }) != group.rank())
    return false;
  group.each_access([&](Access& access) {
    Dims strides = Dims::filled(product.rank(), 0);
    for (std::size_t h = 0; h < of.size(); ++h) strides[of[h]] = access.strides[h];
    access.strides = strides;
  });
  group.sizes = product.sizes;
  group.reduced = product.reduced;
  return true;
}

namespace {

// Splits two lists of dimensions, given from the outermost, until they have the same sizes.
// False: they cannot.
bool refine(Group& a, std::vector<int>& of_a, Group& b, std::vector<int>& of_b) {
  const auto split = [](Group& group, std::vector<int>& dims, std::size_t i, int64_t inner) {
    if (group.rank() == kMaxDims) return false;
    const int d = dims[i];
    group.split(d, inner);
    for (int& other : dims) other += other > d;
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(i) + 1, d + 1);
    return true;
  };
  std::size_t i = of_a.size(), j = of_b.size();
  while (i > 0 && j > 0) {
    const int64_t m = a.sizes[of_a[i - 1]], n = b.sizes[of_b[j - 1]];
    if (m == n) {
      --i, --j;
    } else if (m % n == 0) {
      if (!split(a, of_a, i - 1, n)) return false;
      --j;
    } else if (n % m == 0) {
      if (!split(b, of_b, j - 1, m)) return false;
      --i;
    } else {
      return false;
    }
  }
  return i == 0 && j == 0 && of_a.size() == of_b.size();
}

// Finds for each dimension of the consumer the producer's dimension that it runs along; -1: none.
// Several dimensions along one split it, the outermost first. False: they do not split it evenly.
bool match_read_dims(const Group& consumer, Correspondence c, Group& producer,
                     std::vector<int>& of) {
  of.assign(consumer.rank(), -1);
  for (int d = 0; d < producer.rank(); ++d) {
    std::vector<int> along;
    for (int h = 0; h < consumer.rank(); ++h) {
      if (c.steps[h].dim == d) along.push_back(h);
    }
    std::ranges::sort(along, std::greater(), [&](int h) { return c.steps[h].factor; });
    int64_t factor = 1;
    for (std::size_t k = along.size(); k-- > 0;) {
      if (c.steps[along[k]].factor != factor) return false;
      factor *= consumer.sizes[along[k]];
    }
    if (along.empty()) continue;
    if (factor != producer.sizes[d]) return false;
    for (std::size_t k = along.size(); k-- > 1;) {
      if (producer.rank() == kMaxDims) return false;
      producer.split(d, consumer.sizes[along[k]]);
    }
    const int more = static_cast<int>(along.size()) - 1;
    for (DimStep& step : c.steps) step.dim += step.dim > d ? more : 0;
    for (std::size_t k = 0; k < along.size(); ++k) of[along[k]] = d + static_cast<int>(k);
    d += more;
  }
  return true;
}

// Matches `rest`, the dimensions of the consumer in which the read is constant, with `reduced`,
// those that the producer reduces. Updates `of`, since splits renumber later dimensions.
bool match_reduced_dims(Group& consumer, std::vector<int> rest, Group& producer,
                        std::vector<int> reduced, std::vector<int>& of) {
  std::vector<int> matched;  // for each other dimension of the consumer: a kept one of the producer
  const auto kept_dims = [&producer] {
    std::vector<int> kept;
    for (int d = 0; d < producer.rank(); ++d) {
      if (!producer.reduced[d]) kept.push_back(d);
    }
    return kept;
  };
  const std::vector<int> before = kept_dims();
  for (const int d : of) {
    if (d >= 0) matched.push_back(static_cast<int>(std::ranges::find(before, d) - before.begin()));
  }
  if (!refine(consumer, rest, producer, reduced)) return false;
  const std::vector<int> kept = kept_dims();
  of.assign(consumer.rank(), -1);
  for (std::size_t k = 0; k < rest.size(); ++k) of[rest[k]] = reduced[k];
  std::size_t next = 0;
  for (int& d : of) {
    if (d < 0) d = kept[matched[next++]];
  }
  return true;
}

}  // namespace

bool push(Group& consumer, Correspondence c, Group& producer) {
  std::vector<int> of;  // the producer's dimension of each
  if (!match_read_dims(consumer, std::move(c), producer, of)) return false;
  std::vector<int> rest, reduced;
  for (int h = 0; h < consumer.rank(); ++h) {
    if (of[h] < 0) rest.push_back(h);
  }
  bool per_element = false;  // whether any of the producer's reduced dimensions is read
  for (int d = 0; d < producer.rank(); ++d) {
    const bool read = std::ranges::find(of, d) != of.end();
    if (producer.reduced[d] && !read) reduced.push_back(d);
    per_element |= producer.reduced[d] && read;
  }
  // All of them are, or none.
  if (per_element && !(rest.empty() && reduced.empty())) return false;
  if (!rest.empty() && !match_reduced_dims(consumer, rest, producer, reduced, of)) return false;
  for (int h = 0; h < consumer.rank(); ++h) {
    const bool along_row = producer.reduced[of[h]];
    if (consumer.reduces() && consumer.reduced[h] != along_row) return false;
  }
  consumer.each_access([&](Access& access) {
    access.each_function([&](Dims& function, int64_t&) {
      Dims strides = Dims::filled(producer.rank(), 0);
      for (std::size_t h = 0; h < of.size(); ++h) strides[of[h]] = function[h];
      function = strides;
    });
  });
  consumer.sizes = producer.sizes;
  consumer.reduced = producer.reduced;
  return true;
}

}  // namespace brrr::graph
