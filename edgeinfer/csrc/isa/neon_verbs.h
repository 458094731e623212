/* edgeinfer/csrc/isa/neon_verbs.h: the virtual vector as four q registers (ARMv8.2 with the dot product).
 *
 * Meanings: scalar_verbs.h. Weight bytes are at most 127 as unsigned, so the signed dot product serves both kinds.
 */
#include "../base.h"

#include <arm_neon.h>

typedef struct {
    float32x4_t q[4];
} vf;
typedef struct {
    int32x4_t q[4];
} vi;
typedef struct {
    uint8x16_t q[4];
} vb;
typedef vi va;

#define EI_RUN(bound, n)     (n)
#define EI_SIGNED_BIAS       0
#define EI_MAX_COLUMNS       4
#define EI_WHOLE_TILES       0
#define EI_ATTENTION_VECTORS 6

#define QUADS(type, expression)                                                                                        \
    type r;                                                                                                            \
    EI_UNROLL for (int i = 0; i < 4; i++) r.q[i] = (expression);                                                       \
    return r

EI_INLINE vf vf_set(float x) { QUADS(vf, vdupq_n_f32(x)); }
EI_INLINE vf vf_zero(void) { return vf_set(0.0f); }
EI_INLINE vf vf_load(const float *p) { QUADS(vf, vld1q_f32(p + 4 * i)); }
EI_INLINE void vf_store(float *p, vf x) { EI_UNROLL for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.q[i]); }
EI_INLINE vf vf_load_n(const float *p, int n) {
    float lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * 4);
    return vf_load(lanes);
}
EI_INLINE void vf_store_n(float *p, vf x, int n) {
    float lanes[16];
    vf_store(lanes, x);
    memcpy(p, lanes, (size_t)n * 4);
}
EI_INLINE vf vf_add(vf x, vf y) { QUADS(vf, vaddq_f32(x.q[i], y.q[i])); }
EI_INLINE vf vf_sub(vf x, vf y) { QUADS(vf, vsubq_f32(x.q[i], y.q[i])); }
EI_INLINE vf vf_mul(vf x, vf y) { QUADS(vf, vmulq_f32(x.q[i], y.q[i])); }
EI_INLINE vf vf_div(vf x, vf y) { QUADS(vf, vdivq_f32(x.q[i], y.q[i])); }
/* NEON's own maximum spreads NaN; the verb gives its second operand */
EI_INLINE vf vf_max(vf x, vf y) { QUADS(vf, vbslq_f32(vcgtq_f32(x.q[i], y.q[i]), x.q[i], y.q[i])); }
EI_INLINE vf vf_min(vf x, vf y) { QUADS(vf, vbslq_f32(vcltq_f32(x.q[i], y.q[i]), x.q[i], y.q[i])); }
EI_INLINE vf vf_fma(vf x, vf y, vf z) { QUADS(vf, vfmaq_f32(z.q[i], x.q[i], y.q[i])); }
EI_INLINE vf vf_fnma(vf x, vf y, vf z) { QUADS(vf, vfmsq_f32(z.q[i], x.q[i], y.q[i])); }
EI_INLINE vf vf_select_ge(vf x, vf limit, vf yes, vf no) {
    QUADS(vf, vbslq_f32(vcgeq_f32(x.q[i], limit.q[i]), yes.q[i], no.q[i]));
}
EI_INLINE vf vf_from_f16(const uint16_t *p) { QUADS(vf, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)))); }
EI_INLINE vf vf_from_bf16(const uint16_t *p) { QUADS(vf, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16))); }
EI_INLINE void vf_to_f16(uint16_t *p, vf x) {
    EI_UNROLL for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.q[i])));
}
EI_INLINE vf vf_from_vi(vi x) { QUADS(vf, vcvtq_f32_s32(x.q[i])); }
EI_INLINE vi vf_bits(vf x) { QUADS(vi, vreinterpretq_s32_f32(x.q[i])); }
EI_INLINE vf vf_from_bits(vi x) { QUADS(vf, vreinterpretq_f32_s32(x.q[i])); }
EI_INLINE float vf_sum(vf x) {
    float32x4_t s4 = vaddq_f32(vaddq_f32(x.q[0], x.q[2]), vaddq_f32(x.q[1], x.q[3]));
    float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}

