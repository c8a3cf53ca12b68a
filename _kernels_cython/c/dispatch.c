/* Run-time choice of a level. A level is eligible if it was compiled in and both the CPU and the
 * operating system support everything that its flags allowed the compiler to use. */
#define _GNU_SOURCE /* syscall */
#include "zenith.h"

#include <stdatomic.h>

#if defined(__x86_64__) || defined(__i386__)
#define X86 1
#include <cpuid.h>
#else
#define X86 0
#endif
#if X86 && defined(__x86_64__) && defined(__linux__)
#define LINUX_TILES 1
#include <sys/syscall.h>
#include <unistd.h>
#else
#define LINUX_TILES 0
#endif

extern const zn_kernels *const zn_generic_kernels;
extern const zn_kernels *const zn_neon_kernels;
extern const zn_kernels *const zn_avx2_kernels;
extern const zn_kernels *const zn_avx2vnni_kernels;
extern const zn_kernels *const zn_avx512_kernels;
extern const zn_kernels *const zn_avx512vnni_kernels;
extern const zn_kernels *const zn_avx512bf16_kernels;
extern const zn_kernels *const zn_amx_kernels;

/* The levels and their tables of kernels, which are NULL where they were not compiled. */
static const struct {
    const char *name;
    const zn_kernels *const *kernels;
} levels[ZN_LEVELS] = {
    [ZN_GENERIC] = {"generic", &zn_generic_kernels},
    [ZN_NEON] = {"neon", &zn_neon_kernels},
    [ZN_AVX2] = {"avx2", &zn_avx2_kernels},
    [ZN_AVX2VNNI] = {"avx2vnni", &zn_avx2vnni_kernels},
    [ZN_AVX512] = {"avx512", &zn_avx512_kernels},
    [ZN_AVX512VNNI] = {"avx512vnni", &zn_avx512vnni_kernels},
    [ZN_AVX512BF16] = {"avx512bf16", &zn_avx512bf16_kernels},
    [ZN_AMX] = {"amx", &zn_amx_kernels},
};

static int exists(int level) { return level >= 0 && level < ZN_LEVELS; }

/* CPUID leaf 7 has a bit for each; whether the system saves the registers is another question. */
int zn_cpu_features(void)
{
    int found = 0;
#if X86
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        const unsigned leaves = a;
        const int tiles = d >> 24 & 1;
        if (c >> 11 & 1)
            found |= ZN_HAS_AVX512_VNNI;
        if (tiles && d >> 22 & 1)
            found |= ZN_HAS_AMX_BF16;
        if (tiles && d >> 25 & 1)
            found |= ZN_HAS_AMX_INT8;
        if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
            if (a >> 4 & 1)
                found |= ZN_HAS_AVX_VNNI;
            if (a >> 5 & 1)
                found |= ZN_HAS_AVX512_BF16;
        }
    }
#endif
    return found;
}

#if X86
/* Which registers the system saves, XCR0: 1 and 2 for SSE and AVX, 5 to 7 for AVX-512, 17 and 18 for tiles. */
static unsigned saved_registers(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* XGETBV exists */
        return 0;
    __asm__ __volatile__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}

/* AVX2 and FMA, or the parts of AVX-512 that the levels use. CPUID is asked here, since
 * __builtin_cpu_supports says no to everything in what some toolchains link. */
static int cpu_has_avx2(void)
{
    unsigned a, b, c, d;
    if ((saved_registers() & 0x6) != 0x6 || !__get_cpuid(1, &a, &b, &c, &d) || !(c >> 12 & c >> 28 & 1))
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 5 & 1;
}

static int cpu_has_avx512(void)
{
    unsigned a, b, c, d;
    const unsigned foundation = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
    const unsigned parts = foundation | dq | bw | vl;
#if defined(__APPLE__) /* which begins to save them, and to say so, at their first use */
    const int saved = 1;
#else
    const int saved = (saved_registers() & 0xe0) == 0xe0;
#endif
    return cpu_has_avx2() && saved
        && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & parts) == parts;
}
#endif

