/* Shim: the kernels of the NEON level, which every 64-bit ARM has; NULL on other CPUs. Lanes are read
 * and written through memory in places, so bytes have to be in the usual order. */
#include "zenith.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__AARCH64EL__)
#include "vector_neon.h"

#include "kernels.inc.h"

const zn_kernels *const zn_neon_kernels = level_kernels;
#else
const zn_kernels *const zn_neon_kernels = NULL;
#endif
