/* Shim: AVX-512 with the instructions for products of integers. Its float32 kernels are those of avx512. */
#include "zenith.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) \
    && defined(__AVX512VNNI__)
#include "vector_avx512.h"

#include "kernels.inc.h"

const zn_kernels *const zn_avx512vnni_kernels = level_kernels;
#else
const zn_kernels *const zn_avx512vnni_kernels = NULL;
#endif
