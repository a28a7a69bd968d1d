// x[...]: integers and slices give views, like NumPy's basic indexing; a tensor as index copies
// rows.

#include <algorithm>

#include "brrr/ops/arguments.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

using Kind = TensorIndex::Kind;

int count(std::initializer_list<TensorIndex> indices, Kind kind) {
  return static_cast<int>(std::ranges::count(indices, kind, &TensorIndex::kind));
}

// An index that may count from the end, as in PyTorch and numpy, counted from the start.
Tensor from_start(const Tensor& index, std::int64_t size) {
  const Tensor known = checked(index, -size, size - 1);
  return where(known < 0, known + size, known);
}

Tensor masked_rows(const Tensor& x, const Tensor& mask) {
  const auto rank = static_cast<std::size_t>(mask.rank());
  if (rank == 0 || mask.rank() > x.rank() ||
      !std::ranges::equal(mask.shape(), x.shape().first(rank))) {
    fail("[index] expected a mask of the first dimensions of {}, got {}", x.describe(),
         mask.describe());
  }
  const Tensor places = squeeze(nonzero(flatten(mask)), 1);
  return index_select(flatten(x, 0, mask.rank() - 1), 0, places);
}

}  // namespace

Tensor Tensor::operator[](const TensorIndex& index) const {
  return (*this)[std::initializer_list<TensorIndex>{index}];
}

Tensor Tensor::operator[](std::initializer_list<TensorIndex> indices) const {
  const Composite scope("index", *this);
  const int named = count(indices, Kind::element) + count(indices, Kind::slice);
  if (named > rank() || count(indices, Kind::ellipsis) > 1) {
    fail("[index] expected at most {} indices and one ellipsis for {}, got {} and {}", rank(),
         describe(), named, count(indices, Kind::ellipsis));
  }
  Tensor part = *this;
  Dims shape;
  int dim = 0;  // of this tensor and of `part`, the next to be indexed
  const auto keep = [&](int dims) {
    for (; dims > 0; --dims) shape.push_back(part.shape()[dim++]);
  };
  for (const TensorIndex& index : indices) {
    const Slice& range = index.range;
    switch (index.kind) {
      case Kind::element:
        part = narrow(part, dim, wrap_index("index", *this, dim, range.start), 1);
        ++dim;
        break;
      case Kind::slice:
        part = slice(part, dim, range.start, range.end, range.step);
        keep(1);
        break;
      case Kind::newaxis: shape.push_back(1); break;
      case Kind::ellipsis: keep(rank() - named); break;
    }
  }
  keep(rank() - dim);
  return std::ranges::equal(shape, part.shape()) ? part : view(part, shape);
}

Tensor Tensor::operator[](const Tensor& index) const {
  const Composite scope("index", *this, index);
  if (index.dtype() == boolean) return masked_rows(*this, index);
  if (is_floating(index.dtype()) || rank() == 0) {
    fail(
        "[index] expected integers or bools as index of a tensor with dimensions, got {} as index "
        "of {}",
        index.describe(), describe());
  }
  Dims rows(index.shape());
  const auto own = shape();
  for (const std::int64_t size : own.subspan(1)) rows.push_back(size);
  return reshape(index_select(*this, 0, flatten(from_start(index, size(0)))), rows);
}

}  // namespace brrr
