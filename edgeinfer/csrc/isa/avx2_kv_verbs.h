/* edgeinfer/csrc/isa/avx2_kv_verbs.h: the verbs of coded keys and values (AVX2). Meanings: scalar_kv_verbs.h.
 *
 * With EI_OWN_KEY_DOT the including file brings the dot products of its own.
 */

typedef vb vk;
typedef vi vp;

EI_INLINE vp vp_load(const int8_t *p) {
    return (vp){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16)))};
}
EI_INLINE vp vp_nibbles(const uint8_t *p, int shift) {
    __m256i x =
        _mm256_and_si256(_mm256_srli_epi16(_mm256_loadu_si256((const __m256i *)p), shift), _mm256_set1_epi8(0x0f));
    x = _mm256_sub_epi8(x, _mm256_set1_epi8(8));
    return (vp){_mm256_cvtepi8_epi16(_mm256_castsi256_si128(x)), _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1))};
}
EI_INLINE vi vp_dot_avx2(vi sum, vp v, const int16_t *w) {
    __m256i x = _mm256_set1_epi32((int32_t)load_u32(w));
    return (vi){_mm256_add_epi32(sum.a, _mm256_madd_epi16(v.a, x)), _mm256_add_epi32(sum.b, _mm256_madd_epi16(v.b, x))};
}

#ifndef EI_OWN_KEY_DOT
#define EI_KEY_VECTORS 4
#define EI_KEY_BIAS    0

EI_INLINE vk vk_load(const int8_t *p) { return vb_load(p); }
/* maddubs wants an unsigned side: |k| takes it and the sign moves to q; two products of 127*127 fit an int16 */
EI_INLINE vi vk_dot(vi sum, vk k, const int8_t *q) {
    __m256i x = _mm256_set1_epi32((int32_t)load_u32(q)), one = _mm256_set1_epi16(1);
    __m256i a = _mm256_maddubs_epi16(_mm256_abs_epi8(k.a), _mm256_sign_epi8(x, k.a));
    __m256i b = _mm256_maddubs_epi16(_mm256_abs_epi8(k.b), _mm256_sign_epi8(x, k.b));
    return (vi){_mm256_add_epi32(sum.a, _mm256_madd_epi16(a, one)), _mm256_add_epi32(sum.b, _mm256_madd_epi16(b, one))};
}
EI_INLINE vi vp_dot(vi sum, vp v, const int16_t *w) { return vp_dot_avx2(sum, v, w); }
#endif

EI_INLINE void vi_to_s16(int16_t *p, vi x) {
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8));
}
EI_INLINE void words_scaled(int16_t *out, const int16_t *a, const int16_t *b) {
    __m256i x = _mm256_loadu_si256((const __m256i *)a), y = _mm256_loadu_si256((const __m256i *)b);
    _mm256_storeu_si256((__m256i *)out, _mm256_mulhrs_epi16(x, y));
}
