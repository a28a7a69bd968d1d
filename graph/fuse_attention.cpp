// Attention: a matrix product, a softmax of its rows and a product with the weights become one
// call, and their gradients another (ops/attention.h). Scores and weights then need no memory,
// neither between kernels nor until the backward pass.
//
// The chain is recognized by what each call computes and by who reads it: nothing of it may be read
// by any other call. A factor between the product and the softmax and a mask of minus infinities
// may be part of it.
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "brrr/dispatch/op_info.h"
#include "brrr/graph/attention_rows.h"
#include "brrr/graph/flow.h"
#include "brrr/graph/passes.h"
#include "brrr/ops/attention.h"

namespace brrr::graph {
namespace {

using std::int64_t;

constexpr int kNoCall = Flow::kNone;

// The calls of a recognized forward chain. dtypes may change between them.
struct Forward {
  int scores = kNoCall, out = kNoCall;  // the two products
  Value weights;                        // the factor of the second one
  std::optional<Value> mask;
  double scale = 1;
  std::vector<int> calls;  // all but `out`
  int layout = kNoCall;    // copies the result to [outer, rows, inner, width]
  int query = kNoCall;     // multiplies the query with a number, for the chains alone
};
struct Backward {
  int d_weights = kNoCall, d_query = kNoCall, d_key = kNoCall, d_value = kNoCall;  // products
  std::vector<int> calls;                                                          // all others
};

class Attentions {
 public:
  explicit Attentions(Graph& graph)
      : graph_(graph),
        flow_(graph),
        marked_(marked_buffers(graph)),
        replaced_(graph.nodes.size()) {}

  int run() {
    const int calls = static_cast<int>(graph_.nodes.size());
    for (int call = 0; call < calls; ++call) fuse_at(call);
    if (made_.empty()) return 0;
    std::vector<Node> nodes;
    for (int call = 0; call < calls; ++call) {
      if (const auto made = made_.find(call); made != made_.end()) {
        for (Node& node : made->second) nodes.push_back(std::move(node));
      } else if (!replaced_[call]) {
        nodes.push_back(std::move(graph_.nodes[call]));
      }
    }
    return replace_nodes(graph_, std::move(nodes));
  }

 private:
  const Node& node(int call) const { return graph_.nodes[call]; }
  const Value& result(int call) const { return node(call).outputs[0]; }

  // The call that writes a value as the whole of its only result; kNoCall if there is none.
  int producer_of(const Value& value) const {
    if (!flow_.is_intermediate(value.buffer)) return kNoCall;
    const int call = flow_.producer(value.buffer);
    return node(call).outputs.size() == 1 && result(call) == value ? call : kNoCall;
  }
  bool is_pointwise(int call, Algebra algebra) const {
    return call != kNoCall && op_info(node(call).call.op).algebra == algebra &&
           op_info(node(call).call.op).kind == OpKind::pointwise;
  }
  bool is_step(int call, SoftmaxStep step) const {
    return call != kNoCall && softmax_step(node(call).call) == step;
  }
  bool is_product_of_matrices(int call) const {
    return call != kNoCall && op_info(node(call).call.op).algebra == Algebra::contraction &&
           node(call).inputs.size() == 2 && node(call).inputs[0].shape.size() >= 2 &&
           node(call).inputs[0].shape.size() == node(call).inputs[1].shape.size();
  }
  bool reduces_rows(int call, SoftmaxStep step) const {
    if (!is_step(call, step)) return false;
    const int rank = node(call).inputs[0].shape.size();
    return rank > 0 && node(call).call.attrs[0].i() == int64_t{1} << (rank - 1);
  }
  // The other operand of a call on two tensors, one of which is `value`; else null.
  const Value* other_input(int call, const Value& value) const {
    const std::vector<Value>& inputs = node(call).inputs;
    if (inputs.size() != 2) return nullptr;
    return inputs[0] == value ? &inputs[1] : inputs[1] == value ? &inputs[0] : nullptr;
  }
  // The operand of the conversion that made this value, or the value itself. Adds the conversion to
  // `calls`.
  Value before_conversion(const Value& value, std::vector<int>& calls) const {
    const int producer = producer_of(value);
    if (!is_pointwise(producer, Algebra::conversion)) return value;
    calls.push_back(producer);
    return node(producer).inputs[0];
  }
  int only_reader(int call) const {
    const std::span<const int> readers = flow_.readers(result(call).buffer);
    return readers.size() == 1 ? readers[0] : kNoCall;
  }
  bool is_marked(int buffer) const { return std::ranges::find(marked_, buffer) != marked_.end(); }

