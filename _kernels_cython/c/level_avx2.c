/* Shim: the kernels of the AVX2 + FMA level; NULL where the compiler was not given its flags. */
#include "zenith.h"

#if defined(__AVX2__) && defined(__FMA__)
#include "vector_avx2.h"

#include "kernels.inc.h"

const zn_kernels *const zn_avx2_kernels = level_kernels;
#else
const zn_kernels *const zn_avx2_kernels = NULL;
#endif
