/* All kernels of one level. Included once by each level_<isa>.c after its vector layer:
 * everything here is static, the tables at the end are what leaves the file. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "zenith.h"

/* ZN_UNROLL before a loop whose bounds are known after inlining: only a loop that is unrolled
 * completely lets an array of vectors live in registers. */
#define ZN_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define ZN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ZN_UNROLL _Pragma("GCC unroll 16")
#endif

/* Where a level has no matrix tiles, they are emulated for the table of tests. */
#ifdef ZENITH_TILES_AMX_H
#define GEMM_OF_BF16 gemm_tiles
#else
#define GEMM_OF_BF16 gemm_bf16
#include "tiles_emulated.h"
#endif

#include "shared.inc.h"
#include "picture.inc.h"
#include "pixels.inc.h"

#define STORE_BF16 0
#include "storage.inc.h"
#define STORE_BF16 1
#include "storage.inc.h"

#include "hadamard_backward.inc.h"

#define TABLE(STORAGE, VALUE_BYTES, GEMM, GEMM_INT16) { \
    .value_bytes = VALUE_BYTES, \
    .gemm = GEMM, \
    .gemm_int16 = GEMM_INT16, \
    .depthwise = depthwise_##STORAGE, \
    .wht_tiles = wht_tiles_##STORAGE, \
    .wht_tiles_separable = wht_tiles_separable_##STORAGE, \
    .winograd_in = winograd_in_##STORAGE, \
    .winograd_out = winograd_out_##STORAGE, \
    .relu = relu_##STORAGE, \
    .soft_clamp = soft_clamp_##STORAGE, \
    .add = add_##STORAGE, \
    .from_floats = from_floats_##STORAGE, \
    .to_floats = to_floats_##STORAGE, \
    .scale_shift = scale_shift_##STORAGE, \
    .load_picture = load_picture, \
    .store_picture = store_picture, \
    .add_change = add_change, \
    .limit_change = limit_change, \
    .roughness = roughness, \
    .count_clipped = count_clipped, \
    .patches = patches, \
    .blend = blend, \
    .split = split, \
    .wht_tiles_backward = wht_tiles_backward, \
    .fwht = fwht, \
    .moments = moments, \
}

static const zn_kernels level_kernels[ZN_STORAGES] = {
    [ZN_FLOAT] = TABLE(float, sizeof(float), gemm_float, gemm_int16),
    [ZN_BF16] = TABLE(bf16, sizeof(uint16_t), GEMM_OF_BF16, NULL),
    [ZN_BF16_TILES] = TABLE(bf16, sizeof(uint16_t), gemm_tiles, NULL),
};
