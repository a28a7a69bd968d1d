// Texts that the library carries: the .inl files in front of generated kernels, and .cu files of
// hand-written ones. cmake/embed.cmake makes a constant of each; a new file needs a line here, or
// where it is used.
#pragma once

namespace brrr::sources {

extern const char prelude_inl[];        // CUDA kernels start with it
extern const char cpu_prelude_inl[];    // and kernels for the system compiler with this
extern const char scalar_inl[];         // what the expressions of ops.def may use
extern const char philox_inl[];         // random numbers
extern const char functions_def[];      // the functions of the system's library among those
extern const char scalar_math_inl[];    // those functions on the CPU,
extern const char vector_exp_inl[];     // exp in vectors,
extern const char lanes_inl[];          // all of them in vectors,
extern const char half_inl[];           // conversions of 16-bit floats,
extern const char convert_inl[];        // those of all types,
extern const char draw_batches_inl[];   // and draws
extern const char strided_space_inl[];  // index spaces, as the library walks them
extern const char cpu_tiles_inl[];      // how generated CPU kernels walk,
extern const char cpu_bounds_inl[];     // and read within bounds
extern const char faults_inl[];         // reports of CUDA kernels that check

// The tile kernel of products, in the order of its source; the kernel of small products.
extern const char matmul_tiles_instructions_inl[];
extern const char matmul_tiles_geometry_inl[];
extern const char matmul_tiles_a_in_shared_inl[];
extern const char matmul_tiles_a_in_registers_inl[];
extern const char matmul_tiles_epilogue_inl[];
extern const char matmul_tiles_product_inl[];
extern const char matmul_tiles_cu[];
extern const char matmul_small_cu[];

}  // namespace brrr::sources
