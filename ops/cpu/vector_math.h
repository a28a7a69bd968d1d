// Whether this build has vector forms of <cmath>'s functions: libmvec, on x86-64 with a glibc that
// is new enough.
#pragma once

#include <cstdint>  // for __GLIBC__

#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define BRRR_VECTOR_MATH 1
#endif
#endif
