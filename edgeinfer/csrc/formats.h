/* edgeinfer/csrc/formats.h: the quant formats, one row each; their file blocks, their X blocks, and the law of their
 * dot product.
 *
 * X: 16 rows of a matrix are stored together ("a group"), same bits, same size. A group is its blocks in K
 * order; inside a block every plane has one entry per row, so row = lane. A "k-group" is 4 consecutive k of
 * the 16 rows: 64 bytes, lane i = bytes 4i .. 4i+3. Rows past the end are zero bytes.
 *
 * The law. x is quantized per run of 16 elements: x ~ d*q with integer sum s (kernels.h, ei_acts); q is s8, or 15 bits
 * where the consumers want fine activations.
 * For every (row, token), accumulated in K order, every float step exactly as written, one rounding each:
 *   run r of 16:                  i_r = (float) of the exact integer sum of (weight code * q)
 *   block of 32, runs a, b, scale w, min m:
 *                                 t = i_a * d_a;  t = fma(i_b, d_b, t);  acc = fma(t, w, acc)
 *                 with a min      acc = fma(m, d_a*s_a + d_b*s_b, acc)
 *   super-block of 256, per run with the integer scale c of its sub-block:
 *                                 u = fma(c*i_r, d_r, u)                               (u, v start at 0)
 *                 with mins m     v = fma(m, d_a*s_a + d_b*s_b, v) per sub-block of 32, v = fma(m, d_r*s_r, v) of 16
 *                 then            acc = fma(u, w, acc);  with mins: acc = fma(-v, wmin, acc)
 *   float weights:                acc = fma(w_k, x_k, acc), k in order
 * Codes are the signed values (IQ4: the table's); a kernel may add a bias to them and take bias*s back, which is exact.
 * IQ1, IQ2, IQ3 and TQ are super-blocks of sub-blocks of 16, without mins. Their c is 2*scale + 1, used twice where
 * the scale stands for 32, and 1 for TQ; w is d times a power of two that makes the codes integers: d/8 for IQ2 and
 * IQ1 (codes 8*point +- 1), d/4 for IQ3_XXS, d for IQ3_S and TQ.
 * MXFP4 is a block of 32, codes twice the E2M1 values, w = 2^(e - 128). NVFP4 has the same codes and half its UE4M3
 * as the scale w_r of each run:  acc = fma(i_r * d_r, w_r, acc).
 * One scale per 16 for every format, against llama.cpp's 32 and 256: it costs about a tenth of the integer kernels'
 * speed, halves the divergence from the float32 model at least, and lets all consumers of a value share one
 * quantization whatever their formats. kernels/precision.py says where activations are fine, and measures both.
 */
#ifndef EI_FORMATS_H
#define EI_FORMATS_H

#include "base.h"

/* X(NAME, name, ggml id, elements per block, bytes per block) */
#define EI_FORMATS(X)                                                                                                  \
    X(F32, f32, 0, 1, 4)                                                                                               \
    X(F16, f16, 1, 1, 2)                                                                                               \
    X(BF16, bf16, 30, 1, 2)                                                                                            \
    X(Q4_0, q4_0, 2, 32, 18)                                                                                           \
    X(Q4_1, q4_1, 3, 32, 20)                                                                                           \
    X(Q5_0, q5_0, 6, 32, 22)                                                                                           \
    X(Q5_1, q5_1, 7, 32, 24)                                                                                           \
    X(Q8_0, q8_0, 8, 32, 34)                                                                                           \
    X(IQ4_NL, iq4_nl, 20, 32, 18)                                                                                      \
    X(Q2_K, q2_k, 10, 256, 84)                                                                                         \
    X(Q3_K, q3_k, 11, 256, 110)                                                                                        \
    X(Q4_K, q4_k, 12, 256, 144)                                                                                        \
    X(Q5_K, q5_k, 13, 256, 176)                                                                                        \
    X(Q6_K, q6_k, 14, 256, 210)                                                                                        \
    X(IQ4_XS, iq4_xs, 23, 256, 136)                                                                                    \
    X(MXFP4, mxfp4, 39, 32, 17)                                                                                        \
    X(NVFP4, nvfp4, 40, 64, 36)                                                                                        \
    X(TQ2_0, tq2_0, 35, 256, 66)                                                                                       \
    X(TQ1_0, tq1_0, 34, 256, 54)                                                                                       \
    X(IQ2_XXS, iq2_xxs, 16, 256, 66)                                                                                   \
    X(IQ2_XS, iq2_xs, 17, 256, 74)                                                                                     \
    X(IQ2_S, iq2_s, 22, 256, 82)                                                                                       \
    X(IQ3_XXS, iq3_xxs, 18, 256, 98)                                                                                   \
    X(IQ3_S, iq3_s, 21, 256, 110)                                                                                      \
    X(IQ1_S, iq1_s, 19, 256, 50)                                                                                       \
    X(IQ1_M, iq1_m, 29, 256, 56)

