#include "brrr/dispatch/op_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "brrr/tensor/fail.h"

namespace brrr {
namespace detail {

const OpInfo* op_table[kMaxOps];

OpInfo* builtin_rows() {
  static OpInfo* rows = new OpInfo[kBuiltinOps];  // static destructors may still call ops
  return rows;
}

void derive_facts(OpInfo& info) {
  info.parsed_attributes = parse_attributes(info.attributes);
  info.element_flops = info.expression.flops() + info.combine.flops();
  if (info.kind == OpKind::formula) {
    info.parsed_attributes.back().kind = Attribute::Kind::tensor_mask;
    for (const Formula::Assignment& value : info.formula.values)
      info.element_flops += value.expression.flops();
  }
  info.result_flops = info.finish.flops();
  if (info.kind != OpKind::pointwise) return;
  info.algebra =
      info.rule == DTypeRule::converts ? Algebra::conversion : algebra_of(info.expression);
}

namespace {

std::mutex registry_mutex;
std::atomic<int> count{kBuiltinOps};

// Before any static initializer, which may register an op. Only registration changes the table
// later, and only at its end.
[[gnu::constructor(101)]] void link_builtin_rows() {
  for (int i = 0; i < kBuiltinOps; ++i) op_table[i] = &builtin_rows()[i];
}

}  // namespace
}  // namespace detail

int op_count() { return detail::count.load(); }

Op add_op(OpInfo info, std::string name) {
  struct Registered {
    std::string name;
    OpInfo info;
  };
  static std::deque<Registered>* registered = new std::deque<Registered>;
  std::lock_guard lock(detail::registry_mutex);
  const int number = detail::count.load();
  for (int i = 0; i < number; ++i) {
    if (name == detail::op_table[i]->name)
      fail("[register_op] expected a new name, got \"{}\", which exists", name);
  }
  if (number == detail::kMaxOps)
    fail("[register_op] expected fewer than {} ops, got {} as one more", detail::kMaxOps, name);
  Registered& entry = registered->emplace_back(Registered{std::move(name), std::move(info)});
  entry.info.name = entry.name.c_str();
  detail::derive_facts(entry.info);
  detail::op_table[number] = &entry.info;
  detail::count.store(number + 1);
  return static_cast<Op>(number);
}

bool assigns(const Call& call) {
  const OpInfo& info = op_info(call.op);
  return call.in_place && info.kind == OpKind::structured && info.algebra == Algebra::identity &&
         info.effect == Effect::pure;
}

DType accumulator_of(const OpInfo& info, DType dtype, Device device) {
  if (info.kind == OpKind::reduction)
    return reduction_accumulator(info.rule, dtype, !device.is_cpu());
  if (info.algebra == Algebra::scan) return is_floating(dtype) ? f64 : i64;
  return is_half(dtype) ? f32 : dtype;
}

std::vector<Attribute> parse_attributes(std::string_view text) {
  using Kind = Attribute::Kind;
  std::vector<Attribute> attributes;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    const std::size_t end = std::min(word.find(':'), word.find("..."));
    const std::string_view name = word.substr(0, end), kind = word.substr(name.size());
    if (kind != "" && kind != ":double" && kind != ":number" && kind != ":set" && kind != "...") {
      fail("[register_op] expected attributes as \"axis\" or \"scale:double\", got {}", word);
    }
    attributes.push_back({.name = std::string(name),
                          .kind = kind == ":double"   ? Kind::real
                                  : kind == ":number" ? Kind::number
                                  : kind == ":set"    ? Kind::dims
                                  : kind == "..."     ? Kind::shape
                                                      : Kind::integer,
                          .is_rate = name == "rate"});
  }
  return attributes;
}

std::string CallAttribute::text() const {
  switch (row.kind) {
    case Attribute::Kind::real: return fmt::format("{}", call.attrs[place].d());
    case Attribute::Kind::number: return call.number_text(place);
    case Attribute::Kind::shape: return to_string(call.shape_from(place));
    case Attribute::Kind::dims: {
      std::vector<int> dims;
      for (int d = 0; d < kMaxDims; ++d) {
        if (call.attrs[place].i() >> d & 1) dims.push_back(d);
      }
      return fmt::format("{{{}}}", fmt::join(dims, ", "));
    }
    default: return fmt::format("{}", call.attrs[place].i());
  }
}

}  // namespace brrr
