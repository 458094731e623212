/* edgeinfer/csrc/isa/scalar_verbs.h: the virtual vector of 16 lanes in plain C; this file is the verbs' specification.
 *
 * vf: 16 f32 lanes. vi: 16 i32 lanes. vb: 64 bytes, lane i holds bytes 4i .. 4i+3 (four k of row i).
 * va: sums of one run of byte products; it may hold at most EI_RUN(bound) products in a lane before va_flush.
 */
#include "../base.h"

/* lanes are loops here: inlining and unrolling the templates on top of them only costs compile time (gcc 12: minutes)
 */
#ifndef __SANITIZE_ADDRESS__
#undef EI_UNROLL
#define EI_UNROLL
#undef EI_INLINE
#define EI_INLINE static inline
#endif

typedef struct {
    float v[16];
} vf;
typedef struct {
    int32_t v[16];
} vi;
typedef struct {
    uint8_t v[64];
} vb;
typedef vi va;

/* k-groups that may be added in a va when every |weight| is at most bound, out of n wanted */
#define EI_RUN(bound, n) (n)
/* what vb_signed adds to signed bytes before va_dot_s8; the template takes it back from the sums */
#define EI_SIGNED_BIAS 0
#define EI_MAX_COLUMNS 1
/* accumulators of an attention tile; 1 keeps the compiler from spending minutes on a fallback */
/* 1: the widest matmul kernel exists once more for whole tiles, which pays where addresses are dear */
#define EI_WHOLE_TILES       0
#define EI_ATTENTION_VECTORS 1

#define EACH _Pragma("GCC unroll 1") for (int i = 0; i < 16; i++)

EI_INLINE vf vf_zero(void) { return (vf){{0}}; }
EI_INLINE vf vf_set(float x) {
    vf r;
    EACH r.v[i] = x;
    return r;
}
EI_INLINE vf vf_load(const float *p) {
    vf r;
    memcpy(r.v, p, 64);
    return r;
}
EI_INLINE void vf_store(float *p, vf a) { memcpy(p, a.v, 64); }
/* Load or store the first n lanes, 0 <= n <= 16; the other lanes read as 0. */
EI_INLINE vf vf_load_n(const float *p, int n) {
    vf r = vf_zero();
    memcpy(r.v, p, (size_t)n * 4);
    return r;
}
EI_INLINE void vf_store_n(float *p, vf a, int n) { memcpy(p, a.v, (size_t)n * 4); }
EI_INLINE vf vf_add(vf a, vf b) {
    EACH a.v[i] += b.v[i];
    return a;
}
EI_INLINE vf vf_sub(vf a, vf b) {
    EACH a.v[i] -= b.v[i];
    return a;
}
EI_INLINE vf vf_mul(vf a, vf b) {
    EACH a.v[i] *= b.v[i];
    return a;
}
EI_INLINE vf vf_div(vf a, vf b) {
    EACH a.v[i] /= b.v[i];
    return a;
}
/* a*b + c, one rounding */
EI_INLINE vf vf_fma(vf a, vf b, vf c) {
    EACH c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
/* c - a*b, one rounding */
EI_INLINE vf vf_fnma(vf a, vf b, vf c) {
    EACH c.v[i] = fmaf(-a.v[i], b.v[i], c.v[i]);
    return c;
}
/* a > b ? a : b, lane by lane: a NaN in either gives b */
EI_INLINE vf vf_max(vf a, vf b) {
    EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
EI_INLINE vf vf_min(vf a, vf b) {
    EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
}
/* x >= limit ? a : b; false when x is NaN */
EI_INLINE vf vf_select_ge(vf x, vf limit, vf a, vf b) {
    EACH a.v[i] = x.v[i] >= limit.v[i] ? a.v[i] : b.v[i];
    return a;
}
EI_INLINE vf vf_from_f16(const uint16_t *p) {
    vf r;
    EACH r.v[i] = f16_to_f32(p[i]);
    return r;
}
EI_INLINE vf vf_from_bf16(const uint16_t *p) {
    vf r;
    EACH r.v[i] = bf16_to_f32(p[i]);
    return r;
}
EI_INLINE void vf_to_f16(uint16_t *p, vf a) { EACH p[i] = f32_to_f16(a.v[i]); }
EI_INLINE vf vf_from_vi(vi a) {
    vf r;
    EACH r.v[i] = (float)a.v[i];
    return r;
}
EI_INLINE vi vf_bits(vf a) {
    vi r;
    memcpy(r.v, a.v, 64);
    return r;
}
EI_INLINE vf vf_from_bits(vi a) {
    vf r;
    memcpy(r.v, a.v, 64);
    return r;
}
/* Sum of the lanes by the one fixed tree of the law: (i, i+8), (i, i+4), (i, i+2), (i, i+1). */
EI_INLINE float vf_sum(vf a) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) a.v[i] = a.v[i] + a.v[i + half];
    return a.v[0];
}