  std::optional<double> factor_of(int call) const {
    return call == kNoCall ? std::nullopt : graph::factor_of(node(call));
  }
  // The mask of a call that writes `number` where the mask is false; else null.
  const Value* mask_of(int call, double number) const {
    if (!is_step(call, SoftmaxStep::masking) || node(call).inputs.size() != 2) return nullptr;
    const Call& of = node(call).call;
    if (of.is_scalar(0) || of.is_scalar(1) || !of.is_scalar(2) || of.number(2) != number ||
        node(call).inputs[0].dtype != DType::boolean)
      return nullptr;
    return &node(call).inputs[0];
  }

  // The chain whose softmax divides by this call.
  std::optional<Forward> forward_at(int call) const {
    if (!is_pointwise(call, Algebra::quotient) || node(call).inputs.size() != 2) return {};
    Forward f;
    const int exponential = producer_of(node(call).inputs[0]),
              total = producer_of(node(call).inputs[1]);
    if (!is_step(exponential, SoftmaxStep::exponential) ||
        !reduces_rows(total, SoftmaxStep::total) || node(total).inputs[0] != result(exponential))
      return {};
    const int shifted = producer_of(node(exponential).inputs[0]);
    if (!is_pointwise(shifted, Algebra::difference) || node(shifted).inputs.size() != 2) return {};
    Value scores = node(shifted).inputs[0];
    const int largest = producer_of(node(shifted).inputs[1]);
    if (!reduces_rows(largest, SoftmaxStep::largest) || node(largest).inputs[0] != scores)
      return {};
    f.calls = {call, exponential, total, shifted, largest};
    scores = before_conversion(scores, f.calls);
    if (const int producer = producer_of(scores);
        mask_of(producer, -std::numeric_limits<double>::infinity())) {
      f.mask = node(producer).inputs[0];
      f.calls.push_back(producer);
      if (node(producer).inputs[1].shape != scores.shape) return {};
      scores = node(producer).inputs[1];
    }
    if (const int producer = producer_of(scores); factor_of(producer)) {
      f.scale = *factor_of(producer);
      f.calls.push_back(producer);
      scores = node(producer).inputs[0];
    }
    f.scores = producer_of(scores);
    if (!is_product_of_matrices(f.scores)) return {};
    f.calls.push_back(f.scores);
    f.weights = result(call);
    if (const int reader = only_reader(call);
        is_pointwise(reader, Algebra::conversion) && producer_of(result(reader)) == reader) {
      f.calls.push_back(reader);
      f.weights = result(reader);
    }
    for (const int reader : flow_.readers(f.weights.buffer)) {
      if (is_product_of_matrices(reader) && node(reader).inputs[0] == f.weights) f.out = reader;
    }
    return f.out == kNoCall ? std::nullopt : std::optional(f);
  }

