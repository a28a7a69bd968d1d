// Owns the passes of a kernel over the elements of a row: which values each one computes.
#include <algorithm>

#include "brrr/ops/jit/render.h"

namespace brrr::jit::pieces {
namespace {

using Kind = BodyValue::Kind;

// Appends `value`, after what it needs, where `takes` allows it.
template <class F>
void collect(const Body& body, int value, std::vector<int>& list, F takes) {
  if (!takes(value) || std::find(list.begin(), list.end(), value) != list.end()) return;
  for (const int operand : body.value(value).operands) collect(body, operand, list, takes);
  list.push_back(value);
}

}  // namespace

std::vector<RowPass> passes_of(const Body& body) {
  const std::vector<Level> levels = levels_of(body);
  const bool reduces = body.reduces();
  const auto per_element = [&](int value) {
    return !reduces || levels[static_cast<std::size_t>(value)].per_element();
  };
  const auto pass_of = [&](int value) { return levels[static_cast<std::size_t>(value)].pass; };
  int last = 0;
  for (const Level& level : levels) last = std::max(last, level.pass);
  std::vector<RowPass> passes(static_cast<std::size_t>(last) + 1);
  for (int p = 0; p <= last; ++p) {
    RowPass& pass = passes[static_cast<std::size_t>(p)];
    const auto computes = [&](int value) {
      const Kind kind = body.value(value).kind;
      return per_element(value) && kind != Kind::scalar;
    };
    for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
      const BodyValue& value = body.value(i);
      if (levels[static_cast<std::size_t>(i)].of_columns) {
        if (value.kind != Kind::column_reduction || pass_of(i) != p) continue;
        pass.column_reductions.push_back(i);
        collect(body, value.operands[0], pass.elements, computes);
      } else if (is_reduction(value) && pass_of(i) == p + 1) {
        pass.reductions.push_back(i);
        collect(body, value.operands[0], pass.elements, computes);
      } else if (value.is_check() && per_element(i) && pass_of(i) == p) {
        collect(body, i, pass.elements, computes);
      } else if (!per_element(i) && pass_of(i) == p + 1 && value.kind != Kind::scalar) {
        pass.results.push_back(i);
      }
    }
    for (std::size_t o = 0; o < body.outputs.size(); ++o) {
      const int value = body.outputs[o].value;
      if (!per_element(value) || pass_of(value) != p) continue;
      pass.outputs.push_back(static_cast<int>(o));
      collect(body, value, pass.elements, computes);
    }
  }
  for (RowPass& pass : passes) std::sort(pass.elements.begin(), pass.elements.end());
  // Results that nothing is computed from need no pass.
  if (reduces && passes.back().outputs.empty() && passes.back().elements.empty()) passes.pop_back();
  return passes;
}

std::vector<int> elements_without(const Body& body, const RowPass& pass,
                                  const std::function<bool(int)>& is_known) {
  std::vector<int> needed;
  const auto need = [&](auto&& self, int value) -> void {
    if (!std::binary_search(pass.elements.begin(), pass.elements.end(), value) ||
        std::find(needed.begin(), needed.end(), value) != needed.end())
      return;
    needed.push_back(value);
    if (is_known(value)) return;
    for (const int operand : body.value(value).operands) self(self, operand);
  };
  for (const int r : pass.reductions) need(need, body.value(r).operands[0]);
  for (const int o : pass.outputs) need(need, body.outputs[static_cast<std::size_t>(o)].value);
  for (const int value : pass.elements) {
    if (body.value(value).is_check() && !is_known(value)) need(need, value);
  }
  std::sort(needed.begin(), needed.end());
  return needed;
}

void keep_values(const Body& body, std::vector<RowPass>& passes, int most) {
  std::vector<RowPass> keeping = passes;
  std::vector<int> made(body.values.size(), -1);  // the pass that computes each value
  std::vector<int> kept;
  for (std::size_t n = 0; n < keeping.size(); ++n) {
    RowPass& pass = keeping[n];
    std::vector<int> elements;
    const auto computes = [&](int value) {
      if (!std::binary_search(pass.elements.begin(), pass.elements.end(), value)) return false;
      if (made[static_cast<std::size_t>(value)] < 0) return true;
      if (std::find(pass.live_in.begin(), pass.live_in.end(), value) == pass.live_in.end())
        pass.live_in.push_back(value);
      return false;
    };
    for (const std::vector<int>& reductions : {pass.reductions, pass.column_reductions}) {
      for (const int r : reductions) collect(body, body.value(r).operands[0], elements, computes);
    }
    for (const int o : pass.outputs)
      collect(body, body.outputs[static_cast<std::size_t>(o)].value, elements, computes);
    for (const int value : pass.elements) {
      if (body.value(value).is_check()) collect(body, value, elements, computes);
    }
    std::sort(elements.begin(), elements.end());
    pass.elements = std::move(elements);
    for (const int value : pass.elements) {
      const Kind kind = body.value(value).kind;
      if (kind != Kind::input && kind != Kind::index)
        made[static_cast<std::size_t>(value)] = static_cast<int>(n);
    }
    for (const int value : pass.live_in) {
      if (std::find(kept.begin(), kept.end(), value) != kept.end()) continue;
      kept.push_back(value);
      keeping[static_cast<std::size_t>(made[static_cast<std::size_t>(value)])].live_out.push_back(
          value);
    }
  }
  if (static_cast<int>(kept.size()) <= most) passes = std::move(keeping);
}

std::vector<int> values_of_rows(const Body& body) {
  std::vector<int> list;
  if (!body.reduces()) return list;
  const std::vector<Level> levels = levels_of(body);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].per_row() && levels[i].pass == 0 && body.values[i].kind != Kind::scalar)
      list.push_back(static_cast<int>(i));
  }
  return list;
}

std::vector<int> values_of_columns(const Body& body) {
  std::vector<int> list;
  const std::vector<Level> levels = levels_of(body);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].of_columns) list.push_back(static_cast<int>(i));
  }
  return list;
}

std::vector<int> column_reductions(const Body& body) {
  std::vector<int> list;
  for (int i = 0; i < static_cast<int>(body.values.size()); ++i) {
    if (body.value(i).kind == Kind::column_reduction) list.push_back(i);
  }
  return list;
}

}  // namespace brrr::jit::pieces
