// An index space, the strides of several operands in it, and the walk through it in row-major
// order. Compiled as C++ (strided_space.h) and prepended to generated CPU kernels, so both walk
// in the same order. The file includes nothing and expects two macros: BRRR_SCALAR_FN marks
// functions to be inlined, BRRR_ONCE_A_TILE those that are not.

struct StridedSpace {
  using Int = __INT64_TYPE__;
  static constexpr int kMaxOperands = 20;

  int rank = 0;
  int operands = 0;
  Int size[8];
  Int stride[kMaxOperands][8];  // in elements; 0 where an operand is broadcast

  void add_dim(Int s) { size[rank++] = s; }
  Int count() const {
    Int n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
  Int inner_size() const { return size[rank - 1]; }
  Int inner_stride(int operand) const { return stride[operand][rank - 1]; }
};

// The coordinates of an element. A run is the elements from there to the end of the innermost
// dimension.
struct Coordinates {
  using Int = StridedSpace::Int;
  Int at[8];

  BRRR_ONCE_A_TILE Coordinates() : at{} {}  // of the first element
  BRRR_ONCE_A_TILE Coordinates(const StridedSpace& space, Int element) {
    for (int d = space.rank - 1; d > 0; --d) {
      const Int above = element / space.size[d];
      at[d] = element - above * space.size[d];
      element = above;
    }
    at[0] = element;
  }
  BRRR_ONCE_A_TILE Int offset(const StridedSpace& space, int operand) const {
    Int sum = 0;
    for (int d = 0; d < space.rank; ++d) sum += at[d] * space.stride[operand][d];
    return sum;
  }
  Int run(const StridedSpace& space) const { return space.inner_size() - at[space.rank - 1]; }
  BRRR_ONCE_A_TILE void advance(const StridedSpace& space, Int elements) {
    at[space.rank - 1] += elements;
    for (int d = space.rank - 1; d > 0 && at[d] >= space.size[d]; --d) {
      at[d - 1] += at[d] / space.size[d];
      at[d] %= space.size[d];
    }
  }
  // To the next index of the dimensions before the last two, once the last but one has ended.
  // Returns how much the operand's offset changes.
  BRRR_ONCE_A_TILE Int carry(const StridedSpace& space, int operand) {
    const Int* stride = space.stride[operand];
    const int ended = space.rank - 2;
    Int change = -space.size[ended] * stride[ended];
    for (int d = ended - 1; d >= 0; --d) {
      change += stride[d];
      if (++at[d] < space.size[d]) break;
      change -= stride[d] * space.size[d];
      at[d] = 0;
    }
    return change;
  }
};

// Calls f(elements before it, length, offset of the operand) for each run of the `n` elements from
// `first` on.
template <class F>
BRRR_SCALAR_FN void each_run(const StridedSpace& space, int operand, Coordinates first,
                             StridedSpace::Int n, F f) {
  using Int = StridedSpace::Int;
  // Copies to locals, since the compiler must assume that f overwrites the space.
  const int inner = space.rank - 1, outer = inner > 0 ? inner - 1 : 0;
  const Int row = space.size[inner], step = space.stride[operand][outer];
  Int offset = first.offset(space, operand), length = first.run(space);
  Int lead = first.at[inner] * space.stride[operand][inner];  // from the start of the first run
  Int rows = space.size[outer] - first.at[outer];
  for (Int done = 0; done < n;) {
    if (length > n - done) length = n - done;
    f(done, length, offset);
    done += length;
    length = row;
    offset += step - lead;
    lead = 0;
    if (--rows == 0 && done < n) {
      offset += first.carry(space, operand);
      rows = space.size[outer];
    }
  }
}
