// A product in one instruction set, which the file that includes this has defined: BRRR_TARGET,
// Vector of kWidth floats, their functions, Mask, and kRows, as many rows of two vectors as fit in
// the registers.
//
// A tile of the result is kRows rows of two vectors, or of one where fewer columns are left. The
// columns of b that it needs are read where they are, or packed, kDepth rows at a time, so that
// they stay in the first-level cache for all rows of a; elements of a are broadcast from where they
// are.

constexpr i64 kColumns = 2 * kWidth, kDepth = 256;

// The rows of a product along k: `depth` of b from `b`, in steps of `row`.
struct DepthSlice {
  i64 depth;
  const float* b;
  i64 row;
  float* packed;  // where to pack the rows of b while they are read
};

// kCount rows of c, of the columns that the masks select, plus the product of a slice.
template <int kCount, int kVectors, bool kPacks>
BRRR_TARGET void multiply_tile(const DepthSlice& slice, const float* a, i64 a_row, i64 a_column,
                               float* c, i64 c_row, const Mask* masks, bool adds,
                               const float* bias) {
  Vector sums[kCount][kVectors];
  const float* before = c;
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i, before += c_row) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[i][v] = adds ? load_part(masks[v], before + v * kWidth) : zeros();
  }
  const float* from = slice.b;
  float* packed = slice.packed;
  for (i64 k = 0; k < slice.depth; ++k, from += slice.row, a += a_column) {
    Vector b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      b[v] = load(from + v * kWidth);
      if (kPacks) store(packed + v * kWidth, b[v]);
    }
    if (kPacks) packed += kColumns;
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      const Vector x = all(a[i * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[i][v] = fma(x, b[v], sums[i][v]);
    }
  }
  if (bias) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Vector terms = load_part(masks[v], bias + v * kWidth);
#pragma GCC unroll 12
      for (int i = 0; i < kCount; ++i) sums[i][v] = add(sums[i][v], terms);
    }
  }
  asm("" : "+r"(c));  // the addresses of rows are computed here, not kept during the loop
  const bool whole = is_whole(masks[kVectors - 1]);  // AMD's masked stores take ten times as long
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i, c += c_row) {
    if (kVectors == 2) store(c, sums[i][0]);
    float* const last = c + (kVectors - 1) * kWidth;
    if (whole) {
      store(last, sums[i][kVectors - 1]);
    } else {
      store_part(masks[kVectors - 1], last, sums[i][kVectors - 1]);
    }
  }
}

using Tile = void (*)(const DepthSlice&, const float*, i64, i64, float*, i64, const Mask*, bool,
                      const float*);

// Tiles of 1 to kRows rows.
template <int kVectors, bool kPacks>
struct Tiles {
  Tile of[kRows];

  constexpr Tiles() : of{} { fill(std::make_integer_sequence<int, kRows>()); }
  template <int... kLess>
  constexpr void fill(std::integer_sequence<int, kLess...>) {
    ((of[kLess] = multiply_tile<kLess + 1, kVectors, kPacks>), ...);
  }
};
constexpr Tiles<1, false> kNarrow;
constexpr Tiles<2, false> kWhole;
constexpr Tiles<2, true> kPacking;

// Eight rows of eight elements, transposed: four rows at a time, each with the one that is four
// below in the upper half of its register.
BRRR_TARGET inline void transpose_8x8(const float* from, i64 from_row, float* to, i64 to_row) {
#pragma GCC unroll 2
  for (int half = 0; half < 8; half += 4) {
    __m256 rows[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float* const at = from + i * from_row + half;
      rows[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)),
                                     _mm_loadu_ps(at + 4 * from_row), 1);
    }
    const __m256 low = _mm256_unpacklo_ps(rows[0], rows[1]),
                 high = _mm256_unpackhi_ps(rows[0], rows[1]),
                 next_low = _mm256_unpacklo_ps(rows[2], rows[3]),
                 next_high = _mm256_unpackhi_ps(rows[2], rows[3]);
    float* const out = to + half * to_row;
    _mm256_storeu_ps(out, _mm256_shuffle_ps(low, next_low, 0x44));
    _mm256_storeu_ps(out + to_row, _mm256_shuffle_ps(low, next_low, 0xee));
    _mm256_storeu_ps(out + 2 * to_row, _mm256_shuffle_ps(high, next_high, 0x44));
    _mm256_storeu_ps(out + 3 * to_row, _mm256_shuffle_ps(high, next_high, 0xee));
  }
}

