/* edgeinfer/csrc/isa/avx512_verbs.h: the virtual vector as one zmm register (AVX-512 F, BW, VL, DQ, VNNI).
 *
 * Meanings: scalar_verbs.h. With EI_SIMDE the same intrinsics are emulated, so that the file is tested on CPUs
 * without AVX-512; only the inline asm has another spelling there.
 */
#include "../base.h"

#ifdef EI_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include "avx512_simde.h"
#else
#include <immintrin.h>
#endif

#include "x86_rows.h"

typedef __m512 vf;
typedef __m512i vi;
typedef __m512i vb;
typedef __m512i va;

#define EI_WHOLE_TILES   0
#define EI_RUN(bound, n) (n)
/* dpbusd wants an unsigned side: signed weights are lifted by 128 and the sums of x take it back */
#define EI_SIGNED_BIAS 128
#ifdef EI_SIMDE
/* emulated verbs are long: one column, inlined and unrolled as little as the scalar ones, or gcc takes minutes */
#define EI_MAX_COLUMNS 1
#undef EI_UNROLL
#define EI_UNROLL
#undef EI_INLINE
#define EI_INLINE static inline
#else
#define EI_MAX_COLUMNS 8
#endif
#ifdef EI_SIMDE
#define EI_ATTENTION_VECTORS 6 /* the compiler needs minutes for more */
#else
#define EI_ATTENTION_VECTORS 24
#endif

EI_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
EI_INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
EI_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
EI_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
#ifdef EI_SIMDE
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
#else
EI_INLINE __mmask16 lanes_below(int n) { return (__mmask16)((1u << n) - 1u); }
EI_INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(lanes_below(n), p); }
EI_INLINE void vf_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, lanes_below(n), x); }
#endif
EI_INLINE vf vf_add(vf x, vf y) { return _mm512_add_ps(x, y); }
EI_INLINE vf vf_sub(vf x, vf y) { return _mm512_sub_ps(x, y); }
EI_INLINE vf vf_mul(vf x, vf y) { return _mm512_mul_ps(x, y); }
EI_INLINE vf vf_div(vf x, vf y) { return _mm512_div_ps(x, y); }
#ifdef EI_SIMDE
/* what the instructions do with NaN and zeros, which the emulation does not */
EI_INLINE vf vf_max(vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ), y, x); }
EI_INLINE vf vf_min(vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), y, x); }
#else
EI_INLINE vf vf_max(vf x, vf y) { return _mm512_max_ps(x, y); }
EI_INLINE vf vf_min(vf x, vf y) { return _mm512_min_ps(x, y); }
#endif
EI_INLINE vf vf_fma(vf x, vf y, vf z) { return _mm512_fmadd_ps(x, y, z); }
EI_INLINE vf vf_fnma(vf x, vf y, vf z) { return _mm512_fnmadd_ps(x, y, z); }
EI_INLINE vf vf_select_ge(vf x, vf limit, vf yes, vf no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ), no, yes);
}
#ifdef EI_SIMDE
EI_INLINE vf vf_from_f16(const uint16_t *p) {
    float lanes[16];
    for (int i = 0; i < 16; i++) lanes[i] = f16_to_f32(p[i]);
    return vf_load(lanes);
}
EI_INLINE void vf_to_f16(uint16_t *p, vf x) {
    float lanes[16];
    vf_store(lanes, x);
    for (int i = 0; i < 16; i++) p[i] = f32_to_f16(lanes[i]);
}
#else
EI_INLINE vf vf_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
EI_INLINE void vf_to_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
#endif
EI_INLINE vf vf_from_bf16(const uint16_t *p) {
    __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
EI_INLINE vf vf_from_vi(vi x) { return _mm512_cvtepi32_ps(x); }
EI_INLINE vi vf_bits(vf x) { return _mm512_castps_si512(x); }
EI_INLINE vf vf_from_bits(vi x) { return _mm512_castsi512_ps(x); }
EI_INLINE float vf_sum(vf x) {
    __m256 low = _mm512_castps512_ps256(x), high = _mm512_extractf32x8_ps(x, 1);
    __m256 s8 = _mm256_add_ps(low, high);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

EI_INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
EI_INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
EI_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
EI_INLINE void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
EI_INLINE vi vi_add(vi x, vi y) { return _mm512_add_epi32(x, y); }
EI_INLINE vi vi_sub(vi x, vi y) { return _mm512_sub_epi32(x, y); }
EI_INLINE vi vi_and(vi x, vi y) { return _mm512_and_si512(x, y); }
EI_INLINE vi vi_or(vi x, vi y) { return _mm512_or_si512(x, y); }
EI_INLINE vi vi_max(vi x, vi y) { return _mm512_max_epi32(x, y); }
EI_INLINE vi vi_shl(vi x, int n) { return _mm512_slli_epi32(x, (unsigned)n); }
EI_INLINE vi vi_shr(vi x, int n) { return _mm512_srli_epi32(x, (unsigned)n); }
EI_INLINE int32_t vi_max_all(vi x) {
    __m256i m8 = _mm256_max_epi32(_mm512_castsi512_si256(x), _mm512_extracti32x8_epi32(x, 1));
    __m128i m4 = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    __m128i m2 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m2, _mm_shuffle_epi32(m2, 0xb1)));
}
EI_INLINE vi vi_round(vf x) { return _mm512_cvtps_epi32(x); }
EI_INLINE vi vi_from_s8(const int8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
EI_INLINE vi vi_from_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
EI_INLINE vi vi_from_u16(const uint16_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
EI_INLINE void vi_load_rows(const uint8_t *p, size_t stride, vi out[4]) {
    __m256i low[4], high[4];
    load_8_rows(p, stride, low);
    load_8_rows(p + 8 * stride, stride, high);
    EI_UNROLL for (int w = 0; w < 4; w++) out[w] = _mm512_inserti64x4(_mm512_castsi256_si512(low[w]), high[w], 1);
}
EI_INLINE void vi_to_u16(uint16_t *p, vi x) {
    store_16_u16(p, _mm512_castsi512_si256(x), _mm512_extracti32x8_epi32(x, 1));
}
EI_INLINE void vi_to_s8(int8_t *p, vi x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x)); }

EI_INLINE vb vb_load(const void *p) { return _mm512_loadu_si512(p); }
EI_INLINE vb vb_and(vb x, uint8_t mask) { return _mm512_and_si512(x, _mm512_set1_epi8((char)mask)); }
EI_INLINE vb vb_or(vb x, vb y) { return _mm512_or_si512(x, y); }
EI_INLINE vb vb_shr_and(vb x, int n, uint8_t mask) { return vb_and(_mm512_srli_epi16(x, (unsigned)n), mask); }
EI_INLINE vb vb_shl_and(vb x, int n, uint8_t mask) { return vb_and(_mm512_slli_epi16(x, (unsigned)n), mask); }
EI_INLINE vb vb_lookup(vb x, const int8_t *table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), x);
}
EI_INLINE vb vb_signed(vb x) { return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80)); }

EI_INLINE va va_zero(void) { return vi_zero(); }
/* gcc 12 loads the broadcast by itself; the embedded form takes no register and no shuffle port */
EI_INLINE va va_dot_u8(va sum, vb w, const int8_t *x) {
#ifdef EI_SIMDE
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32((int32_t)load_u32(x)));
#else
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const int32_t *)(const void *)x));
    return sum;
#endif
}
EI_INLINE va va_dot_s8(va sum, vb w, const int8_t *x) { return va_dot_u8(sum, w, x); }
EI_INLINE vi va_flush(vi sum, va x) { return vi_add(sum, x); }
#include "plane_verbs.h"
