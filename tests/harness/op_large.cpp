// Cells large enough to be split: into chunks for threads, blocks of a reduction, panels of a
// product. Errors at a boundary show only here.
#include <cmath>

#include "brrr/ops/functions.h"
#include "tests/harness/op_structured.h"

namespace brrr::test {

namespace {

using In = std::span<const Tensor>;

// Past the largest block of a reduction, and no multiple of anything.
const Dims kWide = {411, 401};
const Dims kLong = {150003};

void large_pointwise(Report& report, Device device) {
  for (const Pointwise& row : pointwise_ops()) {
    const OpInfo& info = op_info(row.op);
    const bool select = info.rule == DTypeRule::select;
    for (DType dtype : {f32, bf16, i32}) {
      if (!contains(info.types, dtype)) continue;
      // All types once for one op of each arity; the loops behind the others are the same.
      const std::string name = info.name;
      if (dtype != f32 && name != "neg" && name != "add" && name != "where" &&
          name != "bitwise_and") {
        continue;
      }
      const std::vector<std::vector<Slot>> cells = {
          {{dtype, kWide, Layout::transposed}, {dtype, {401}}, {dtype, {411, 1}}},
          {{dtype, kLong, Layout::strided}, {dtype, {}}, {dtype, kLong}}};
      for (std::vector<Slot> slots : cells) {
        slots.resize(static_cast<std::size_t>(row.arity));
        if (select) slots[0].dtype = boolean;
        run(report, {&row, slots}, device);
        if (!select) run(report, {&row, slots, true}, device);
      }
    }
  }
}

void large_reductions(Report& report, Device device) {
  for (DType dtype : {f32, f64, bf16, i64}) {
    for (Layout layout : kLayouts) {
      for (const Dims& shape : {kWide, kLong, Dims{7, 50, 401}, Dims{130, 3, 401}}) {
        if (!applies(layout, shape)) continue;
        const Sample x = sample_of("large", shape, dtype, layout, device);
        const double size = static_cast<double>(numel_of(shape)) * 0x1p-22;
        const double slack = dtype == f32 || dtype == bf16 ? size : 0;
        double total = 0, most = x.values[0];
        std::size_t at = 0;
        for (std::size_t i = 0; i < x.values.size(); ++i) {
          total += x.values[i];
          if (x.values[i] > most) most = x.values[i], at = i;
        }
        const DType summed = dtype;
        expect(report, "large sum", [](In in) { return sum(in[0]); }, {x}, summed, {}, {total},
               {slack});
        expect(report, "large max", [](In in) { return max(in[0]); }, {x}, dtype, {}, {most});
        expect(report, "large argmax", [](In in) { return argmax(in[0]); }, {x}, i64, {},
               {static_cast<double>(at)});
        if (shape.size() < 2) continue;
        // Over all dimensions but one, which takes each position.
        for (int kept = 0; kept < shape.size(); ++kept) {
          Dims dims;
          for (int d = 0; d < shape.size(); ++d) {
            if (d != kept) dims.push_back(d);
          }
          Values sums(static_cast<std::size_t>(shape[kept]));
          for (std::size_t i = 0; i < x.values.size(); ++i) {
            const Index index = index_of(static_cast<std::int64_t>(i), shape);
            sums[static_cast<std::size_t>(index[static_cast<std::size_t>(kept)])] += x.values[i];
          }
          expect(report, "large sum of dims", [&](In in) { return sum(in[0], dims); }, {x}, summed,
                 {shape[kept]}, sums, {slack});
        }
      }
    }
  }
}

void large_structured(Report& report, Device device) {
  for (DType dtype : {f32, f16, i64, boolean}) {
    for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::strided}) {
      const Sample x = sample_of("large", kWide, dtype, layout, device);
      const Match exact{0, true, true};
      const auto at = [&](std::int64_t i, std::int64_t j) {
        return x.values[static_cast<std::size_t>(i * 401 + j)];
      };
      expect(
          report, "large clone", [](In in) { return clone(in[0]); }, {x}, dtype, kWide, x.values,
          exact);
      expect(
          report, "large cast", [](In in) { return cast(in[0], f64); }, {x}, f64, kWide, x.values,
          exact);
      expect_at(
          report, "large tril", [](In in) { return tril(in[0], 3); }, {x}, dtype, kWide,
          [&](const Index& i) { return i[1] - i[0] <= 3 ? at(i[0], i[1]) : 0; }, exact);
      expect_at(
          report, "large cat",
          [](In in) {
            return cat({in[0], in[0]}, 1);
          },
          {x}, dtype, {411, 802}, [&](const Index& i) { return at(i[0], i[1] % 401); }, exact);
      const Sample rows = indices_of("large rows", {700}, 411, Layout::contiguous, device);
      expect_at(
          report, "large index_select", [](In in) { return index_select(in[0], 0, in[1]); },
          {x, rows}, dtype, {700, 401},
          [&](const Index& i) {
            return at(static_cast<std::int64_t>(rows.values[static_cast<std::size_t>(i[0])]), i[1]);
          },
          exact);
      const Sample picks = indices_of("large picks", kWide, 401, Layout::contiguous, device);
      expect_at(
          report, "large gather", [](In in) { return gather(in[0], 1, in[1]); }, {x, picks}, dtype,
          kWide,
          [&](const Index& i) {
            const auto pick = static_cast<std::size_t>(i[0] * 401 + i[1]);
            return at(i[0], static_cast<std::int64_t>(picks.values[pick]));
          },
          exact);
      for (int dim : {0, 1}) {
        Values sums = x.values;
        for (std::int64_t i = 0; i < 411; ++i) {
          for (std::int64_t j = 0; j < 401; ++j) {
            const std::int64_t before = dim == 0 ? (i - 1) * 401 + j : i * 401 + j - 1;
            if ((dim == 0 ? i : j) == 0) continue;
            sums[static_cast<std::size_t>(i * 401 + j)] += sums[static_cast<std::size_t>(before)];
          }
        }
        const DType summed = is_floating(dtype) ? dtype : i64;
        expect(report, "large cumsum", [&](In in) { return cumsum(in[0], dim); }, {x}, summed,
               kWide, sums, {is_floating(dtype) ? 2e-4 : 0});
      }
    }
  }
}

}  // namespace

void check_large_cells(Report& report, Device device) {
  large_pointwise(report, device);
  large_reductions(report, device);
  large_structured(report, device);
}

}  // namespace brrr::test