enum {
#define ROW(NAME, name, id, elements, bytes) EI_##NAME,
    EI_FORMATS(ROW)
#undef ROW
        EI_N_FORMATS
};

typedef struct {
    const char *name;
    int32_t ggml_id, block_len, block_bytes;
} ei_format;

/* X(NAME, name) of the formats whose codes are unpacked in plain C (codebook.h): points of a codebook, or five trits a
 * byte; their X keeps the file blocks of 16 rows side by side */
#define EI_CODEBOOK_FORMATS(X)                                                                                         \
    X(TQ1_0, tq1_0)                                                                                                    \
    X(IQ2_XXS, iq2_xxs)                                                                                                \
    X(IQ2_XS, iq2_xs)                                                                                                  \
    X(IQ2_S, iq2_s)                                                                                                    \
    X(IQ3_XXS, iq3_xxs)                                                                                                \
    X(IQ3_S, iq3_s)                                                                                                    \
    X(IQ1_S, iq1_s)                                                                                                    \
    X(IQ1_M, iq1_m)

/* X(NAME, name) of the formats whose kernels take quantized activations */
#define EI_INTEGER_FORMATS(X)                                                                                          \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q4_1, q4_1)                                                                                                      \
    X(Q5_0, q5_0)                                                                                                      \
    X(Q5_1, q5_1)                                                                                                      \
    X(Q8_0, q8_0)                                                                                                      \
    X(IQ4_NL, iq4_nl)                                                                                                  \
    X(Q2_K, q2_k)                                                                                                      \
    X(Q3_K, q3_k)                                                                                                      \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k)                                                                                                      \
    X(IQ4_XS, iq4_xs)                                                                                                  \
    X(MXFP4, mxfp4)                                                                                                    \
    X(NVFP4, nvfp4)                                                                                                    \
    X(TQ2_0, tq2_0)                                                                                                    \
    EI_CODEBOOK_FORMATS(X)

/* Whether the codes are signed bytes: kernels that want fine activations as words want these formats' so as well. */
EI_INLINE bool ei_has_signed_codes(int32_t format) {
    switch (format) {
    case EI_Q8_0:
    case EI_IQ4_NL:
    case EI_IQ4_XS:
#define ROW(NAME, name) case EI_##NAME:
        EI_CODEBOOK_FORMATS(ROW)
#undef ROW
        return true;
    default: return false;
    }
}

extern const ei_format ei_format_rows[EI_N_FORMATS];