EI_INLINE vi vi_set(int32_t x) { QUADS(vi, vdupq_n_s32(x)); }
EI_INLINE vi vi_zero(void) { return vi_set(0); }
EI_INLINE vi vi_load(const void *p) { QUADS(vi, vld1q_s32((const int32_t *)p + 4 * i)); }
EI_INLINE void vi_store(void *p, vi x) {
    EI_UNROLL for (int i = 0; i < 4; i++) vst1q_s32((int32_t *)p + 4 * i, x.q[i]);
}
EI_INLINE vi vi_add(vi x, vi y) { QUADS(vi, vaddq_s32(x.q[i], y.q[i])); }
EI_INLINE vi vi_sub(vi x, vi y) { QUADS(vi, vsubq_s32(x.q[i], y.q[i])); }
EI_INLINE vi vi_and(vi x, vi y) { QUADS(vi, vandq_s32(x.q[i], y.q[i])); }
EI_INLINE vi vi_or(vi x, vi y) { QUADS(vi, vorrq_s32(x.q[i], y.q[i])); }
EI_INLINE vi vi_max(vi x, vi y) { QUADS(vi, vmaxq_s32(x.q[i], y.q[i])); }
EI_INLINE vi vi_shl(vi x, int n) { QUADS(vi, vshlq_s32(x.q[i], vdupq_n_s32(n))); }
EI_INLINE vi vi_shr(vi x, int n) {
    QUADS(vi, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x.q[i]), vdupq_n_s32(-n))));
}
EI_INLINE int32_t vi_max_all(vi x) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.q[0], x.q[1]), vmaxq_s32(x.q[2], x.q[3])));
}
EI_INLINE vi vi_round(vf x) { QUADS(vi, vcvtnq_s32_f32(x.q[i])); }
EI_INLINE vi vi_from_s8(const int8_t *p) {
    int8x16_t bytes = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return (vi){{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
                 vmovl_s16(vget_high_s16(high))}};
}
EI_INLINE vi vi_from_u16(const uint16_t *p) { QUADS(vi, vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p + 4 * i)))); }
EI_INLINE vi vi_from_u8(const uint8_t *p) {
    uint16_t words[16];
    uint8x16_t bytes = vld1q_u8(p);
    vst1q_u16(words, vmovl_u8(vget_low_u8(bytes)));
    vst1q_u16(words + 8, vmovl_u8(vget_high_u8(bytes)));
    return vi_from_u16(words);
}
EI_INLINE void vi_load_rows(const uint8_t *p, size_t stride, vi out[4]) {
    EI_UNROLL for (size_t i = 0; i < 4; i++) {
        int32x4_t row[4];
        EI_UNROLL for (size_t r = 0; r < 4; r++) row[r] = vreinterpretq_s32_u8(vld1q_u8(p + (4 * i + r) * stride));
        int32x4x2_t first = vtrnq_s32(row[0], row[1]), second = vtrnq_s32(row[2], row[3]);
        EI_UNROLL for (int w = 0; w < 2; w++) {
            out[w].q[i] = vcombine_s32(vget_low_s32(first.val[w]), vget_low_s32(second.val[w]));
            out[w + 2].q[i] = vcombine_s32(vget_high_s32(first.val[w]), vget_high_s32(second.val[w]));
        }
    }
}
EI_INLINE void vi_to_u16(uint16_t *p, vi x) {
    EI_UNROLL for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vmovn_u32(vreinterpretq_u32_s32(x.q[i])));
}
EI_INLINE void vi_to_s8(int8_t *p, vi x) {
    int16x8_t low = vcombine_s16(vmovn_s32(x.q[0]), vmovn_s32(x.q[1]));
    int16x8_t high = vcombine_s16(vmovn_s32(x.q[2]), vmovn_s32(x.q[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

EI_INLINE vb vb_load(const void *p) { QUADS(vb, vld1q_u8((const uint8_t *)p + 16 * i)); }
EI_INLINE vb vb_and(vb x, uint8_t mask) { QUADS(vb, vandq_u8(x.q[i], vdupq_n_u8(mask))); }
EI_INLINE vb vb_or(vb x, vb y) { QUADS(vb, vorrq_u8(x.q[i], y.q[i])); }
EI_INLINE vb vb_shr_and(vb x, int n, uint8_t mask) {
    QUADS(vb, vandq_u8(vshlq_u8(x.q[i], vdupq_n_s8((int8_t)-n)), vdupq_n_u8(mask)));
}
EI_INLINE vb vb_shl_and(vb x, int n, uint8_t mask) {
    QUADS(vb, vandq_u8(vshlq_u8(x.q[i], vdupq_n_s8((int8_t)n)), vdupq_n_u8(mask)));
}
EI_INLINE vb vb_lookup(vb x, const int8_t *table) {
    QUADS(vb, vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table)), x.q[i]));
}
EI_INLINE vb vb_signed(vb x) { return x; }

EI_INLINE va va_zero(void) { return vi_zero(); }
EI_INLINE va va_dot_s8(va sum, vb w, const int8_t *x) {
    int8x16_t q = vreinterpretq_s8_u32(vdupq_n_u32(load_u32(x)));
    QUADS(va, vdotq_s32(sum.q[i], vreinterpretq_s8_u8(w.q[i]), q));
}
EI_INLINE va va_dot_u8(va sum, vb w, const int8_t *x) { return va_dot_s8(sum, w, x); }
EI_INLINE vi va_flush(vi sum, va x) { return vi_add(sum, x); }
#include "plane_verbs.h"
