/* edgeinfer/csrc/isa/avx512_simde.h: the AVX-512 intrinsics that SIMDe lacks, lane by lane; for tests only. */

#define EI_BY_LANES(name, to, to_lane, from, from_lane, STEP)                                                          \
    EI_INLINE to name(from x) {                                                                                        \
        from_lane in[16];                                                                                              \
        to_lane out[16];                                                                                               \
        to y;                                                                                                          \
        memcpy(in, &x, sizeof in);                                                                                     \
        for (int i = 0; i < 16; i++) out[i] = (to_lane)STEP(in[i]);                                                    \
        memcpy(&y, out, sizeof out);                                                                                   \
        return y;                                                                                                      \
    }
EI_BY_LANES(lanes_s32_from_s8, __m512i, int32_t, __m128i, int8_t, )
EI_BY_LANES(lanes_s32_from_u8, __m512i, int32_t, __m128i, uint8_t, )
EI_BY_LANES(lanes_s32_from_u16, __m512i, int32_t, __m256i, uint16_t, )
EI_BY_LANES(lanes_s32_from_f32, __m512i, int32_t, __m512, float, rintf)
EI_BY_LANES(lanes_f32_from_s32, __m512, float, __m512i, int32_t, )
EI_BY_LANES(lanes_s8_from_s32, __m128i, int8_t, __m512i, int32_t, )
EI_BY_LANES(lanes_s16_from_s32, __m256i, int16_t, __m512i, int32_t, )
#undef EI_BY_LANES

EI_INLINE __m256 upper_f32(__m512 x) {
    __m256 y;
    memcpy(&y, (const char *)&x + 32, 32);
    return y;
}
EI_INLINE __m256i upper_s32(__m512i x) {
    __m256i y;
    memcpy(&y, (const char *)&x + 32, 32);
    return y;
}

#define _mm512_cvtepi8_epi32              lanes_s32_from_s8
#define _mm512_cvtepu8_epi32              lanes_s32_from_u8
#define _mm512_cvtepu16_epi32             lanes_s32_from_u16
#define _mm512_cvtps_epi32                lanes_s32_from_f32
#define _mm512_cvtepi32_ps                lanes_f32_from_s32
#define _mm512_cvtepi32_epi8              lanes_s8_from_s32
#define _mm512_cvtepi32_epi16             lanes_s16_from_s32
#define _mm512_extractf32x8_ps(x, one)    upper_f32(x)
#define _mm512_extracti32x8_epi32(x, one) upper_s32(x)
