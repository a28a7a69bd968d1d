// cat: up to 64 inputs a launch, each a matrix of rows that goes into a stripe of the output's
// rows. Expects the typedef of Word, the unit that is moved; all lengths are in words.

struct CatInput {
  const Word* from;
  i64 from_pitch;  // from one row to the next
  i64 row;         // words of a row
  i64 at;          // where the row starts in a row of the output
};
struct CatArguments {
  Word* out;
  i64 out_pitch, rows;
  CatInput input[64];
};

extern "C" __global__ void __launch_bounds__(256) cat(const __grid_constant__ CatArguments arguments) {
  wait_for_previous_kernel();
  const CatInput input = arguments.input[blockIdx.y];
  const i64 count = arguments.rows * input.row;
  const i64 step = i64(gridDim.x) * blockDim.x;
  i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (arguments.rows == 1) {
    for (; i < count; i += step) arguments.out[input.at + i] = input.from[i];
  } else if (count < (i64(1) << 31)) {
    for (; i < count; i += step) {
      const u32 row = u32(i) / u32(input.row), col = u32(i) - row * u32(input.row);
      arguments.out[row * arguments.out_pitch + input.at + col] = input.from[row * input.from_pitch + col];
    }
  } else {
    for (; i < count; i += step) {
      const i64 row = i / input.row, col = i - row * input.row;
      arguments.out[row * arguments.out_pitch + input.at + col] = input.from[row * input.from_pitch + col];
    }
  }
}
