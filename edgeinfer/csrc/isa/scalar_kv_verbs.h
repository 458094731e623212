/* edgeinfer/csrc/isa/scalar_kv_verbs.h: the verbs of coded keys and values in plain C; this file specifies them.
 *
 * Included after scalar_verbs.h. vk: keys of 16 positions, lane i holds four dims of position i. vp: values of two
 * positions, lane i holds dim i of both.
 */

typedef vb vk;
typedef struct {
    int8_t v[32];
} vp;

/* score accumulators of 8-bit keys, as EI_ATTENTION_VECTORS of f16 ones */
#define EI_KEY_VECTORS 1
/* what vk_load adds to every key; the caller takes it back through the sums of the query */
#define EI_KEY_BIAS 0

EI_INLINE vk vk_load(const int8_t *p) { return vb_load(p); }
/* sum + the four products of each lane with the four signed bytes at q; every byte is in -127 .. 127 */
EI_INLINE vi vk_dot(vi sum, vk k, const int8_t *q) { return va_dot_s8(sum, k, q); }

EI_INLINE vp vp_load(const int8_t *p) {
    vp r;
    memcpy(r.v, p, 32);
    return r;
}
/* 4-bit codes, at bit shift of the bytes at p, less 8: values as vp_load's */
EI_INLINE vp vp_nibbles(const uint8_t *p, int shift) {
    vp r;
    for (int i = 0; i < 32; i++) r.v[i] = (int8_t)((p[i] >> shift & 15) - 8);
    return r;
}
/* sum + both positions' products of each lane with the two weights at w */
EI_INLINE vi vp_dot(vi sum, vp v, const int16_t *w) {
    EACH sum.v[i] += v.v[2 * i] * w[0] + v.v[2 * i + 1] * w[1];
    return sum;
}

/* Lanes in -32768 .. 32767 become 16 words. */
EI_INLINE void vi_to_s16(int16_t *p, vi a) { EACH p[i] = (int16_t)a.v[i]; }
/* 16 words: out = (a*b + 2^14) >> 15; a is in 0 .. 32767, b in -32767 .. 32767 */
EI_INLINE void words_scaled(int16_t *out, const int16_t *a, const int16_t *b) {
    EACH out[i] = (int16_t)((a[i] * b[i] + 16384) >> 15);
}
