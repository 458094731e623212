/* edgeinfer/csrc/isa/avxvnni_verbs.h: the avx2 verbs with the dot product in one instruction (256-bit AVX-VNNI).
 *
 * Meanings: scalar_verbs.h. With EI_SIMDE the one intrinsic that AVX2 lacks is emulated, exactly, so that the file is
 * tested on CPUs without it.
 */
#define EI_OWN_DOT
#include "avx2_verbs.h"

typedef vi va;

#define EI_RUN(bound, n) (n)
/* dpbusd wants an unsigned side: signed weights are lifted by 128 and the sums of x take it back */
#define EI_SIGNED_BIAS 128

#ifdef EI_SIMDE
/* even and odd bytes apart: a product is at most 255*128, so neither fits the int16 sums of maddubs */
EI_INLINE __m256i dpbusd(__m256i sum, __m256i w, __m256i x) {
    __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0xff)), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
#else
#define dpbusd _mm256_dpbusd_avx_epi32
#endif

EI_INLINE vb vb_signed(vb x) {
    __m256i top = _mm256_set1_epi8((char)0x80);
    return (vb){_mm256_xor_si256(x.a, top), _mm256_xor_si256(x.b, top)};
}
EI_INLINE va va_zero(void) { return vi_zero(); }
EI_INLINE va va_dot_u8(va sum, vb w, const int8_t *x) {
    __m256i q = _mm256_set1_epi32((int32_t)load_u32(x));
    return (va){dpbusd(sum.a, w.a, q), dpbusd(sum.b, w.b, q)};
}
EI_INLINE va va_dot_s8(va sum, vb w, const int8_t *x) { return va_dot_u8(sum, w, x); }
EI_INLINE vi va_flush(vi sum, va x) { return vi_add(sum, x); }
#include "plane_verbs.h"
