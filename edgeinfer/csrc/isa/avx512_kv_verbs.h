/* edgeinfer/csrc/isa/avx512_kv_verbs.h: the verbs of coded keys and values (AVX-512 VNNI). Meanings: scalar_kv_verbs.h.
 */

typedef vb vk;
typedef __m512i vp;

#ifdef EI_SIMDE
#define EI_KEY_VECTORS 6
#else
#define EI_KEY_VECTORS 24
#endif
#define EI_KEY_BIAS 128

EI_INLINE vk vk_load(const int8_t *p) { return vb_signed(vb_load(p)); }
EI_INLINE vi vk_dot(vi sum, vk k, const int8_t *q) { return va_dot_u8(sum, k, q); }

EI_INLINE vp vp_load(const int8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p)); }
EI_INLINE vp vp_nibbles(const uint8_t *p, int shift) {
    __m256i x = _mm256_srli_epi16(_mm256_loadu_si256((const __m256i *)p), shift);
    return _mm512_cvtepi8_epi16(_mm256_sub_epi8(_mm256_and_si256(x, _mm256_set1_epi8(0x0f)), _mm256_set1_epi8(8)));
}
EI_INLINE vi vp_dot(vi sum, vp v, const int16_t *w) {
    return _mm512_dpwssd_epi32(sum, v, _mm512_set1_epi32((int32_t)load_u32(w)));
}

EI_INLINE void vi_to_s16(int16_t *p, vi x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(x)); }
EI_INLINE void words_scaled(int16_t *out, const int16_t *a, const int16_t *b) {
    __m256i x = _mm256_loadu_si256((const __m256i *)a), y = _mm256_loadu_si256((const __m256i *)b);
    _mm256_storeu_si256((__m256i *)out, _mm256_mulhrs_epi16(x, y));
}
