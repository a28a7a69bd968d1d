// An index space, the strides of several operands in it, and the walk through it in row-major
// order. Compiled as C++ (strided_space.h) and put as text in front of generated CPU kernels, so
// both walk alike. It includes nothing; before it stand BRRR_SCALAR_FN and BRRR_ONCE_A_TILE, which
// mark what is to be inlined and what is not.

struct StridedSpace {
  using Int = __INT64_TYPE__;
  static constexpr int kMaxOperands = 16;

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
  // To the start of the next run. Returns how much the operand's offset changes.
  BRRR_ONCE_A_TILE Int next_run(const StridedSpace& space, int operand) {
    const Int* stride = space.stride[operand];
    const int inner = space.rank - 1;
    Int change = -at[inner] * stride[inner];
    at[inner] = 0;
    for (int d = inner - 1; d >= 0; --d) {
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
  StridedSpace::Int offset = first.offset(space, operand);
  for (StridedSpace::Int done = 0; done < n;) {
    const StridedSpace::Int left = first.run(space), length = left < n - done ? left : n - done;
    f(done, length, offset);
    done += length;
    if (done < n) offset += first.next_run(space, operand);
  }
}
