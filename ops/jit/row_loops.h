// The loops over the elements of a row, or of a column, in the source of CUDA kernels with
// reductions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <brrr/ops/jit/render.h>

namespace brrr::jit::pieces {

// Writes the loops of one kernel: the loads of vector i + u * STEP of the reduced space, and what
// the passes do with them.
class RowLoops {
 public:
  RowLoops(const Body& body, const Schedule& schedule) : body_(body), schedule_(schedule) {}

  std::string packs(std::string_view indent, std::uint32_t inputs = ~0u,
                    std::string_view type = "Pack", std::string_view name = "p") const {
    std::string text;
    for_packed([&](std::size_t k) {
      if (!(inputs >> k & 1)) return;
      text += fmt::format("{}{}<{}, W> {}{}[U];\n", indent, type, c_name(body_.inputs[k].dtype),
                          name, k);
    });
    return text;
  }

  // Loads all vectors of a row into p<k>[U], and declares the values that are live between passes.
  std::string load_once(const std::vector<RowPass>& passes) const {
    std::string declarations;
    for (const RowPass& pass : passes) {
      for (const int v : pass.live_out)
        declarations += fmt::format("  {} k{}[U][W];\n", register_name(body_.value(v).dtype), v);
    }
    if (!schedule_.reduces_columns)
      return packs("  ") + declarations + load_vectors(~schedule_.shared);
    std::string moved;
    for_packed([&](std::size_t k) {
      if (!(schedule_.shared >> k & 1))
        moved += fmt::format("    p{0}[u] = next{0}[u].pack();\n", k);
    });
    return packs("  ", ~schedule_.shared) + declarations +
           fmt::format("#pragma unroll\n  for (int u = 0; u < U; ++u) {{\n{}  }}\n", moved);
  }
  // Loads the inputs that all rows share, once for all of them.
  std::string load_shared() const {
    if (schedule_.shared == 0) return "";
    return packs("  ", schedule_.shared) + load_vectors(schedule_.shared);
  }
  std::string next_packs() const { return packs("  ", ~schedule_.shared, "Ahead", "next"); }
  // Loads the vectors of row `mine` into next<k>[U].
  std::string load_next() const {
    std::string names;
    for_packed([&](std::size_t k) {
      if (!(schedule_.shared >> k & 1)) names += fmt::format("  auto& p{0} = next{0};\n", k);
    });
    return names + load_vectors(~schedule_.shared);
  }

  // One pass. `partial` is what element e of vector u enters, `index` its place in the row.
  std::string pass(std::size_t number, const RowPass& pass, std::string_view partial,
                   std::string_view row, std::string_view index) const {
    const std::string visited = vector(number, pass, partial, row, index);
    if (schedule_.keeps) {
      // What no visit reads is dropped.
      const std::string loaded = schedule_.reduces_columns ? "" : loads("    ", schedule_.shared);
      return fmt::format(
          "#pragma unroll\n  for (int u = 0; u < U; ++u) {}{{\n{}{}{}  }}\n", within_row(),
          pass.outputs.empty() && loaded.empty() ? "" : located("    "), loaded, visited);
    }
    std::string text = "  {\n  i64 i = first;\n", hops;
    for_moving([&](std::size_t operand, std::string_view type, std::string_view name,
                   std::string_view constant) {
      text += fmt::format(
          "  {3}{0}* at_{1} = {1} + base[{2}] + i * reduced.stride[{2}][0];\n"
          "  const i64 hop_{1} = STEP * reduced.stride[{2}][0];\n",
          type, name, operand, constant);
      hops += fmt::format("    at_{0} += U * hop_{0};\n", name);
    });
    const auto round = [&](std::string_view condition) {
      text += packs("    ") +
              fmt::format("#pragma unroll\n    for (int u = 0; u < U; ++u) {}{{\n", condition) +
              located("      ") + loads("      ") +
              fmt::format("    }}\n{}\n    for (int u = 0; u < U; ++u) {}{{\n{}{}    }}\n",
                          unrolled(body_, schedule_.width * schedule_.unroll), condition,
                          reads_places(pass) ? located("      ") : "", visited);
    };
    text += "#pragma unroll 1\n  for (; i + (U - 1) * STEP < end; i += U * STEP) {\n";
    round("");
    text += hops + "  }\n  if (i < end) {\n";
    round(kWithinRow);
    return text + "  }\n  }\n";
  }

