#include "engine/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The register sets whose saving the operating system has switched on (XCR0). */
static uint64_t enabled_state(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

#define STATE_AVX 0x6ull     /* XMM and YMM */
#define STATE_AVX512 0xe6ull /* and opmask, upper ZMM, ZMM16-31 */

static bool runs_avx2(void)
{
    unsigned a, b, c, d;
    if ((enabled_state() & STATE_AVX) != STATE_AVX || !__get_cpuid(1, &a, &b, &c, &d))
        return false;
    bool fma = (c & bit_FMA) && (c & bit_F16C) && (c & bit_AVX);
    return fma && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

static bool runs_avx512(void)
{
    unsigned a, b, c, d;
    const unsigned needed = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if (!runs_avx2() || (enabled_state() & STATE_AVX512) != STATE_AVX512)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & needed) == needed &&
           (c & bit_AVX512VNNI);
}

#define STATE_AMX 0x60000ull /* configuration and data of the tiles */
#define HAS_AMX_BF16 (1u << 22)
#define HAS_AMX_TILE (1u << 24)
#define TILE_LEAF 0x1d
#define ASK_FOR_STATE 0x1023 /* ARCH_REQ_XCOMP_PERM of Linux */
#define TILE_DATA 18

/* Eight tiles of 16 rows of 64 bytes (palette 1), and products of bf16. */
static bool has_tiles(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & HAS_AMX_TILE) || !(d & HAS_AMX_BF16))
        return false;
    return __get_cpuid_count(TILE_LEAF, 1, &a, &b, &c, &d) && b >> 16 >= 8 && (b & 0xffff) == 64 &&
           (c & 0xffff) == 16;
}

/* A process must ask Linux before it uses tiles; asking again does no harm. */
static bool runs_amx(void)
{
    return runs_avx512() && (enabled_state() & STATE_AMX) == STATE_AMX && has_tiles() &&
           syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

#define HAS_DOT_PRODUCTS (1ul << 20)    /* HWCAP_ASIMDDP of Linux */
#define HAS_MATRIX_PRODUCTS (1ul << 13) /* HWCAP2_I8MM */

static bool runs_neon(void)
{
    return (getauxval(AT_HWCAP) & HAS_DOT_PRODUCTS) != 0;
}

static bool runs_i8mm(void)
{
    return runs_neon() && (getauxval(AT_HWCAP2) & HAS_MATRIX_PRODUCTS) != 0;
}
#endif

static bool runs_always(void)
{
    return true;
}

#if defined(__x86_64__)
#define KERNELS_OF_THE_MACHINE ", avx2, avx512 or amx"
#elif defined(__aarch64__)
#define KERNELS_OF_THE_MACHINE ", neon or i8mm"
#else
#define KERNELS_OF_THE_MACHINE ""
#endif

/* From the best to the one that always runs. */
static const struct {
    const tacit_kernels *kernels;
    bool (*runs)(void);
} variants[] = {
#if defined(__x86_64__)
    {&kernels_amx, runs_amx},
    {&kernels_avx512, runs_avx512},
    {&kernels_avx2, runs_avx2},
#elif defined(__aarch64__)
    {&kernels_i8mm, runs_i8mm},
    {&kernels_neon, runs_neon},
#endif
    {&kernels_generic, runs_always},
};

#define VARIANTS (sizeof variants / sizeof variants[0])

const tacit_kernels *kernels_by_name(const char *name)
{
    for (size_t i = 0; i < VARIANTS; i++)
        if (strcmp(variants[i].kernels->name, name) == 0)
            return variants[i].runs() ? variants[i].kernels : NULL;
    return NULL;
}

static const tacit_kernels *choose(void)
{
    const char *wish = getenv("TACIT_CPU");
    const tacit_kernels *wished = wish && *wish ? kernels_by_name(wish) : NULL;
    for (size_t i = 0; !wished && i < VARIANTS; i++)
        if (variants[i].runs())
            wished = variants[i].kernels;
    return wished;
}

const tacit_kernels *kernels(void)
{
    /* Two threads that come first together choose the same. */
    static const tacit_kernels *_Atomic chosen;
    const tacit_kernels *k = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!k) {
        k = choose();
        atomic_store_explicit(&chosen, k, memory_order_release);
    }
    return k;
}

tacit_status kernels_check(tacit_error *err)
{
    const char *wish = getenv("TACIT_CPU");
    if (!wish || !*wish || kernels_by_name(wish))
        return TACIT_OK;
    for (size_t i = 0; i < VARIANTS; i++)
        if (strcmp(variants[i].kernels->name, wish) == 0)
            return tacit_fail(err, TACIT_USAGE,
                              "TACIT_CPU=%s: this processor or operating system does not support "
                              "it; the best here is '%s'",
                              wish, kernels()->name);
    return tacit_fail(err, TACIT_USAGE,
                      "TACIT_CPU=%s is none of this architecture's: expected generic%s", wish,
                      KERNELS_OF_THE_MACHINE);
}
