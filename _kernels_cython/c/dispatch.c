/* Run-time choice of a level. A level is eligible if it was compiled in and both the CPU and the
 * operating system support everything that its flags allowed the compiler to use. */
#include "zenith.h"

#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#include <immintrin.h>
#include <intrin.h>
#endif

extern const zn_kernels *const zn_generic_kernels;
extern const zn_kernels *const zn_avx2_kernels;
extern const zn_kernels *const zn_avx512_kernels;

static int cpu_has(int level)
{
    if (level == ZN_GENERIC)
        return 1;
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_cpu_init(); /* also asks the operating system which registers it saves */
    if (level == ZN_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (level == ZN_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
            && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
    int leaf1[4], leaf7[4];
    __cpuid(leaf1, 0);
    if (leaf1[0] < 7)
        return 0;
    __cpuid(leaf1, 1);
    __cpuidex(leaf7, 7, 0);
    if (!(leaf1[2] >> 27 & 1)) /* OSXSAVE */
        return 0;
    unsigned long long saved = _xgetbv(0);
    int avx2 = (saved & 0x06) == 0x06 && (leaf1[2] >> 12 & 1) && (leaf7[1] >> 5 & 1);
    if (level == ZN_AVX2)
        return avx2;
    if (level == ZN_AVX512)
        return avx2 && (saved & 0xe6) == 0xe6 && (leaf7[1] >> 16 & 1) && (leaf7[1] >> 17 & 1)
            && (leaf7[1] >> 30 & 1) && ((unsigned)leaf7[1] >> 31);
#endif
    return 0;
}

static const zn_kernels *compiled(int level)
{
    switch (level) {
    case ZN_GENERIC: return zn_generic_kernels;
    case ZN_AVX2: return zn_avx2_kernels;
    case ZN_AVX512: return zn_avx512_kernels;
    default: return NULL;
    }
}

const char *zn_level_name(int level)
{
    static const char *const names[ZN_LEVELS] = {"generic", "avx2", "avx512"};
    return level >= 0 && level < ZN_LEVELS ? names[level] : NULL;
}

int zn_level_compiled(int level) { return compiled(level) != NULL; }

int zn_level_available(int level) { return compiled(level) != NULL && cpu_has(level); }

const zn_kernels *zn_kernels_for(int level)
{
    return zn_level_available(level) ? compiled(level) : NULL;
}

int zn_best_level(void)
{
    for (int level = ZN_LEVELS - 1; level > 0; level--)
        if (zn_level_available(level))
            return level;
    return ZN_GENERIC;
}
