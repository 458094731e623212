/* edgeinfer/csrc/isa/i8mm_verbs.h: the neon verbs, and two columns at a time for the matrix product (ARMv8.6 i8mm).
 *
 * Meanings: scalar_verbs.h; those of two columns here. smmla multiplies 8 k of two rows by 8 k of two columns: twice
 * the products of sdot. Its four sums stay together until the end of a row, so nothing is moved between lanes on the
 * way. usdot has no use: the codes that are unsigned are below 128, so sdot takes them as they are.
 */
#include "neon_verbs.h"

#define EI_PAIRS

/* 16 rows by two columns; register i: row 2i of both columns, row 2i + 1 of both */
typedef struct {
    float32x4_t q[8];
} pf;
typedef struct {
    int32x4_t q[8];
} pi;
/* 8 k of 16 rows; register i: row 2i, row 2i + 1 */
typedef struct {
    int8x16_t q[8];
} pb;

#define OCTS(type, expression)                                                                                         \
    type r;                                                                                                            \
    EI_UNROLL for (int i = 0; i < 8; i++) r.q[i] = (expression);                                                       \
    return r

EI_INLINE pi pi_zero(void) { OCTS(pi, vdupq_n_s32(0)); }
EI_INLINE pf pf_zero(void) { OCTS(pf, vdupq_n_f32(0)); }
/* two k-groups, the second after the first */
EI_INLINE pb pb_join(vb first, vb second) {
    pb r;
    EI_UNROLL for (int i = 0; i < 4; i++) {
        int32x4_t a = vreinterpretq_s32_u8(first.q[i]), b = vreinterpretq_s32_u8(second.q[i]);
        r.q[2 * i] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        r.q[2 * i + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
    return r;
}
/* sum + the products with 4 k of two columns at x and the next 4 k at next */
EI_INLINE pi pi_dot(pi sum, pb w, const int8_t *x, const int8_t *next) {
    int32x4_t a = vcombine_s32(vreinterpret_s32_s8(vld1_s8(x)), vdup_n_s32(0));
    int32x4_t b = vcombine_s32(vreinterpret_s32_s8(vld1_s8(next)), vdup_n_s32(0));
    int8x16_t columns = vreinterpretq_s8_s32(vzip1q_s32(a, b));
    OCTS(pi, vmmlaq_s32(sum.q[i], w.q[i], columns));
}
EI_INLINE pf pf_from_pi(pi x) { OCTS(pf, vcvtq_f32_s32(x.q[i])); }
/* a number of each row; of each column */
EI_INLINE pf pf_rows(vf x) {
    OCTS(pf, i % 2 ? vzip2q_f32(x.q[i / 2], x.q[i / 2]) : vzip1q_f32(x.q[i / 2], x.q[i / 2]));
}
EI_INLINE pf pf_columns(const float *p) {
    float32x2_t both = vld1_f32(p);
    OCTS(pf, vcombine_f32(both, both));
}
EI_INLINE pf pf_set(float x) { OCTS(pf, vdupq_n_f32(x)); }
EI_INLINE pf pf_mul(pf x, pf y) { OCTS(pf, vmulq_f32(x.q[i], y.q[i])); }
EI_INLINE pf pf_fma(pf x, pf y, pf z) { OCTS(pf, vfmaq_f32(z.q[i], x.q[i], y.q[i])); }
EI_INLINE pf pf_fnma(pf x, pf y, pf z) { OCTS(pf, vfmsq_f32(z.q[i], x.q[i], y.q[i])); }
/* 16 rows of the first column, then of the second */
EI_INLINE pf pf_load(const float *p) {
    pf r;
    EI_UNROLL for (int i = 0; i < 4; i++) {
        float32x4_t first = vld1q_f32(p + 4 * i), second = vld1q_f32(p + 16 + 4 * i);
        r.q[2 * i] = vzip1q_f32(first, second);
        r.q[2 * i + 1] = vzip2q_f32(first, second);
    }
    return r;
}
EI_INLINE void pf_store(float *p, pf x) {
    EI_UNROLL for (int i = 0; i < 4; i++) {
        vst1q_f32(p + 4 * i, vuzp1q_f32(x.q[2 * i], x.q[2 * i + 1]));
        vst1q_f32(p + 16 + 4 * i, vuzp2q_f32(x.q[2 * i], x.q[2 * i + 1]));
    }
}