/* File blocks. f16 fields are raw bits. */
typedef struct {
    uint16_t d;
    uint8_t codes[16]; /* byte j: element j low, j+16 high; value d*(code - 8) */
} block_q4_0;
typedef struct {
    uint16_t d, m;
    uint8_t codes[16]; /* value d*code + m */
} block_q4_1;
typedef struct {
    uint16_t d;
    uint8_t high[4]; /* bit k: the fifth bit of element k */
    uint8_t codes[16];
} block_q5_0;
typedef struct {
    uint16_t d, m;
    uint8_t high[4];
    uint8_t codes[16];
} block_q5_1;
typedef struct {
    uint16_t d;
    int8_t codes[32];
} block_q8_0;
typedef struct {
    uint16_t d;
    uint8_t codes[16]; /* indices into ei_iq4_values, ordered as q4_0 */
} block_iq4_nl;
typedef struct {
    uint8_t scales[16]; /* per 16 elements: low nibble scale, high nibble min */
    uint8_t codes[64];  /* 2 bits; byte 32h + i holds elements 128h + i, +32, +64, +96 from the low bits up */
    uint16_t d, dmin;
} block_q2_k;
typedef struct {
    uint8_t high[32];   /* bit b of byte i: the third bit of element 32b + i */
    uint8_t codes[64];  /* low 2 bits, ordered as q2_k; value d*(scale - 32)*(code - 4) */
    uint8_t scales[12]; /* 16 scales of 6 bits: low nibbles in bytes 0-7, high pairs in bytes 8-11 */
    uint16_t d;
} block_q3_k;
typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12]; /* 8 scales and 8 mins of 6 bits */
    uint8_t codes[128]; /* byte 32p + i: element 64p + i low, 64p + 32 + i high */
} block_q4_k;
typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t high[32]; /* bit b of byte i: the fifth bit of element 32b + i */
    uint8_t codes[128];
} block_q5_k;
typedef struct {
    uint8_t low[128]; /* byte 64h + i (i < 64): element 128h + i low nibble, 128h + 64 + i high nibble */
    uint8_t high[64]; /* byte 32h + i: bits 5-4 of elements 128h + i, +32, +64, +96 from the low bits up */
    int8_t scales[16];
    uint16_t d; /* value d*scale*(code - 32) */
} block_q6_k;
typedef struct {
    uint16_t d, scales_high;
    uint8_t scales_low[4]; /* 8 scales of 6 bits minus 32 */
    uint8_t codes[128];    /* byte 16j + i: element 32j + i low, 32j + 16 + i high; indices as iq4_nl */
} block_iq4_xs;
typedef struct {
    uint8_t e;         /* value 2^(e - 128) * ei_fp4_values[code] */
    uint8_t codes[16]; /* ordered as q4_0 */
} block_mxfp4;
typedef struct {
    uint8_t d[4];      /* UE4M3 per 16 elements: 4 bits of exponent, 3 of mantissa; 0x7f is 0, the top bit nothing */
    uint8_t codes[32]; /* byte 8r + i: element 16r + i low, 16r + 8 + i high; value d/2 * ei_fp4_values[code] */
} block_nvfp4;
typedef struct {
    uint8_t codes[64]; /* ordered as q2_k; value d*(code - 1) */
    uint16_t d;
} block_tq2_0;
typedef struct {
    uint8_t codes[48]; /* trit t of byte i: element 32t + i, from byte 32 on 160 + 16t + (i - 32) */
    uint8_t high[4];   /* trit t of byte i: element 240 + 4t + i; value d*(trit - 1) */
    uint16_t d;
} block_tq1_0;
/* Codebooks: a point is 8 elements (IQ3: 4). Signs, a bit an element, set: negative; where they are 7 bits the number
 * of negative ones is even. Scales: low nibble first. */
typedef struct {
    uint16_t d;
    uint8_t codes[64]; /* per 32 elements 4 indices, then a dword: 4 signs of 7 bits, a scale of 4 */
} block_iq2_xxs;
typedef struct {
    uint16_t d;
    uint16_t codes[32]; /* index 9 bits, signs 7 */
    uint8_t scales[8];
} block_iq2_xs;
typedef struct {
    uint16_t d;
    uint8_t low[32], signs[32];
    uint8_t high[8]; /* bits 2i of byte j: bits 9-8 of index 4j + i */
    uint8_t scales[8];
} block_iq2_s;
typedef struct {
    uint16_t d;
    uint8_t codes[64], signs[32]; /* signs: dwords as those of iq2_xxs */
} block_iq3_xxs;
typedef struct {
    uint16_t d;
    uint8_t low[64];
    uint8_t high[8]; /* bit i of byte j: bit 8 of index 8j + i */
    uint8_t signs[32], scales[4];
} block_iq3_s;
typedef struct {
    uint16_t d;
    uint8_t low[32];
    uint16_t high[8]; /* per 32 elements: bits 10-8 of 4 indices, a scale of 3 bits, the sign of the eighth */
} block_iq1_s;
typedef struct {
    uint8_t low[32];
    uint8_t high[16];   /* nibbles: bits 10-8 of an index, the sign of the eighth */
    uint16_t scales[4]; /* 4 scales of 3 bits; the top nibbles are d, lowest first */
} block_iq1_m;

