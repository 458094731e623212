/* edgeinfer/csrc/isa/avx2_verbs.h: the virtual vector as two 256-bit halves (AVX2, FMA, F16C).
 *
 * Meanings: scalar_verbs.h. With EI_OWN_DOT the including file brings the verbs of the dot product.
 */
#include "../base.h"

#include <immintrin.h>

#include "x86_rows.h"

typedef struct {
    __m256 a, b;
} vf;
typedef struct {
    __m256i a, b;
} vi;
typedef vi vb;

#ifndef EI_OWN_DOT
typedef vi va; /* each 32-bit lane is a pair of int16 sums */

/* One maddubs adds two products of at most 127*bound; 32767 / (2*127*bound) of them fit an int16. */
#define EI_RUN_FITS(bound) (32767 / (2 * 127 * (bound)))
#define EI_RUN(bound, n)                                                                                               \
    (EI_RUN_FITS(bound) >= (n) ? (n) : EI_RUN_FITS(bound) >= 4 ? 4 : EI_RUN_FITS(bound) >= 2 ? 2 : 1)
#define EI_SIGNED_BIAS 0
#define EI_FINE_WORDS  1
#endif
#define EI_MAX_COLUMNS       4
#define EI_WHOLE_TILES       1
#define EI_ATTENTION_VECTORS 6

#define HALVES(type, op, x, y) ((type){op((x).a, (y).a), op((x).b, (y).b)})

