/* edgeinfer/csrc/base.h: compiler macros and the few scalar conversions every C file needs. */
#ifndef EI_BASE_H
#define EI_BASE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
/* sanitized code is checked, not timed: gcc would spend minutes inlining instrumented loops */
#define EI_INLINE static __attribute__((noinline, unused))
#define EI_UNROLL
#else
#define EI_INLINE static inline __attribute__((always_inline))
#define EI_UNROLL _Pragma("GCC unroll 16")
#endif

/* gcc puts functions that are called once into their caller, and takes long over what grows large that way */
#define EI_APART __attribute__((noinline))

#define EI_JOIN2(a, b) a##_##b
#define EI_JOIN(a, b)  EI_JOIN2(a, b)
#define EI_TEXT2(a)    #a
#define EI_TEXT(a)     EI_TEXT2(a)

enum {
    EI_LANES = 16,     /* rows of one X group = lanes of the virtual vector */
    EI_RUN_LEN = 16,   /* elements that share one activation scale */
    EI_BLOCK = 32,     /* elements that are quantized together: the smallest weight block */
    EI_TILE = 8,       /* tokens of one activation tile */
    EI_PAGE_LEN = 64,  /* positions of one KV page */
    EI_MOST_TAPS = 64, /* of a convolution */
    EI_CHUNK_LEN = 256 /* positions whose softmax is computed together; part of the law */
};

EI_INLINE uint32_t f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

EI_INLINE float f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

EI_INLINE uint16_t load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

EI_INLINE uint32_t load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

EI_INLINE void store_u32(void *p, uint32_t v) { memcpy(p, &v, 4); }

/* Exact, subnormals and NaN included: the exponent is rebased by one float multiply. Infinity keeps its bits, a NaN is
 * made quiet as the hardware conversions do. No branch: a loop over it becomes vector code. */
EI_INLINE float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t finite = f32_bits(f32_from_bits(rest) * 0x1p112f);
    uint32_t special = 0u - (uint32_t)((h & 0x7c00u) == 0x7c00u), nan = 0u - (uint32_t)((h & 0x7fffu) > 0x7c00u);
    return f32_from_bits(sign | (finite & ~special) | (special & (rest | 0x7f800000u)) | (nan & 0x00400000u));
}

/* Round to nearest even, as F16C and fcvt do. */
EI_INLINE uint16_t f32_to_f16(float x) {
    uint32_t bits = f32_bits(x), sign = (bits >> 16) & 0x8000u, mag = bits & 0x7fffffffu;
    if (mag >= 0x7f800000u) return (uint16_t)(sign | (mag > 0x7f800000u ? 0x7e00u | ((mag >> 13) & 0x3ffu) : 0x7c00u));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (mag < 0x38800000u) {
        /* adding 0.5 aligns the subnormal's last place with the float's, so the FPU rounds */
        float aligned = f32_from_bits(mag) + 0.5f;
        return (uint16_t)(sign | (f32_bits(aligned) - 0x3f000000u));
    }
    uint32_t odd = (mag >> 13) & 1u;
    return (uint16_t)(sign | ((mag - 0x38000000u + 0xfffu + odd) >> 13));
}

EI_INLINE float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

EI_INLINE int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }

EI_INLINE int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }

#endif