  // The chain of the gradient, among the readers of the weights.
  std::optional<Backward> backward_of(const Forward& f) const {
    Backward b;
    std::vector<Value> weights = {f.weights};
    for (const int reader : flow_.readers(f.weights.buffer)) {
      if (is_product_of_matrices(reader) && node(reader).inputs[0] == transposed(f.weights))
        b.d_value = reader;
      if (is_pointwise(reader, Algebra::conversion) && node(reader).inputs[0] == f.weights) {
        b.calls.push_back(reader);
        weights.push_back(result(reader));
      }
    }
    if (b.d_value == kNoCall) return {};
    // weights * (d_weights - the sum of weights * d_weights)
    for (const Value& factor : weights) {
      for (const int reader : flow_.readers(factor.buffer)) {
        const Value* other =
            is_pointwise(reader, Algebra::product) ? other_input(reader, factor) : nullptr;
        const int centered = other ? producer_of(*other) : kNoCall;
        if (!is_pointwise(centered, Algebra::difference) || node(centered).inputs.size() != 2)
          continue;
        const Value& d_weights = node(centered).inputs[0];
        const int delta = producer_of(node(centered).inputs[1]);
        if (!reduces_rows(delta, SoftmaxStep::total)) return {};
        const int weighted = producer_of(node(delta).inputs[0]);
        if (!is_pointwise(weighted, Algebra::product)) return {};
        const Value* with = other_input(weighted, d_weights);
        if (!with || std::ranges::find(weights, *with) == weights.end()) return {};
        b.calls.insert(b.calls.end(), {reader, centered, delta, weighted});
        b.d_weights = producer_of(before_conversion(d_weights, b.calls));
        if (!is_product_of_matrices(b.d_weights) || !find_products(f, reader, b)) return {};
        return b;
      }
    }
    return {};
  }

  // Finds the products that compute the gradients of queries and keys from that of the softmax.
  bool find_products(const Forward& f, int last, Backward& b) const {
    bool masked = !f.mask, scaled = f.scale == 1;
    for (int reader = only_reader(last); reader != kNoCall; reader = only_reader(last)) {
      const Value* mask = masked ? nullptr : mask_of(reader, 0);
      if (mask && *mask == *f.mask && node(reader).inputs[1] == result(last)) {
        masked = true;
      } else if (!scaled && factor_of(reader) == f.scale) {
        scaled = true;
      } else if (!is_pointwise(reader, Algebra::conversion)) {
        return false;
      }
      b.calls.push_back(last = reader);
    }
    const Value &query = node(f.scores).inputs[0], key = transposed(node(f.scores).inputs[1]);
    for (const int reader : flow_.readers(result(last).buffer)) {
      if (!is_product_of_matrices(reader)) return false;
      const std::vector<Value>& inputs = node(reader).inputs;
      if (inputs[0] == result(last) && inputs[1] == key) b.d_query = reader;
      if (inputs[0] == transposed(result(last)) && inputs[1] == query) b.d_key = reader;
    }
    const std::vector<Value>& d_weights = node(b.d_weights).inputs;
    return masked && scaled && b.d_query != kNoCall && b.d_key != kNoCall &&
           d_weights[1] == transposed(node(f.out).inputs[1]) &&
           node(b.d_value).inputs[1] == d_weights[0];
  }

  // Whether all intermediate values of the chains are read within the chains only.
  bool is_closed(const Forward& f, const std::optional<Backward>& b) const {
    std::vector<int> inner = f.calls, all;
    if (b) {
      inner.insert(inner.end(), b->calls.begin(), b->calls.end());
      inner.push_back(b->d_weights);
    }
    all = inner;
    all.push_back(f.out);
    if (b) all.insert(all.end(), {b->d_query, b->d_key, b->d_value});
    return std::ranges::all_of(inner, [&](int call) {
      const int buffer = result(call).buffer;
      return flow_.is_intermediate(buffer) && !is_marked(buffer) &&
             std::ranges::all_of(flow_.readers(buffer), [&](int reader) {
               return std::ranges::find(all, reader) != all.end();
             });
    });
  }

  // --- Requirements of the kernels ---

