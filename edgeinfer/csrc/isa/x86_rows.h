/* edgeinfer/csrc/isa/x86_rows.h: 16 bytes of each of 8 rows -> 4 vectors of their dwords, for the 256- and 512-bit
 * verbs.
 */
#ifndef EI_X86_ROWS_H
#define EI_X86_ROWS_H

#include "../base.h"

/* out[w], lane r: dword w of the 16 bytes at p + r*stride */
EI_INLINE void load_8_rows(const uint8_t *p, size_t stride, __m256i out[4]) {
    __m256i row[4]; /* row r below row r + 4: a transpose of 4x4 dwords inside each half then leaves rows in order */
    EI_UNROLL for (size_t r = 0; r < 4; r++) {
        __m128i low = _mm_loadu_si128((const __m128i *)(p + r * stride));
        __m128i high = _mm_loadu_si128((const __m128i *)(p + (r + 4) * stride));
        row[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
    __m256i low01 = _mm256_unpacklo_epi32(row[0], row[1]), high01 = _mm256_unpackhi_epi32(row[0], row[1]);
    __m256i low23 = _mm256_unpacklo_epi32(row[2], row[3]), high23 = _mm256_unpackhi_epi32(row[2], row[3]);
    out[0] = _mm256_unpacklo_epi64(low01, low23), out[1] = _mm256_unpackhi_epi64(low01, low23);
    out[2] = _mm256_unpacklo_epi64(high01, high23), out[3] = _mm256_unpackhi_epi64(high01, high23);
}

/* 8 lanes below 2^16 of each become 16 u16 */
EI_INLINE void store_16_u16(uint16_t *p, __m256i low, __m256i high) {
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
}

#endif