EI_INLINE vf vf_set(float x) {
    __m256 s = _mm256_set1_ps(x);
    return (vf){s, s};
}
EI_INLINE vf vf_zero(void) { return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
EI_INLINE vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
EI_INLINE void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
EI_INLINE vi lanes_below(int n) {
    __m256i limit = _mm256_set1_epi32(n);
    return (vi){_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
EI_INLINE vf vf_load_n(const float *p, int n) {
    vi m = lanes_below(n);
    return (vf){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
EI_INLINE void vf_store_n(float *p, vf x, int n) {
    vi m = lanes_below(n);
    _mm256_maskstore_ps(p, m.a, x.a);
    _mm256_maskstore_ps(p + 8, m.b, x.b);
}
EI_INLINE vf vf_add(vf x, vf y) { return HALVES(vf, _mm256_add_ps, x, y); }
EI_INLINE vf vf_sub(vf x, vf y) { return HALVES(vf, _mm256_sub_ps, x, y); }
EI_INLINE vf vf_mul(vf x, vf y) { return HALVES(vf, _mm256_mul_ps, x, y); }
EI_INLINE vf vf_div(vf x, vf y) { return HALVES(vf, _mm256_div_ps, x, y); }
EI_INLINE vf vf_max(vf x, vf y) { return HALVES(vf, _mm256_max_ps, x, y); }
EI_INLINE vf vf_min(vf x, vf y) { return HALVES(vf, _mm256_min_ps, x, y); }
EI_INLINE vf vf_fma(vf x, vf y, vf z) { return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
EI_INLINE vf vf_fnma(vf x, vf y, vf z) {
    return (vf){_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
EI_INLINE vf vf_select_ge(vf x, vf limit, vf yes, vf no) {
    return (vf){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, limit.a, _CMP_GE_OQ)),
                _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, limit.b, _CMP_GE_OQ))};
}
EI_INLINE vf vf_from_f16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
EI_INLINE vf vf_from_bf16(const uint16_t *p) {
    __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
EI_INLINE void vf_to_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
EI_INLINE vf vf_from_vi(vi x) { return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
EI_INLINE vi vf_bits(vf x) { return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
EI_INLINE vf vf_from_bits(vi x) { return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
EI_INLINE float vf_sum(vf x) {
    __m256 s8 = _mm256_add_ps(x.a, x.b);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

EI_INLINE vi vi_set(int32_t x) {
    __m256i s = _mm256_set1_epi32(x);
    return (vi){s, s};
}
EI_INLINE vi vi_zero(void) { return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
EI_INLINE vi vi_load(const void *p) {
    return (vi){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)p + 1)};
}
EI_INLINE void vi_store(void *p, vi x) {
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)p + 1, x.b);
}
EI_INLINE vi vi_add(vi x, vi y) { return HALVES(vi, _mm256_add_epi32, x, y); }
EI_INLINE vi vi_sub(vi x, vi y) { return HALVES(vi, _mm256_sub_epi32, x, y); }
EI_INLINE vi vi_and(vi x, vi y) { return HALVES(vi, _mm256_and_si256, x, y); }
EI_INLINE vi vi_or(vi x, vi y) { return HALVES(vi, _mm256_or_si256, x, y); }
EI_INLINE vi vi_max(vi x, vi y) { return HALVES(vi, _mm256_max_epi32, x, y); }
EI_INLINE vi vi_shl(vi x, int n) { return (vi){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
EI_INLINE vi vi_shr(vi x, int n) { return (vi){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
EI_INLINE int32_t vi_max_all(vi x) {
    __m256i m8 = _mm256_max_epi32(x.a, x.b);
    __m128i m4 = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
    __m128i m2 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m2, _mm_shuffle_epi32(m2, 0xb1)));
}
EI_INLINE vi vi_round(vf x) { return (vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
EI_INLINE vi vi_from_s8(const int8_t *p) {
    return (vi){_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
EI_INLINE vi vi_from_u8(const uint8_t *p) {
    return (vi){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
EI_INLINE vi vi_from_u16(const uint16_t *p) {
    return (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
EI_INLINE void vi_load_rows(const uint8_t *p, size_t stride, vi out[4]) {
    __m256i low[4], high[4];
    load_8_rows(p, stride, low);
    load_8_rows(p + 8 * stride, stride, high);
    EI_UNROLL for (int w = 0; w < 4; w++) out[w] = (vi){low[w], high[w]};
}
EI_INLINE void vi_to_u16(uint16_t *p, vi x) { store_16_u16(p, x.a, x.b); }
EI_INLINE void vi_to_s8(int8_t *p, vi x) {
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

EI_INLINE vb vb_load(const void *p) { return vi_load(p); }
EI_INLINE vb vb_and(vb x, uint8_t mask) {
    __m256i m = _mm256_set1_epi8((char)mask);
    return (vb){_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
EI_INLINE vb vb_or(vb x, vb y) { return HALVES(vb, _mm256_or_si256, x, y); }
EI_INLINE vb vb_shr_and(vb x, int n, uint8_t mask) {
    return vb_and((vb){_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)}, mask);
}
EI_INLINE vb vb_shl_and(vb x, int n, uint8_t mask) {
    return vb_and((vb){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)}, mask);
}
EI_INLINE vb vb_lookup(vb x, const int8_t *table) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (vb){_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}

#ifndef EI_OWN_DOT
EI_INLINE vb vb_signed(vb x) { return x; }

EI_INLINE va va_zero(void) { return vi_zero(); }
/* gcc would add all the products first and spill; the empty asm keeps one accumulator a step */
#define EI_KEEP(x) __asm__("" : "+x"(x))
EI_INLINE va va_dot_u8(va sum, vb w, const int8_t *x) {
    __m256i q = _mm256_set1_epi32((int32_t)load_u32(x));
    sum.a = _mm256_add_epi16(sum.a, _mm256_maddubs_epi16(w.a, q));
    sum.b = _mm256_add_epi16(sum.b, _mm256_maddubs_epi16(w.b, q));
    EI_KEEP(sum.a);
    EI_KEEP(sum.b);
    return sum;
}
/* maddubs wants an unsigned side: |w| takes it and the sign moves to x; w = -128 becomes 128, which still fits */
EI_INLINE va va_dot_s8(va sum, vb w, const int8_t *x) {
    __m256i q = _mm256_set1_epi32((int32_t)load_u32(x));
    sum.a = _mm256_add_epi16(sum.a, _mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_sign_epi8(q, w.a)));
    sum.b = _mm256_add_epi16(sum.b, _mm256_maddubs_epi16(_mm256_abs_epi8(w.b), _mm256_sign_epi8(q, w.b)));
    EI_KEEP(sum.a);
    EI_KEEP(sum.b);
    return sum;
}
EI_INLINE vi va_flush(vi sum, va x) {
    __m256i one = _mm256_set1_epi16(1);
    return (vi){_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, one)),
                _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, one))};
}

/* pairs of int16, so that madd multiplies by them */
typedef vi vs;
EI_INLINE vs vs_from_u16(vi c) { return vi_or(c, vi_shl(c, 16)); }
EI_INLINE vs vs_from_s16(vi c) { return vi_or(vi_and(c, vi_set(0xffff)), vi_shl(c, 16)); }
EI_INLINE vi va_flush_by(vi sum, va x, vs c) {
    return (vi){_mm256_add_epi32(sum.a, _mm256_madd_epi16(x.a, c.a)),
                _mm256_add_epi32(sum.b, _mm256_madd_epi16(x.b, c.b))};
}
EI_INLINE vf vs_scaled(vi sum, vs c) {
    (void)c;
    return vf_from_vi(sum);
}
EI_INLINE vi vi_byte(vi x, int j) {
    __m256i pick = _mm256_add_epi32(_mm256_setr_epi32(-0x7f7f8000, -0x7f7f7ffc, -0x7f7f7ff8, -0x7f7f7ff4, -0x7f7f8000,
                                                      -0x7f7f7ffc, -0x7f7f7ff8, -0x7f7f7ff4),
                                    _mm256_set1_epi32(j));
    return (vi){_mm256_shuffle_epi8(x.a, pick), _mm256_shuffle_epi8(x.b, pick)};
}
EI_INLINE vs vs_from_byte(vi x, int j) {
    __m256i pick = _mm256_add_epi32(_mm256_setr_epi32(-0x7fff8000, -0x7ffb7ffc, -0x7ff77ff8, -0x7ff37ff4, -0x7fff8000,
                                                      -0x7ffb7ffc, -0x7ff77ff8, -0x7ff37ff4),
                                    _mm256_set1_epi32(0x00010001 * j));
    return (vs){_mm256_shuffle_epi8(x.a, pick), _mm256_shuffle_epi8(x.b, pick)};
}

/* k, k+2 and k+1, k+3 of each row as pairs of int16 */
typedef struct {
    vi even, odd;
} vw;
EI_INLINE vw vw_from_u8(vb x) {
    __m256i low = _mm256_set1_epi16(0xff);
    return (vw){{_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low)},
                {_mm256_srli_epi16(x.a, 8), _mm256_srli_epi16(x.b, 8)}};
}
EI_INLINE vw vw_from_s8(vb x) {
    return (vw){{_mm256_srai_epi16(_mm256_slli_epi16(x.a, 8), 8), _mm256_srai_epi16(_mm256_slli_epi16(x.b, 8), 8)},
                {_mm256_srai_epi16(x.a, 8), _mm256_srai_epi16(x.b, 8)}};
}
EI_INLINE vi vw_dot(vi sum, vw w, const int16_t *x) {
    __m256i even = _mm256_set1_epi32((int32_t)load_u32(x)), odd = _mm256_set1_epi32((int32_t)load_u32(x + 2));
    sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(w.even.a, even));
    sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.even.b, even));
    sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(w.odd.a, odd));
    sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.odd.b, odd));
    EI_KEEP(sum.a);
    EI_KEEP(sum.b);
    return sum;
}
#endif