// `depth` rows of `columns` columns of b, at most kColumns, in rows of kColumns. What is beyond
// them is zero.
BRRR_TARGET void pack(float* packed, i64 depth, i64 columns, const MatrixView& b) {
  if (columns < kColumns)
    std::memset(packed, 0, static_cast<std::size_t>(depth * kColumns) * sizeof(float));
  if (b.column == 1) {
    const auto bytes = static_cast<std::size_t>(columns) * sizeof(float);
    for (i64 k = 0; k < depth; ++k) std::memcpy(packed + k * kColumns, b.data + k * b.row, bytes);
    return;
  }
  i64 j = 0;
  for (; b.row == 1 && j + 8 <= columns; j += 8) {
    const float* const from = b.data + j * b.column;
    i64 k = 0;
    for (; k + 8 <= depth; k += 8)
      transpose_8x8(from + k, b.column, packed + k * kColumns + j, kColumns);
    for (; k < depth; ++k) {
      for (i64 i = 0; i < 8; ++i) packed[k * kColumns + j + i] = from[k + i * b.column];
    }
  }
  for (; j < columns; ++j) {
    for (i64 k = 0; k < depth; ++k) packed[k * kColumns + j] = b.data[k * b.row + j * b.column];
  }
}

// How tiles get their rows of b. Rows of a small slice stay in the caches where they are. Of a
// larger one they would displace each other, so the first tile packs them while it multiplies; rows
// that come from farther than the second-level cache are better copied ahead, with more loads in
// flight. One tile has no use for packed rows.
enum class RowAccess { in_place, packing, packed };
RowAccess row_access_of(i64 m, i64 depth, i64 columns, const MatrixView& b) {
  constexpr i64 kInPlace = 16384, kNear = 65536;  // elements from the first to the last row
  if (b.column != 1 || (columns != kColumns && columns != kWidth)) return RowAccess::packed;
  if (m <= kRows || depth * b.row <= kInPlace) return RowAccess::in_place;
  return columns == kColumns && depth * b.row <= kNear ? RowAccess::packing : RowAccess::packed;
}

// A slice's product, of at most kColumns columns: rows in tiles of kRows.
void multiply_slice(DepthSlice slice, RowAccess access, i64 m, i64 columns, const MatrixView& a,
                    float* c, i64 c_row, bool adds, const float* bias) {
  const Mask masks[] = {mask_of(columns), mask_of(columns - kWidth)};
  float* const packed = std::exchange(slice.packed, nullptr);
  const auto& tiles = columns <= kWidth ? kNarrow.of : kWhole.of;
  const i64 count = (m - 1) / kRows + 1;
  for (i64 i = 0; i < count; ++i) {
    const i64 row = i * kRows, height = std::min(kRows, m - row);
    const bool packs = access == RowAccess::packing && i == 0;
    if (packs) slice.packed = packed;
    (packs ? kPacking.of : tiles)[height - 1](slice, a.data + row * a.row, a.row, a.column,
                                              c + row * c_row, c_row, masks, adds, bias);
    if (packs) slice = {slice.depth, packed, kColumns, nullptr};
  }
}

void multiply(i64 m, i64 n, i64 k, MatrixView a, MatrixView b, float* c, i64 c_row,
              const float* bias) {
  alignas(64) float packed[kDepth * kColumns];
  for (i64 first = 0; first < k; first += kDepth) {
    const i64 depth = std::min(kDepth, k - first);
    const MatrixView from{a.data + first * a.column, a.row, a.column};
    for (i64 j = 0; j < n; j += kColumns) {
      const i64 columns = std::min(kColumns, n - j);
      const MatrixView rows{b.data + first * b.row + j * b.column, b.row, b.column};
      const RowAccess access = row_access_of(m, depth, columns, rows);
      DepthSlice slice{depth, rows.data, rows.row, packed};
      if (access == RowAccess::packed) {
        pack(packed, depth, columns, rows);
        slice = {depth, packed, kColumns, nullptr};
      }
      multiply_slice(slice, access, m, columns, from, c + j, c_row, first > 0,
                     bias && first + depth == k ? bias + j : nullptr);
    }
  }
}