static int is_intel(void)
{
#if X86
    unsigned a, b = 0, c = 0, d = 0;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && d == signature_INTEL_edx
        && c == signature_INTEL_ecx;
#else
    return 0;
#endif
}

/* Whether this process may use AMX tiles. Their 8 KB of state are not saved for every process:
 * after the bits of XCR0 (17 for the configuration, 18 for the data) comes a request, since Linux
 * 5.16, that holds for all threads and for children. An older kernel, a sandbox or a thread with too
 * small a stack for signals makes it fail; then, and on other systems, there are no tiles. */
#if X86
static int tiles_permitted(void)
{
#if LINUX_TILES
    enum { GET_PERMISSIONS = 0x1022, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned long granted = 0;
    if ((saved_registers() >> 17 & 3) != 3)
        return 0;
    if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) != 0)
        return 0;
    return syscall(SYS_arch_prctl, GET_PERMISSIONS, &granted) == 0 && granted >> TILE_DATA & 1;
#else
    return 0;
#endif
}
#endif

static int cpu_has(int level)
{
    if (level == ZN_GENERIC || level == ZN_NEON) /* every CPU that NEON is compiled for has it */
        return 1;
#if X86
    if (level == ZN_AVX2)
        return cpu_has_avx2();
    if (level == ZN_AVX2VNNI)
        return cpu_has(ZN_AVX2) && zn_cpu_features() & ZN_HAS_AVX_VNNI;
    if (level == ZN_AVX512)
        return cpu_has_avx512();
    if (level == ZN_AVX512VNNI)
        return cpu_has(ZN_AVX512) && zn_cpu_features() & ZN_HAS_AVX512_VNNI;
    if (level == ZN_AVX512BF16)
        return cpu_has(ZN_AVX512) && zn_cpu_features() & ZN_HAS_AVX512_BF16;
    if (level == ZN_AMX)
        return cpu_has(ZN_AVX512BF16) && zn_cpu_features() & ZN_HAS_AMX_BF16 && tiles_permitted();
#endif
    return 0;
}

const char *zn_level_name(int level) { return exists(level) ? levels[level].name : NULL; }

int zn_level_compiled(int level) { return exists(level) && *levels[level].kernels != NULL; }

/* Asked once: in a virtual machine each CPUID takes tens of microseconds. */
int zn_level_available(int level)
{
    enum { UNKNOWN, NO, YES };
    static atomic_int answers[ZN_LEVELS];
    if (!exists(level))
        return 0;
    int known = atomic_load(&answers[level]);
    if (known == UNKNOWN) {
        known = zn_level_compiled(level) && cpu_has(level) ? YES : NO;
        atomic_store(&answers[level], known);
    }
    return known == YES;
}

int zn_level_fast_bf16(int level) { return level >= ZN_AVX512BF16; }

/* AVX2 has no dot product of int16 but VPMADDWD and an addition, which pay where a CPU does two VPMADDWD in a
 * cycle: Intel's since Skylake, AMD's since Zen 3. Those are the first with CLFLUSHOPT and with VAES, by which all
 * other vendors' are told too. */
static int two_madds(void)
{
#if X86
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (is_intel() ? b >> 23 & 1 : c >> 9 & 1);
#else
    return 0;
#endif
}

int zn_level_fast_int16(int level)
{
    return level == ZN_AVX2VNNI || level == ZN_AVX512VNNI || (level == ZN_AVX2 && two_madds());
}

const zn_kernels *zn_kernels_for(int level, int storage)
{
    return zn_level_available(level) ? *levels[level].kernels + storage : NULL;
}

int zn_best_level(void)
{
    for (int level = ZN_LEVELS - 1; level > 0; level--) {
        /* Products by VDPBF16PS are slower than those of floats there (Emerald Rapids: 1.7 times, and 2 to 3
         * times those of int16), on AMD's CPUs twice as fast. */
        if (level == ZN_AVX512BF16 && zn_level_available(ZN_AVX512VNNI) && is_intel())
            continue;
        if (zn_level_available(level))
            return level;
    }
    return ZN_GENERIC;
}
