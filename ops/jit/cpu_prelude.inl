// What every kernel for the system compiler starts with. After it come tensor/strided_space.inl,
// dispatch/functions.def, scalar_math.inl, convert.inl, vector_exp.inl and lanes.inl of ops/cpu/,
// and cpu_tiles.inl. Eager's loops are compiled from the same files of ops/cpu/, so both have the
// same bits. Nothing is included, which halves the time to compile; the compiler of kernels closes
// the namespace.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#define BRRR_SCALAR_FN inline __attribute__((always_inline))
#define BRRR_FN static inline __attribute__((always_inline))
// What is done once a tile is called and not inlined, which halves the time to compile.
#define BRRR_ONCE_A_TILE __attribute__((noinline))
#define K(x) static_cast<T>(x)
#if defined(__clang__)
#define BRRR_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define BRRR_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif
#define BRRR_SCALARS_ARE_LANES BRRR_VECTOR_MATH

// Functions of the library's namespace would be replaced by the library's when a kernel is loaded.
namespace brrr::generated {
