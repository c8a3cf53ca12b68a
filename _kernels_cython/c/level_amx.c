/* Shim: the level of AMX, whose tiles multiply bf16. All else is that of avx512bf16. */
#include "zenith.h"

/* Older Clangs write AMX's names in one word. */
#if defined(__x86_64__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) \
    && defined(__AVX512VL__) && defined(__AVX512BF16__) \
    && (defined(__AMX_TILE__) || defined(__AMXTILE__)) && (defined(__AMX_BF16__) || defined(__AMXBF16__))
#include "tiles_amx.h"
#include "vector_avx512.h"

#include "kernels.inc.h"

const zn_kernels *const zn_amx_kernels = level_kernels;
#else
const zn_kernels *const zn_amx_kernels = NULL;
#endif