 private:
  static constexpr std::string_view kWithinRow = "if (i + u * STEP < end) ";
  std::string_view within_row() const { return schedule_.exact ? "" : kWithinRow; }

  bool by_columns() const { return schedule_.walk == Walk::columns; }
  std::string load_vectors(std::uint32_t inputs) const {
    return fmt::format("#pragma unroll\n  for (int u = 0; u < U; ++u) {}{{\n{}{}  }}\n",
                       within_row(), located("    "), loads("    ", inputs));
  }

  // The reduced space is one dimension whose stride is known only at run time: each operand is
  // walked by a pointer.
  bool walks_by_pointer() const {
    return by_columns() && schedule_.reduced_rank == 1 && !schedule_.keeps;
  }
  bool is_broadcast(std::size_t operand) const { return schedule_.broadcast >> operand & 1; }

  template <class F>
  void for_packed(F f) const {
    for (std::size_t k = 0; k < body_.inputs.size(); ++k) {
      if (!is_of_rows(body_, k) && !is_address(body_, k)) f(k);
    }
  }
  template <class F>
  void for_moving(F f) const {
    if (!walks_by_pointer()) return;
    for_packed([&](std::size_t k) {
      f(k, c_name(body_.inputs[k].dtype), fmt::format("in{}", k), "const ");
    });
    for (std::size_t o = 0; o < body_.outputs.size(); ++o) {
      if (body_.outputs[o].scope == Body::Scope::element)
        f(body_.reads() + o, c_name(body_.outputs[o].dtype), fmt::format("out{}", o), "");
    }
  }

  // at[k]: the offset of vector i + u * STEP in every operand.
  std::string located(std::string_view indent) const {
    if (schedule_.reduced_rank == 1) return "";
    return fmt::format("{0}i64 at[EACH];\n{0}locate<REDUCED, {1}>(reduced, i + u * STEP, at);\n",
                       indent, schedule_.wide);
  }

  // Whether visits of a vector need its place: outputs, addresses and coordinates do.
  bool reads_places(const RowPass& pass) const {
    if (!pass.outputs.empty()) return true;
    for (std::size_t k = 0; k < body_.inputs.size(); ++k) {
      if (is_address(body_, k)) return true;
    }
    return std::ranges::any_of(body_.indices,
                               [](Body::Scope scope) { return scope > Body::Scope::row; });
  }

  // The offset of the vector within its row.
  std::string offset(std::size_t operand) const {
    if (schedule_.reduced_rank > 1) return fmt::format("at[{}]", operand);
    return !by_columns() && schedule_.width > 1 && !is_broadcast(operand)
               ? "(i + u * STEP) * W"
               : fmt::format("(i + u * STEP) * reduced.stride[{}][0]", operand);
  }
  std::string address(std::string_view name, std::size_t operand) const {
    return walks_by_pointer() ? fmt::format("at_{0} + u * hop_{0}", name)
                              : fmt::format("{} + base[{}] + {}", name, operand, offset(operand));
  }
  // The offset of the vector's first element, from the operand's beginning.
  std::string first_element(std::size_t operand) const {
    return fmt::format("base[{}] + {}", operand,
                       schedule_.reduced_rank > 1
                           ? fmt::format("at[{}]", operand)
                           : fmt::format("(i + u * STEP) * reduced.stride[{}][0]", operand));
  }
  // And of its element e.
  std::string element(std::size_t operand) const {
    if (is_broadcast(operand)) return first_element(operand);
    return fmt::format("{1} + e * ({2}.stride[{0}][{3} - 1] / W)", operand, first_element(operand),
                       by_columns() ? "kept" : "reduced", by_columns() ? "RANK" : "REDUCED");
  }