#define CHECK(name, bytes) _Static_assert(sizeof(name) == (bytes), #name)
CHECK(block_q4_0, 18);
CHECK(block_q4_1, 20);
CHECK(block_q5_0, 22);
CHECK(block_q5_1, 24);
CHECK(block_q8_0, 34);
CHECK(block_iq4_nl, 18);
CHECK(block_q2_k, 84);
CHECK(block_q3_k, 110);
CHECK(block_q4_k, 144);
CHECK(block_q5_k, 176);
CHECK(block_q6_k, 210);
CHECK(block_iq4_xs, 136);
CHECK(block_mxfp4, 17);
CHECK(block_nvfp4, 36);
CHECK(block_tq2_0, 66);
CHECK(block_tq1_0, 54);
CHECK(block_iq2_xxs, 66);
CHECK(block_iq2_xs, 74);
CHECK(block_iq2_s, 82);
CHECK(block_iq3_xxs, 98);
CHECK(block_iq3_s, 110);
CHECK(block_iq1_s, 50);
CHECK(block_iq1_m, 56);
#undef CHECK

extern const int8_t ei_iq4_values[16];
/* twice the E2M1 values; the second are larger by EI_FP4_BIAS, which makes them unsigned */
extern const int8_t ei_fp4_values[16], ei_fp4_biased[16];
enum { EI_FP4_BIAS = 12 };

/* X blocks: planes of 16 rows. `codes` planes are k-groups, `high` planes one dword a row whose byte i, bit g is
 * the extra bit of element 4g + i of a run of 32 (so one shift and one mask serve a whole k-group). */
typedef struct {
    uint16_t d[16];
    uint8_t codes[4][64]; /* plane g: k-group g low nibble, g+4 high nibble */
} x_q4_0;
typedef x_q4_0 x_iq4_nl;
typedef struct {
    uint16_t d[16], m[16];
    uint8_t codes[4][64];
} x_q4_1;
typedef struct {
    uint16_t d[16];
    uint8_t high[64];
    uint8_t codes[4][64];
} x_q5_0;
typedef struct {
    uint16_t d[16], m[16];
    uint8_t high[64];
    uint8_t codes[4][64];
} x_q5_1;
typedef struct {
    uint16_t d[16];
    int8_t codes[8][64];
} x_q8_0;
typedef struct {
    uint16_t d[16], dmin[16];
    uint8_t scales[16][16]; /* [run of 16][row] as in the file */
    uint8_t codes[16][64];  /* [run of 16]: byte i, bits 2g: element 4g + i */
} x_q2_k;
typedef struct {
    uint16_t d[16];
    uint8_t scales[3][64]; /* dword w of the 12 raw bytes */
    uint8_t codes[16][64]; /* as x_q2_k */
    uint8_t high[8][64];   /* [run of 32] */
} x_q3_k;
typedef struct {
    uint16_t d[16], dmin[16];
    uint8_t scales[3][64];
    uint8_t codes[8][4][64]; /* [run of 32]: as x_q4_0 */
} x_q4_k;
typedef struct {
    uint16_t d[16], dmin[16];
    uint8_t scales[3][64];
    uint8_t high[8][64];
    uint8_t codes[8][4][64];
} x_q5_k;
typedef struct {
    uint16_t d[16];
    int8_t scales[16][16];  /* [run of 16][row] */
    uint8_t low[16][2][64]; /* [run of 16]: plane g: k-group g low nibble, g+2 high nibble */
    uint8_t high[16][64];   /* [run of 16]: byte i, bits 2g: element 4g + i */
} x_q6_k;
typedef struct {
    uint16_t d[16], scales_high[16];
    uint8_t scales_low[64];
    uint8_t codes[8][4][64];
} x_iq4_xs;
typedef struct {
    uint8_t e[16];
    uint8_t codes[4][64]; /* as x_q4_0 */
} x_mxfp4;
typedef struct {
    uint8_t d[4][16];        /* [run of 16][row] */
    uint8_t codes[4][2][64]; /* [run of 16]: plane g: k-group g low nibble, g+2 high nibble */
} x_nvfp4;
typedef struct {
    uint16_t d[16];
    uint8_t codes[16][64]; /* as x_q2_k */
} x_tq2_0;
#define ROW(NAME, name)                                                                                                \
    typedef struct {                                                                                                   \
        block_##name rows[16];                                                                                         \
    } x_##name;
EI_CODEBOOK_FORMATS(ROW)
#undef ROW
typedef struct {
    uint16_t w[16]; /* one k */
} x_f16;
typedef x_f16 x_bf16;
typedef struct {
    float w[16];
} x_f32;

#define ROW(NAME, name, id, elements, bytes) _Static_assert(sizeof(x_##name) == 16 * (bytes), #name);
EI_FORMATS(ROW)
#undef ROW

#endif
