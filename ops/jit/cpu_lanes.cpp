#include "brrr/ops/jit/cpu_lanes.h"

#include <algorithm>
#include <map>
#include <set>

#include "brrr/ops/cpu/vector_math.h"
#include "brrr/ops/jit/render.h"

namespace brrr::jit {

bool suits_lanes(Expression expression) {
  return std::ranges::all_of(expression.values(), [](const ScalarValue& value) {
    switch (value.op) {
      case ScalarOp::lowest:
      case ScalarOp::highest:
      case ScalarOp::logical_not:
      case ScalarOp::logical_or:
      case ScalarOp::logical_and:
      case ScalarOp::bit_xor:
      case ScalarOp::modulo: return false;
      default: return !value.function || value.function->in_lanes;
    }
  });
}

namespace {

using namespace pieces;
using Kind = BodyValue::Kind;

bool has_lanes_form(const BodyValue& value) {
  return value.kind == Kind::expression && is_floating(value.type) && !value.select &&
         register_dtype(value.dtype) == register_dtype(value.type) && suits_lanes(value.expression);
}

// Whether it selects among selections: see Terms in ops/cpu/row_terms.inl.
bool clamps(Expression expression) {
  const std::span<const ScalarValue> values = expression.values();
  return std::ranges::any_of(values, [&](const ScalarValue& value) {
    return value.op == ScalarOp::minimum &&
           values[static_cast<std::size_t>(value.operands[0])].op == ScalarOp::maximum;
  });
}

}  // namespace

bool needs_lanes(const Body& body, int number) {
#if BRRR_VECTOR_MATH
  const BodyValue& value = body.value(number);
  // Lanes round to halves without branches. The compiler would compute a loop's selections once for
  // each way through the roundings before them.
  return (value.expression.functions() > 0 || clamps(value.expression) ||
          is_rounded(body, number)) &&
         has_lanes_form(value);
#else
  (void)body, (void)number;
  return false;
#endif
}

namespace {

std::set<int> values_in_lanes(const Body& body, const std::vector<int>& elements,
                              const std::function<bool(int)>& is_read) {
  std::set<int> lanes;
  std::map<int, std::vector<int>> readers;
  const auto suits = [&](int value) {
    return !is_read(value) && has_lanes_form(body.value(value));
  };
  const auto is_in_lanes = [&](int value) { return lanes.contains(value); };
  for (const int value : elements) {
    const std::vector<int>& operands = body.value(value).operands;
    for (const int operand : operands) readers[operand].push_back(value);
    const bool follows = std::any_of(operands.begin(), operands.end(), is_in_lanes);
    if (suits(value) && (needs_lanes(body, value) || follows)) lanes.insert(value);
  }
  for (auto value = elements.rbegin(); value != elements.rend(); ++value) {
    const std::vector<int>& of_value = readers[*value];
    if (suits(*value) && !of_value.empty() &&
        std::all_of(of_value.begin(), of_value.end(), is_in_lanes))
      lanes.insert(*value);
  }
  return lanes;
}

class Stages {
 public:
  Stages(const Body& body, const std::vector<int>& elements,
         const std::function<bool(int)>& is_read)
      : body_(body), lanes_(values_in_lanes(body, elements, is_read)) {
    for (const int value : elements) {
      stages_[value] = is_read(value) ? -1 : stage_of(value);
      if (follows_function(value)) functions_.insert(value);
    }
  }
  std::map<int, int> take() { return std::move(stages_); }

 private:
  int stage_of(int number) const {
    const int parity = lanes_.contains(number) ? 1 : 0;
    int stage = parity;
    for (const int operand : body_.value(number).operands) {
      const auto found = stages_.find(operand);
      if (found == stages_.end() || found->second < 0) continue;
      const bool alike = found->second % 2 == parity;
      const bool together = alike && !(parity == 1 && waits(number, operand));
      stage = std::max(stage, found->second + (together ? 0 : alike ? 2 : 1));
    }
    return stage;
  }
  // Whether a value in Lanes has a later stage than an operand in Lanes.
  bool waits(int number, int operand) const {
    const bool calls = is_function(number), follows = functions_.contains(operand);
    return register_dtype(body_.value(operand).dtype) != register_dtype(body_.value(number).type) ||
           (calls && follows) || (calls != follows && is_rounded(body_, operand));
  }
  bool is_function(int number) const { return body_.value(number).expression.functions() > 0; }
  // Whether a value in Lanes is, or depends on, a function of its stage.
  bool follows_function(int number) const {
    if (!lanes_.contains(number)) return false;
    const std::vector<int>& operands = body_.value(number).operands;
    return is_function(number) || std::any_of(operands.begin(), operands.end(), [&](int operand) {
             return functions_.contains(operand) && stages_.at(operand) == stages_.at(number);
           });
  }

  const Body& body_;
  std::set<int> lanes_;  // values that Lanes compute
  std::map<int, int> stages_;
  std::set<int> functions_;  // those of which follows_function holds
};

}  // namespace

std::map<int, int> stages_of(const Body& body, const std::vector<int>& elements,
                             const std::function<bool(int)>& is_read) {
  return Stages(body, elements, is_read).take();
}

}  // namespace brrr::jit