  // Of inputs, as bits.
  std::string loads(std::string_view indent, std::uint32_t inputs = ~0u) const {
    std::string text;
    for_packed([&](std::size_t k) {
      if (!(inputs >> k & 1)) return;
      std::string load = fmt::format("{}<W>({})", is_broadcast(k) ? "spread" : "load",
                                     address(fmt::format("in{}", k), k));
      // The schedule keeps a vector on one side of a bound.
      const std::string within = within_bounds(
          body_, k, [&](std::size_t n) { return first_element(body_.inputs.size() + n); });
      if (!within.empty())
        load = fmt::format("{} ? {} : Pack<{}, W>()", within, load, c_name(body_.inputs[k].dtype));
      text += fmt::format("{}p{}[u] = {};\n", indent, k, load);
    });
    return text;
  }

  std::string visits_of(std::size_t number, const RowPass& pass, std::string_view partial,
                        std::string_view row, std::string_view index) const {
    std::string text =
        fmt::format("{}\n      for (int e = 0; e < W; ++e) visit{}(",
                    schedule_.keeps ? "#pragma unroll" : unrolled(body_, schedule_.width), number);
    if (!pass.reductions.empty()) text += fmt::format("{}, ", partial);
    if (!pass.column_reductions.empty()) text += "columns[u][e], line < kept.count, ";
    text += fmt::format("{}, ", row);
    text += element_arguments(
        body_, [](std::size_t k) { return fmt::format("widen(p{}[u], e)", k); },
        [&](std::size_t k) { return fmt::format("in{} + {}", k, element(k)); },
        [&](std::size_t k) { return element(body_.inputs.size() + k); });
    text += constant_arguments(body_) + std::string(index);
    for (const int v : pass.live_in) text += fmt::format(", k{}[u][e]", v);
    for (const int v : pass.live_out) text += fmt::format(", k{}[u][e]", v);
    for (const int o : pass.outputs) text += fmt::format(", y{}[e]", o);
    return text + (is_guarded(body_, pass) ? ", guard);\n" : ");\n");
  }

  // Statements before a vector enters the accumulators, and those that undo it. By columns each
  // element of a vector has an accumulator.
  std::pair<std::string, std::string> saved_partials(std::size_t number, const RowPass& pass,
                                                     std::string_view partial) const {
    constexpr std::string_view kEach = "#pragma unroll\n      for (int e = 0; e < W; ++e) ";
    std::string saved, restored;
    if (!pass.column_reductions.empty()) {
      saved = fmt::format(
          "      ColumnPartial column_before[W];\n{}column_before[e] = columns[u][e];\n", kEach);
      restored = fmt::format("{}columns[u][e] = column_before[e];\n", kEach);
    }
    if (pass.reductions.empty()) return {saved, restored};
    if (schedule_.walk == Walk::rows) {
      return {saved + fmt::format("      const Partial{} before = {};\n", number, partial),
              restored + fmt::format("      {} = before;\n", partial)};
    }
    return {fmt::format("      Partial{} before[W];\n{}before[e] = {};\n", number, kEach, partial),
            fmt::format("{}{} = before[e];\n", kEach, partial)};
  }

  std::string vector(std::size_t number, const RowPass& pass, std::string_view partial,
                     std::string_view row, std::string_view index) const {
    std::string text;
    for (const int o : pass.outputs) {
      text += fmt::format("      {} y{}[W];\n",
                          register_name(body_.outputs[static_cast<std::size_t>(o)].dtype), o);
    }
    if (!draws_of_elements(body_).empty()) text += "      DrawCaches caches;\n";
    const std::string visits = visits_of(number, pass, partial, row, index);
    if (is_guarded(body_, pass)) {
      const auto [before, restored] = saved_partials(number, pass, partial);
      text += fmt::format(
          "{}      Guard guard;\n{}      if (guard.fails()) {{\n{}      Exact guard;\n{}      }}\n",
          before, visits, restored, visits);
    } else {
      text += visits;
    }
    for (const int o : pass.outputs) {
      const auto at = static_cast<std::size_t>(o);
      text += fmt::format(
          "      Pack<{0}, W> q{1};\n      narrow_all(y{1}, q{1});\n      if (line < kept.count) "
          "store({2}, "
          "q{1});\n",
          c_name(body_.outputs[at].dtype), o, address(fmt::format("out{}", o), body_.reads() + at));
    }
    return text;
  }

  const Body& body_;
  const Schedule& schedule_;
};

}  // namespace brrr::jit::pieces
