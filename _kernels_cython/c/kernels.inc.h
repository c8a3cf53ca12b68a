/* All kernels of one level. Included once by each level_<isa>.c after its vector layer, with
 * LEVEL_NAME defined: everything here is static, the table at the end is what leaves the file. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "zenith.h"

/* ZN_UNROLL before a loop whose bounds are known after inlining: only a loop that is unrolled
 * completely lets an array of vectors live in registers. */
#if defined(__clang__)
#define ZN_INLINE inline __attribute__((always_inline))
#define ZN_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define ZN_INLINE inline __attribute__((always_inline))
#define ZN_UNROLL _Pragma("GCC unroll 16")
#else
#define ZN_INLINE inline
#define ZN_UNROLL
#endif

#include "gemm.inc.h"
#include "depthwise.inc.h"
#include "hadamard.inc.h"
#include "elementwise.inc.h"
#include "picture.inc.h"

static const zn_kernels level_kernels = {
    .name = LEVEL_NAME,
    .gemm = gemm,
    .depthwise = depthwise,
    .wht_tiles = wht_tiles,
    .wht_tiles_separable = wht_tiles_separable,
    .wht_tiles_backward = wht_tiles_backward,
    .fwht = fwht,
    .relu = relu,
    .soft_clamp = soft_clamp,
    .add = add,
    .channel_sums = channel_sums,
    .scale_shift = scale_shift,
    .load_picture = load_picture,
    .store_picture = store_picture,
};
