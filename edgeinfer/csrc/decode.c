/* edgeinfer/csrc/decode.c: file rows -> floats: for embedding tables that stay mapped as they are, and to quantize. */
#include "codebook.h"
#include "edgeinfer.h"
#include "formats.h"
#include "kernels.h"
#include "repack.h"

EI_INLINE float nibble_value(const uint8_t *codes, int i, int half) {
    return (float)((codes[i % half] >> (i < half ? 0 : 4)) & 15);
}

/* the fifth bit of element i of a block of 32, as 16 or 0 */
EI_INLINE float fifth(const uint8_t *high, int i) { return (float)(((load_u32(high) >> i) & 1u) << 4); }

static void decode_f32(const float *b, float *y) { *y = *b; }
static void decode_f16(const uint16_t *b, float *y) { *y = f16_to_f32(*b); }
static void decode_bf16(const uint16_t *b, float *y) { *y = bf16_to_f32(*b); }
static void decode_q4_0(const block_q4_0 *b, float *y) {
    for (int i = 0; i < 32; i++) y[i] = f16_to_f32(b->d) * (nibble_value(b->codes, i, 16) - 8);
}
static void decode_q4_1(const block_q4_1 *b, float *y) {
    for (int i = 0; i < 32; i++) y[i] = f16_to_f32(b->d) * nibble_value(b->codes, i, 16) + f16_to_f32(b->m);
}
static void decode_q5_0(const block_q5_0 *b, float *y) {
    for (int i = 0; i < 32; i++) y[i] = f16_to_f32(b->d) * (nibble_value(b->codes, i, 16) + fifth(b->high, i) - 16);
}
static void decode_q5_1(const block_q5_1 *b, float *y) {
    for (int i = 0; i < 32; i++)
        y[i] = f16_to_f32(b->d) * (nibble_value(b->codes, i, 16) + fifth(b->high, i)) + f16_to_f32(b->m);
}
static void decode_q8_0(const block_q8_0 *b, float *y) {
    for (int i = 0; i < 32; i++) y[i] = f16_to_f32(b->d) * (float)b->codes[i];
}
static void decode_iq4_nl(const block_iq4_nl *b, float *y) {
    for (int i = 0; i < 32; i++) y[i] = f16_to_f32(b->d) * (float)ei_iq4_values[(int)nibble_value(b->codes, i, 16)];
}
EI_INLINE int two_bits_of(const uint8_t *codes, int i) {
    return (codes[32 * (i / 128) + i % 32] >> (2 * ((i % 128) / 32))) & 3;
}
static void decode_q2_k(const block_q2_k *b, float *y) {
    for (int i = 0; i < 256; i++) {
        float scale = f16_to_f32(b->d) * (float)(b->scales[i / 16] & 15);
        float min = f16_to_f32(b->dmin) * (float)(b->scales[i / 16] >> 4);
        y[i] = scale * (float)two_bits_of(b->codes, i) - min;
    }
}
static void decode_q3_k(const block_q3_k *b, float *y) {
    for (int i = 0; i < 256; i++) {
        int s = i / 16;
        int low = s < 8 ? b->scales[s] & 15 : b->scales[s - 8] >> 4;
        int scale = (low | ((b->scales[8 + s % 4] >> (2 * (s / 4))) & 3) << 4) - 32;
        int code = two_bits_of(b->codes, i) - ((b->high[i % 32] >> (i / 32)) & 1 ? 0 : 4);
        y[i] = f16_to_f32(b->d) * (float)scale * (float)code;
    }
}
EI_INLINE void k4_scale(const uint8_t *raw, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = raw[j] & 63, *min = raw[j + 4] & 63;
    } else {
        *scale = (raw[j + 4] & 15) | (raw[j - 4] >> 6) << 4;
        *min = (raw[j + 4] >> 4) | (raw[j] >> 6) << 4;
    }
}
EI_INLINE int k_code(const uint8_t *codes, int i) {
    return (codes[32 * (i / 64) + i % 32] >> ((i % 64) < 32 ? 0 : 4)) & 15;
}
EI_INLINE void decode_k(uint16_t d, uint16_t dmin, const uint8_t *scales, const uint8_t *codes, const uint8_t *high,
                        float *y) {
    for (int i = 0; i < 256; i++) {
        int scale, min, code = k_code(codes, i);
        k4_scale(scales, i / 32, &scale, &min);
        if (high) code |= ((high[i % 32] >> (i / 32)) & 1) << 4;
        y[i] = f16_to_f32(d) * (float)scale * (float)code - f16_to_f32(dmin) * (float)min;
    }
}
static void decode_q4_k(const block_q4_k *b, float *y) { decode_k(b->d, b->dmin, b->scales, b->codes, NULL, y); }
static void decode_q5_k(const block_q5_k *b, float *y) { decode_k(b->d, b->dmin, b->scales, b->codes, b->high, y); }
static void decode_q6_k(const block_q6_k *b, float *y) {
    for (int i = 0; i < 256; i++) {
        int low = (b->low[64 * (i / 128) + i % 64] >> ((i % 128) < 64 ? 0 : 4)) & 15;
        int code = (low | two_bits_of(b->high, i) << 4) - 32;
        y[i] = f16_to_f32(b->d) * (float)b->scales[i / 16] * (float)code;
    }
}
static void decode_iq4_xs(const block_iq4_xs *b, float *y) {
    for (int i = 0; i < 256; i++) {
        int j = i / 32;
        int low = (b->scales_low[j / 2] >> (4 * (j % 2))) & 15, high = (b->scales_high >> (2 * j)) & 3;
        int code = (b->codes[16 * j + i % 16] >> ((i % 32) < 16 ? 0 : 4)) & 15;
        y[i] = f16_to_f32(b->d) * (float)((low | high << 4) - 32) * (float)ei_iq4_values[code];
    }
}

