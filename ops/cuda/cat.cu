// cat: up to 64 inputs a launch, each a matrix of rows that goes into a stripe of the output's
// rows. Expects the typedef of Word, the unit that is moved; all lengths are in words.

struct Part {
  const Word* from;
  i64 from_pitch;  // from one row to the next
  i64 row;         // words of a row
  i64 at;          // where the row starts in a row of the output
};
struct Parts {
  Word* out;
  i64 out_pitch, rows;
  Part part[64];
};

extern "C" __global__ void __launch_bounds__(256) cat(const __grid_constant__ Parts parts) {
  wait_for_previous_kernel();
  const Part part = parts.part[blockIdx.y];
  const i64 count = parts.rows * part.row;
  const i64 step = i64(gridDim.x) * blockDim.x;
  i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (parts.rows == 1) {
    for (; i < count; i += step) parts.out[part.at + i] = part.from[i];
  } else if (count < (i64(1) << 31)) {
    for (; i < count; i += step) {
      const u32 row = u32(i) / u32(part.row), col = u32(i) - row * u32(part.row);
      parts.out[row * parts.out_pitch + part.at + col] = part.from[row * part.from_pitch + col];
    }
  } else {
    for (; i < count; i += step) {
      const i64 row = i / part.row, col = i - row * part.row;
      parts.out[row * parts.out_pitch + part.at + col] = part.from[row * part.from_pitch + col];
    }
  }
}
