/* edgeinfer/csrc/isa/avxvnni_kv_verbs.h: the avx2 verbs of coded keys and values, each dot product one instruction.
 *
 * Meanings: scalar_kv_verbs.h.
 */
#define EI_OWN_KEY_DOT
#include "avx2_kv_verbs.h"

#define EI_KEY_VECTORS 6
#define EI_KEY_BIAS    128

EI_INLINE vk vk_load(const int8_t *p) { return vb_signed(vb_load(p)); }
EI_INLINE vi vk_dot(vi sum, vk k, const int8_t *q) { return va_dot_u8(sum, k, q); }

#ifdef EI_SIMDE
EI_INLINE vi vp_dot(vi sum, vp v, const int16_t *w) { return vp_dot_avx2(sum, v, w); }
#else
EI_INLINE vi vp_dot(vi sum, vp v, const int16_t *w) {
    __m256i x = _mm256_set1_epi32((int32_t)load_u32(w));
    return (vi){_mm256_dpwssd_avx_epi32(sum.a, v.a, x), _mm256_dpwssd_avx_epi32(sum.b, v.b, x)};
}
#endif