EI_INLINE vi vi_zero(void) { return (vi){{0}}; }
EI_INLINE vi vi_set(int32_t x) {
    vi r;
    EACH r.v[i] = x;
    return r;
}
EI_INLINE vi vi_load(const void *p) {
    vi r;
    memcpy(r.v, p, 64);
    return r;
}
EI_INLINE void vi_store(void *p, vi a) { memcpy(p, a.v, 64); }
EI_INLINE vi vi_add(vi a, vi b) {
    EACH a.v[i] = (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i]);
    return a;
}
EI_INLINE vi vi_sub(vi a, vi b) {
    EACH a.v[i] = (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i]);
    return a;
}
EI_INLINE vi vi_and(vi a, vi b) {
    EACH a.v[i] &= b.v[i];
    return a;
}
EI_INLINE vi vi_or(vi a, vi b) {
    EACH a.v[i] |= b.v[i];
    return a;
}
/* Shifts are logical, 0 <= n < 32. */
EI_INLINE vi vi_shl(vi a, int n) {
    EACH a.v[i] = (int32_t)((uint32_t)a.v[i] << n);
    return a;
}
EI_INLINE vi vi_shr(vi a, int n) {
    EACH a.v[i] = (int32_t)((uint32_t)a.v[i] >> n);
    return a;
}
/* Signed maximum. On the bits of |x| it orders NaN above infinity above every number. */
EI_INLINE vi vi_max(vi a, vi b) {
    EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
EI_INLINE int32_t vi_max_all(vi a) {
    int32_t m = a.v[0];
    EACH m = a.v[i] > m ? a.v[i] : m;
    return m;
}
/* Nearest even, for |a| < 2^31. */
EI_INLINE vi vi_round(vf a) {
    vi r;
    EACH r.v[i] = (int32_t)rintf(a.v[i]);
    return r;
}
EI_INLINE vi vi_from_s8(const int8_t *p) {
    vi r;
    EACH r.v[i] = p[i];
    return r;
}
EI_INLINE vi vi_from_u8(const uint8_t *p) {
    vi r;
    EACH r.v[i] = p[i];
    return r;
}
EI_INLINE vi vi_from_u16(const uint16_t *p) {
    vi r;
    EACH r.v[i] = p[i];
    return r;
}
/* out[w], lane r: dword w of the 16 bytes at p + r*stride */
EI_INLINE void vi_load_rows(const uint8_t *p, size_t stride, vi out[4]) {
    for (int w = 0; w < 4; w++) EACH out[w].v[i] = (int32_t)load_u32(p + (size_t)i * stride + 4 * w);
}
/* Lanes in 0 .. 65535 become 16 words. */
EI_INLINE void vi_to_u16(uint16_t *p, vi a) { EACH p[i] = (uint16_t)a.v[i]; }
/* Lanes in -128 .. 127 become 16 bytes. */
EI_INLINE void vi_to_s8(int8_t *p, vi a) { EACH p[i] = (int8_t)a.v[i]; }

EI_INLINE vb vb_load(const void *p) {
    vb r;
    memcpy(r.v, p, 64);
    return r;
}
EI_INLINE vb vb_and(vb a, uint8_t mask) {
    for (int i = 0; i < 64; i++) a.v[i] &= mask;
    return a;
}
EI_INLINE vb vb_or(vb a, vb b) {
    for (int i = 0; i < 64; i++) a.v[i] |= b.v[i];
    return a;
}
/* Shift each byte by n and keep only the bits of mask; bits that would come from a neighbouring byte must be outside
 * mask. */
EI_INLINE vb vb_shr_and(vb a, int n, uint8_t mask) {
    for (int i = 0; i < 64; i++) a.v[i] = (uint8_t)(a.v[i] >> n) & mask;
    return a;
}
EI_INLINE vb vb_shl_and(vb a, int n, uint8_t mask) {
    for (int i = 0; i < 64; i++) a.v[i] = (uint8_t)(a.v[i] << n) & mask;
    return a;
}
/* table[a] for bytes 0 .. 15 */
EI_INLINE vb vb_lookup(vb a, const int8_t *table) {
    for (int i = 0; i < 64; i++) a.v[i] = (uint8_t)table[a.v[i]];
    return a;
}
/* Signed bytes -> the form va_dot_s8 takes: value + EI_SIGNED_BIAS */
EI_INLINE vb vb_signed(vb a) { return a; }

EI_INLINE va va_zero(void) { return vi_zero(); }
/* sum + the four products of each lane with the four signed bytes at x; weights unsigned, at most 127 */
EI_INLINE va va_dot_u8(va sum, vb w, const int8_t *x) {
    EACH for (int k = 0; k < 4; k++) sum.v[i] += w.v[4 * i + k] * x[k];
    return sum;
}
EI_INLINE va va_dot_s8(va sum, vb w, const int8_t *x) {
    EACH for (int k = 0; k < 4; k++) sum.v[i] += (int8_t)w.v[4 * i + k] * x[k];
    return sum;
}
EI_INLINE vi va_flush(vi sum, va a) { return vi_add(sum, a); }

/* The integer scale of a sub-block, -128 .. 127 or 0 .. 255. A level multiplies by it either in va_flush_by or in
 * vs_scaled: what comes out of both in a row is the scaled sum, as a float.
   typedef vf vs;
   vs vs_from_u16(vi c), vs_from_s16(vi c), vs_from_byte(vi a, int j);
   vi va_flush_by(vi sum, va a, vs c);
   vf vs_scaled(vi sum, vs c);
 * vi_byte(a, j): byte j of every lane.
 * Levels with EI_FINE_WORDS widen a vb to words, vw_from_u8 or vw_from_s8, and vw_dot adds the products with the four
 * words at x. */
#include "plane_verbs.h"
