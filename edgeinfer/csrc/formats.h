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
 *   sub-block j of 32, runs a, b: t = i_a * d_a;  t = fma(i_b, d_b, t);  ds = d_a*s_a + d_b*s_b
 *   sub-block r of 16:            t = i_r * d_r;  ds = d_r*s_r
 *   block of 32, scale w, min m:  acc = fma(t, w, acc);  with a min: acc = fma(m, ds, acc)
 *   super-block of 256, per sub-block with its integer scale c and min m:
 *                                 u = fma(t, c, u);  with mins: v = fma(m, ds, v)      (u, v start at 0)
 *                 then            acc = fma(u, w, acc);  with mins: acc = fma(-v, wmin, acc)
 *   float weights:                acc = fma(w_k, x_k, acc), k in order
 * Codes are the signed values (IQ4: the table's); a kernel may add a bias to them and take bias*s back, which is exact.
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
    X(IQ4_XS, iq4_xs, 23, 256, 136)

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
    X(IQ4_XS, iq4_xs)

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
#undef CHECK

extern const int8_t ei_iq4_values[16];

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
