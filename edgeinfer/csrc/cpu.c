/* edgeinfer/csrc/cpu.c: read the CPU's feature bits, and whether the system saves the registers they use.
 *
 * Only the levels of the CPU family this is compiled for are defined.
 */
#include "cpu.h"

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

typedef struct {
    uint32_t leaf, subleaf, reg, bit; /* reg: 0 eax, 1 ebx, 2 ecx */
} feature;

static const feature avx2_features[] = {
    {1, 0, 2, 12}, /* fma */
    {1, 0, 2, 29}, /* f16c */
    {7, 0, 1, 5},  /* avx2 */
    {7, 0, 1, 8},  /* bmi2 */
};
#ifndef EI_SIMDE
static const feature avxvnni_features[] = {
    {7, 1, 0, 4}, /* avxvnni */
};
static const feature avx512_features[] = {
    {7, 0, 1, 16}, /* avx512f */
    {7, 0, 1, 17}, /* avx512dq */
    {7, 0, 1, 30}, /* avx512bw */
    {7, 0, 1, 31}, /* avx512vl */
    {7, 0, 2, 11}, /* avx512vnni */
};
#endif

/* XCR0 bits: 1 xmm, 2 ymm, 5-7 the mask and zmm registers */
enum { XCR0_AVX = 0x06, XCR0_AVX512 = 0xe6, OSXSAVE = 27 };

static bool system_saves(uint32_t mask) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> OSXSAVE & 1)) return false;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & mask) == mask;
}

static bool has_all(const feature *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t r[4];
        if (!__get_cpuid_count(list[i].leaf, list[i].subleaf, &r[0], &r[1], &r[2], &r[3])) return false;
        if (!(r[list[i].reg] >> list[i].bit & 1)) return false;
    }
    return true;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

bool ei_cpu_has_avx2(void) { return system_saves(XCR0_AVX) && has_all(avx2_features, COUNT(avx2_features)); }
#ifdef EI_SIMDE
/* emulated over AVX2, for tests */
bool ei_cpu_has_avxvnni(void) { return ei_cpu_has_avx2(); }
bool ei_cpu_has_avx512(void) { return ei_cpu_has_avx2(); }
#else
bool ei_cpu_has_avxvnni(void) { return ei_cpu_has_avx2() && has_all(avxvnni_features, COUNT(avxvnni_features)); }
bool ei_cpu_has_avx512(void) {
    return ei_cpu_has_avx2() && system_saves(XCR0_AVX512) && has_all(avx512_features, COUNT(avx512_features));
}
#endif

#elif defined(__aarch64__)
#ifdef __linux__
#include <sys/auxv.h>

/* HWCAP_ASIMDHP, HWCAP_ASIMDDP; HWCAP2_I8MM */
enum { HALF_PRECISION = 1 << 10, DOT_PRODUCT = 1 << 20, MATRIX_PRODUCT = 1 << 13 };

static bool has_all(unsigned long kind, unsigned long bits) { return (getauxval(kind) & bits) == bits; }

bool ei_cpu_has_neon(void) { return has_all(AT_HWCAP, HALF_PRECISION | DOT_PRODUCT); }
bool ei_cpu_has_i8mm(void) { return ei_cpu_has_neon() && has_all(AT_HWCAP2, MATRIX_PRODUCT); }
#elif defined(__APPLE__)
#include <sys/sysctl.h>

/* Apple's arm64 CPUs all have the dot product. */
bool ei_cpu_has_neon(void) { return true; }
bool ei_cpu_has_i8mm(void) {
    int32_t has = 0;
    size_t size = sizeof has;
    return !sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, NULL, 0) && has;
}
#else
/* Nothing says what this CPU has. */
bool ei_cpu_has_neon(void) { return false; }
bool ei_cpu_has_i8mm(void) { return false; }
#endif
#endif
