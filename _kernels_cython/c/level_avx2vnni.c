/* Shim: AVX2 with the instructions for products of integers (AVX-VNNI). Its float32 kernels are those of
 * avx2. */
#include "zenith.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__AVXVNNI__)
#include "vector_avx2.h"

#include "kernels.inc.h"

const zn_kernels *const zn_avx2vnni_kernels = level_kernels;
#else
const zn_kernels *const zn_avx2vnni_kernels = NULL;
#endif