static void decode_mxfp4(const block_mxfp4 *b, float *y) {
    float scale = ldexpf(1.0f, b->e - 128);
    for (int i = 0; i < 32; i++) y[i] = scale * (float)ei_fp4_values[(int)nibble_value(b->codes, i, 16)];
}
/* half of the UE4M3 */
EI_INLINE float ue4m3_half(uint8_t d) {
    int exponent = d >> 3 & 15, mantissa = d & 7;
    if (d == 0x7f) return 0.0f;
    return exponent ? ldexpf((float)(8 + mantissa), exponent - 11) : ldexpf((float)mantissa, -10);
}
static void decode_nvfp4(const block_nvfp4 *b, float *y) {
    for (int i = 0; i < 64; i++) {
        int code = (int)nibble_value(b->codes + 8 * (i / 16), i % 16, 8);
        y[i] = ue4m3_half(b->d[i / 16]) * (float)ei_fp4_values[code];
    }
}
static void decode_tq2_0(const block_tq2_0 *b, float *y) {
    for (int i = 0; i < 256; i++) y[i] = f16_to_f32(b->d) * (float)(two_bits_of(b->codes, i) - 1);
}
/* Unpacked as one row of 16. */
EI_INLINE void decode_codes(const ei_codes *codes, float *y) {
    for (int i = 0; i < 256; i++)
        y[i] = codes->w[0] * (float)codes->scales[i / 16][0] * (float)codes->codes[i / 4][i % 4];
}
#define ROW(NAME, name)                                                                                                \
    static void decode_##name(const block_##name *b, float *y) {                                                       \
        ei_codes codes;                                                                                                \
        ei_unpack_##name(b, 1, &codes);                                                                                \
        decode_codes(&codes, y);                                                                                       \
    }
EI_CODEBOOK_FORMATS(ROW)
#undef ROW

/* A loop of its own for each format: where a block is one value, calls would take longer than the values. */
#define ROW(NAME, name, id, elements, bytes)                                                                           \
    static void decode_row_##name(const uint8_t *block, int64_t n_columns, float *out) {                               \
        for (int64_t i = 0; i < n_columns; i += elements, block += bytes) decode_##name((const void *)block, out + i); \
    }
EI_FORMATS(ROW)
#undef ROW

typedef void (*decode_row_fn)(const uint8_t *row, int64_t n_columns, float *out);
static const decode_row_fn decoders[EI_N_FORMATS] = {
#define ROW(NAME, name, id, elements, bytes) [EI_##NAME] = decode_row_##name,
    EI_FORMATS(ROW)
#undef ROW
};

void ei_decode_row(int32_t format, const void *row, int64_t n_columns, float *out) {
    decoders[format](row, n_columns, out);
}

int32_t ei_decode(const char *isa, int32_t format, const uint8_t *rows, int64_t n_rows, int64_t n_columns, float *out) {
    const ei_kernels *k = ei_kernels_of(isa);
    if (!k || format < 0 || format >= EI_N_FORMATS || n_columns % ei_format_rows[format].block_len)
        return EI_BAD_ARGUMENT;
    size_t row_bytes = ei_row_bytes(format, n_columns);
    for (int64_t r = 0; r < n_rows; r++, rows += row_bytes, out += n_columns) {
        if (format == EI_F16) {
            k->from_f16((const uint16_t *)rows, out, n_columns);
        } else {
            ei_decode_row(format, rows, n_columns, out);
        }
    }
    return EI_OK;
}