  bool is_supported(const Forward& f) const {
    const Value &query = node(f.scores).inputs[0], key = transposed(node(f.scores).inputs[1]),
                &value = node(f.out).inputs[1];
    const int rank = query.shape.size(), last = rank - 1;
    constexpr int64_t kMost = 32768;  // rows
    if (rank > 4 || !supports_attention(query.dtype, query.shape[last], graph_.device))
      return false;
    for (int d = 0; d < rank - 2; ++d) {
      if (key.shape[d] != query.shape[d]) return false;
    }
    if (f.mask && f.mask->shape.size() < 2) return false;
    return key.shape == value.shape && key.dtype == query.dtype && query.numel() > 0 &&
           key.numel() > 0 && query.shape[last - 1] <= kMost && key.shape[last - 1] <= kMost &&
           f.scale > 0 && std::isfinite(f.scale) && has_aligned_rows(graph_, query) &&
           has_aligned_rows(graph_, key) && has_aligned_rows(graph_, value);
  }

  // Whether no call between the two writes to the value.
  bool is_unchanged(const Value& value, int first, int last) const {
    return flow_.version(value.buffer, first) == flow_.version(value.buffer, last);
  }

  // --- The calls that replace the chains ---

  // The origin (source line, role) is that of a call that the node replaces.
  Node made_like(int call, Call made, std::vector<Value> inputs, std::vector<Value> outputs) const {
    made.n_inputs = static_cast<std::uint32_t>(inputs.size());
    made.dtype = outputs[0].dtype;
    Node result(made, node(call));
    result.number = node(call).number;
    result.inputs = std::move(inputs);
    result.outputs = std::move(outputs);
    return result;
  }

  // [outer, inner, rows, width] copied to [outer, rows, inner, width] by the only reader of `out`.
  int layout_of(const Forward& f) const {
    const Value& out = result(f.out);
    const std::span<const int> readers = flow_.readers(out.buffer);
    if (out.shape.size() != 4 || readers.size() != 1 || !flow_.is_intermediate(out.buffer) ||
        is_marked(out.buffer))
      return kNoCall;
    const Node& reader = node(readers[0]);
    if (op_info(reader.call.op).algebra != Algebra::identity || has_effect(reader) ||
        reader.call.in_place || reader.inputs.size() != 1 || reader.outputs[0].dtype != out.dtype ||
        !is_whole(graph_, reader.outputs[0]))
      return kNoCall;
    return reader.inputs[0] == with_rows_outside(out) ? readers[0] : kNoCall;
  }
  static Value with_rows_outside(Value x) {
    std::swap(x.shape[1], x.shape[2]);
    std::swap(x.strides[1], x.strides[2]);
    return x;
  }

  // The call that scales the query, if only the chains read its result.
  int multiple_of_query(const Forward& f, const std::optional<Backward>& b) const {
    const Value& query = node(f.scores).inputs[0];
    const int producer = producer_of(query);
    if (!factor_of(producer) || *factor_of(producer) <= 0 || is_marked(query.buffer) ||
        node(producer).inputs[0].dtype != query.dtype ||
        !has_aligned_rows(graph_, node(producer).inputs[0]))
      return kNoCall;
    for (const int reader : flow_.readers(query.buffer)) {
      if (reader != f.scores && !(b && reader == b->d_key)) return kNoCall;
    }
    return producer;
  }

  void fuse_at(int call) {
    std::optional<Forward> found = forward_at(call);
    if (!found || !is_supported(*found)) return;
    Forward& f = *found;
    std::optional<Backward> b = backward_of(f);
    if (!is_closed(f, b)) return;
    f.layout = layout_of(f);
    int last = std::max(f.out, f.layout);
    if (b) last = std::max({last, b->d_query, b->d_key, b->d_value});
    f.query = multiple_of_query(f, b);
    const Value query = node(f.query == kNoCall ? f.scores : f.query).inputs[0],
                key = transposed(node(f.scores).inputs[1]), value = node(f.out).inputs[1];
    for (const Value* each : {&query, &key, &value}) {
      if (!is_unchanged(*each, f.query == kNoCall ? f.scores : f.query, last)) return;
    }
    if (f.mask && !is_unchanged(*f.mask, f.scores, last)) return;
    if (b) {
      const Value& d_out = node(b->d_weights).inputs[0];
      if (!has_aligned_rows(graph_, d_out) || !is_unchanged(d_out, b->d_weights, last)) return;
      for (const int made : {b->d_query, b->d_key, b->d_value}) {
        for (const int reader : flow_.readers(result(made).buffer)) {
          if (reader < last) return;
        }
      }
    }
    replace(f, b, {query, key, value}, last);
  }

