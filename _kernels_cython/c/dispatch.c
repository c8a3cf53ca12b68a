/* Run-time choice of a level. A level is eligible if it was compiled in and both the CPU and the
 * operating system support everything that its flags allowed the compiler to use. */
#include "zenith.h"

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
