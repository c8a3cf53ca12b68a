/* Shim: the kernels of the AVX-512 level; NULL where the compiler was not given its flags. */
#include "zenith.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "vector_avx512.h"

#include "kernels.inc.h"

const zn_kernels *const zn_avx512_kernels = level_kernels;
#else
const zn_kernels *const zn_avx512_kernels = NULL;
#endif