  void replace(const Forward& f, const std::optional<Backward>& b, std::vector<Value> operands,
               int last) {
    const int end = std::max(f.out, f.layout);
    std::vector<Node>& made = made_[end];
    std::vector<Value> mask;
    if (f.mask) {
      Dims shape = f.mask->shape;
      for (int d = shape.size() - 2; d < shape.size(); ++d) shape[d] = (shape[d] + 63) / 64;
      mask = {*f.mask, graph_.add_temporary(i32, shape)};
      made.push_back(made_like(f.scores, attention_mask_call(), {mask[0]}, {mask[1]}));
    }
    Value out = result(end);
    const double scale = f.query == kNoCall ? f.scale : f.scale * *factor_of(f.query);
    Dims rows = operands[0].shape;
    rows.resize(rows.size() - 1);
    const Value log_sum = graph_.add_temporary(f32, rows);
    std::vector<Value> inputs = operands;
    inputs.insert(inputs.end(), mask.begin(), mask.end());
    made.push_back(made_like(end, attention_call(scale, f.layout != kNoCall), std::move(inputs),
                             {out, log_sum}));
    if (f.layout != kNoCall) out = with_rows_outside(out);
    for (const int call : f.calls) remove(call);
    remove(f.out);
    if (f.query != kNoCall) remove(f.query);
    if (!b) return;
    inputs = operands;
    inputs.insert(inputs.end(), {out, log_sum, node(b->d_weights).inputs[0]});
    inputs.insert(inputs.end(), mask.begin(), mask.end());
    Node backward =
        made_like(b->d_query, attention_gradient_call(scale, f.scale), std::move(inputs),
                  {result(b->d_query), result(b->d_key), result(b->d_value),
                   graph_.add_temporary(f32, rows)});
    for (const int call : b->calls) remove(call);
    for (const int call : {b->d_weights, b->d_query, b->d_key, b->d_value}) remove(call);
    made_[last].push_back(std::move(backward));
  }
  void remove(int call) { replaced_[call] = true; }

  Graph& graph_;
  Flow flow_;
  std::vector<int> marked_;  // buffers that the user asked about
  std::vector<bool> replaced_;
  std::map<int, std::vector<Node>> made_;  // in place of a call
};

}  // namespace

bool has_aligned_rows(const Graph& graph, const Value& x) {
  const auto size = static_cast<int64_t>(size_of(x.dtype));
  const Buffer& buffer = graph.buffers[x.buffer];
  if (buffer.misalignment != 0 || x.offset * size % 16 != 0) return false;
  if (buffer.captured.defined()) {
    const Tensor& x = buffer.captured;
    const std::uintptr_t start =
        reinterpret_cast<std::uintptr_t>(x.data()) -
        static_cast<std::uintptr_t>(x.storage_offset()) * size_of(x.dtype());
    if (start % 16 != 0) return false;
  }
  const int last = x.shape.size() - 1;
  for (int d = 0; d < last; ++d) {
    if (x.shape[d] != 1 && x.strides[d] * size % 16 != 0) return false;
  }
  constexpr int64_t kMostBetweenRows = INT32_MAX / 64;  // elements
  return (x.strides[last] == 1 || x.shape[last] == 1) &&
         (last == 0 || x.strides[last - 1] <= kMostBetweenRows);
}

int fuse_attention(Graph& graph) {
  if (graph.device.is_cpu()) return 0;
  return Attentions(graph).run();
}

}  // namespace brrr::graph
