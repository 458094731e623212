/* edgeinfer/csrc/isa/neon_kv_verbs.h: the verbs of coded keys and values (NEON). Meanings: scalar_kv_verbs.h. */

typedef vb vk;
typedef struct {
    int16x8_t even[2], odd[2]; /* the first position of each pair and the second, 8 dims each */
} vp;

#define EI_KEY_VECTORS 6
#define EI_KEY_BIAS    0

EI_INLINE vk vk_load(const int8_t *p) { return vb_load(p); }
EI_INLINE vi vk_dot(vi sum, vk k, const int8_t *q) { return va_dot_s8(sum, k, q); }

EI_INLINE vp vp_widened(int8x16_t even, int8x16_t odd) {
    return (vp){{vmovl_s8(vget_low_s8(even)), vmovl_s8(vget_high_s8(even))},
                {vmovl_s8(vget_low_s8(odd)), vmovl_s8(vget_high_s8(odd))}};
}
EI_INLINE vp vp_load(const int8_t *p) {
    int8x16x2_t v = vld2q_s8(p);
    return vp_widened(v.val[0], v.val[1]);
}
EI_INLINE int8x16_t nibble_codes(uint8x16_t x, int shift) {
    x = vandq_u8(vshlq_u8(x, vdupq_n_s8((int8_t)-shift)), vdupq_n_u8(15));
    return vsubq_s8(vreinterpretq_s8_u8(x), vdupq_n_s8(8));
}
EI_INLINE vp vp_nibbles(const uint8_t *p, int shift) {
    uint8x16x2_t v = vld2q_u8(p);
    return vp_widened(nibble_codes(v.val[0], shift), nibble_codes(v.val[1], shift));
}
EI_INLINE vi vp_dot(vi sum, vp v, const int16_t *w) {
    EI_UNROLL for (int i = 0; i < 2; i++) {
        sum.q[2 * i] = vmlal_n_s16(sum.q[2 * i], vget_low_s16(v.even[i]), w[0]);
        sum.q[2 * i] = vmlal_n_s16(sum.q[2 * i], vget_low_s16(v.odd[i]), w[1]);
        sum.q[2 * i + 1] = vmlal_n_s16(sum.q[2 * i + 1], vget_high_s16(v.even[i]), w[0]);
        sum.q[2 * i + 1] = vmlal_n_s16(sum.q[2 * i + 1], vget_high_s16(v.odd[i]), w[1]);
    }
    return sum;
}

EI_INLINE void vi_to_s16(int16_t *p, vi x) {
    vst1q_s16(p, vcombine_s16(vmovn_s32(x.q[0]), vmovn_s32(x.q[1])));
    vst1q_s16(p + 8, vcombine_s16(vmovn_s32(x.q[2]), vmovn_s32(x.q[3])));
}
EI_INLINE void words_scaled(int16_t *out, const int16_t *a, const int16_t *b) {
    vst1q_s16(out, vqrdmulhq_s16(vld1q_s16(a), vld1q_s16(b)));
    vst1q_s16(out + 8, vqrdmulhq_s16(vld1q_s16(a + 8), vld1q_s16(b + 8)));
}
