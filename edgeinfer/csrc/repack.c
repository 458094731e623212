/* edgeinfer/csrc/repack.c: lay 16 file rows out as one X group (formats.h): bits are moved, nothing is rounded. */
#include "edgeinfer.h"
#include "repack.h"

const int8_t ei_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t ei_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
const int8_t ei_fp4_biased[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

const ei_format ei_format_rows[EI_N_FORMATS] = {
#define ROW(NAME, name, id, elements, bytes) [EI_##NAME] = {#NAME, id, elements, bytes},
    EI_FORMATS(ROW)
#undef ROW
};

#define EACH_ROW for (int r = 0; r < EI_LANES; r++)

EI_INLINE uint32_t low_nibbles(const uint8_t *p, int shift) { return (load_u32(p) >> shift) & 0x0f0f0f0fu; }

/* bit 4g + i of x -> byte i, bit g */
EI_INLINE uint32_t bits_by_group(uint32_t x) {
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t b = (x >> i) & 0x11111111u;
        b = (b | b >> 3) & 0x03030303u;
        b = (b | b >> 6) & 0x000f000fu;
        b = (b | b >> 12) & 0xffu;
        out |= b << (8 * i);
    }
    return out;
}

/* bit `bit` of bytes 4g + i, g < 8 -> byte i, bit g */
EI_INLINE uint32_t bit_plane(const uint8_t *bytes, int bit) {
    uint32_t out = 0;
    for (int g = 0; g < 8; g++) out |= ((load_u32(bytes + 4 * g) >> bit) & 0x01010101u) << g;
    return out;
}

/* bits 2*pair, +1 of bytes 4g + i, g < 4 -> byte i, bits 2g */
EI_INLINE uint32_t pair_plane(const uint8_t *bytes, int pair) {
    uint32_t out = 0;
    for (int g = 0; g < 4; g++) out |= ((load_u32(bytes + 4 * g) >> (2 * pair)) & 0x03030303u) << (2 * g);
    return out;
}

/* the 2-bit codes of Q2_K, Q3_K and the top bits of Q6_K: run of 16 elements `run` */
EI_INLINE uint32_t two_bits(const uint8_t *codes, int run) {
    return pair_plane(codes + 32 * (run / 8) + 16 * (run % 2), (run % 8) / 2);
}

EI_INLINE void dwords(uint8_t (*planes)[64], int r, const uint8_t *src, int n) {
    for (int w = 0; w < n; w++) store_u32(planes[w] + 4 * r, load_u32(src + 4 * w));
}

/* run of 32 elements j of Q4_K or Q5_K */
EI_INLINE void k_codes(uint8_t codes[4][64], int r, const uint8_t *file, int j) {
    const uint8_t *p = file + 32 * (j / 2);
    int shift = 4 * (j % 2);
    for (int g = 0; g < 4; g++)
        store_u32(codes[g] + 4 * r, low_nibbles(p + 4 * g, shift) | low_nibbles(p + 4 * g + 16, shift) << 4);
}

static void pack_f32(float *x, const float *const *b) { EACH_ROW x[r] = *b[r]; }
static void pack_f16(x_f16 *x, const uint16_t *const *b) { EACH_ROW x->w[r] = *b[r]; }
static void pack_q4_0(x_q4_0 *x, const block_q4_0 *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d;
        dwords(x->codes, r, b[r]->codes, 4);
    }
}
static void pack_q4_1(x_q4_1 *x, const block_q4_1 *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d, x->m[r] = b[r]->m;
        dwords(x->codes, r, b[r]->codes, 4);
    }
}
static void pack_q5_0(x_q5_0 *x, const block_q5_0 *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d;
        store_u32(x->high + 4 * r, bits_by_group(load_u32(b[r]->high)));
        dwords(x->codes, r, b[r]->codes, 4);
    }
}
static void pack_q5_1(x_q5_1 *x, const block_q5_1 *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d, x->m[r] = b[r]->m;
        store_u32(x->high + 4 * r, bits_by_group(load_u32(b[r]->high)));
        dwords(x->codes, r, b[r]->codes, 4);
    }
}
static void pack_q8_0(x_q8_0 *x, const block_q8_0 *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d;
        dwords((uint8_t (*)[64])x->codes, r, (const uint8_t *)b[r]->codes, 8);
    }
}
static void pack_q2_k(x_q2_k *x, const block_q2_k *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d, x->dmin[r] = b[r]->dmin;
        for (int i = 0; i < 16; i++) {
            x->scales[i][r] = b[r]->scales[i];
            store_u32(x->codes[i] + 4 * r, two_bits(b[r]->codes, i));
        }
    }
}
static void pack_q3_k(x_q3_k *x, const block_q3_k *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d;
        dwords(x->scales, r, b[r]->scales, 3);
        for (int i = 0; i < 16; i++) store_u32(x->codes[i] + 4 * r, two_bits(b[r]->codes, i));
        for (int j = 0; j < 8; j++) store_u32(x->high[j] + 4 * r, bit_plane(b[r]->high, j));
    }
}
static void pack_q4_k(x_q4_k *x, const block_q4_k *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d, x->dmin[r] = b[r]->dmin;
        dwords(x->scales, r, b[r]->scales, 3);
        for (int j = 0; j < 8; j++) k_codes(x->codes[j], r, b[r]->codes, j);
    }
}
static void pack_q5_k(x_q5_k *x, const block_q5_k *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d, x->dmin[r] = b[r]->dmin;
        dwords(x->scales, r, b[r]->scales, 3);
        for (int j = 0; j < 8; j++) {
            store_u32(x->high[j] + 4 * r, bit_plane(b[r]->high, j));
            k_codes(x->codes[j], r, b[r]->codes, j);
        }
    }
}
static void pack_q6_k(x_q6_k *x, const block_q6_k *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d;
        for (int i = 0; i < 16; i++) {
            const uint8_t *low = b[r]->low + 64 * (i / 8) + 16 * (i % 4);
            int shift = 4 * ((i % 8) / 4);
            x->scales[i][r] = b[r]->scales[i];
            for (int g = 0; g < 2; g++)
                store_u32(x->low[i][g] + 4 * r, low_nibbles(low + 4 * g, shift) | low_nibbles(low + 4 * g + 8, shift)
                                                                                      << 4);
            store_u32(x->high[i] + 4 * r, two_bits(b[r]->high, i));
        }
    }
}
static void pack_iq4_xs(x_iq4_xs *x, const block_iq4_xs *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d, x->scales_high[r] = b[r]->scales_high;
        dwords(&x->scales_low, r, b[r]->scales_low, 1);
        for (int j = 0; j < 8; j++) dwords(x->codes[j], r, b[r]->codes + 16 * j, 4);
    }
}

static void pack_mxfp4(x_mxfp4 *x, const block_mxfp4 *const *b) {
    EACH_ROW {
        x->e[r] = b[r]->e;
        dwords(x->codes, r, b[r]->codes, 4);
    }
}
static void pack_nvfp4(x_nvfp4 *x, const block_nvfp4 *const *b) {
    EACH_ROW {
        for (int run = 0; run < 4; run++) {
            x->d[run][r] = b[r]->d[run];
            dwords(x->codes[run], r, b[r]->codes + 8 * run, 2);
        }
    }
}
static void pack_tq2_0(x_tq2_0 *x, const block_tq2_0 *const *b) {
    EACH_ROW {
        x->d[r] = b[r]->d;
        for (int i = 0; i < 16; i++) store_u32(x->codes[i] + 4 * r, two_bits(b[r]->codes, i));
    }
}
#define ROW(NAME, name)                                                                                                \
    static void pack_##name(x_##name *x, const block_##name *const *b) { EACH_ROW x->rows[r] = *b[r]; }
EI_CODEBOOK_FORMATS(ROW)
#undef ROW

typedef void (*pack_fn)(void *x, const void *const *blocks);
static const pack_fn packers[EI_N_FORMATS] = {
    [EI_F32] = (pack_fn)pack_f32,     [EI_F16] = (pack_fn)pack_f16,     [EI_BF16] = (pack_fn)pack_f16,
    [EI_Q4_0] = (pack_fn)pack_q4_0,   [EI_Q4_1] = (pack_fn)pack_q4_1,   [EI_Q5_0] = (pack_fn)pack_q5_0,
    [EI_Q5_1] = (pack_fn)pack_q5_1,   [EI_Q8_0] = (pack_fn)pack_q8_0,   [EI_IQ4_NL] = (pack_fn)pack_q4_0,
    [EI_Q2_K] = (pack_fn)pack_q2_k,   [EI_Q3_K] = (pack_fn)pack_q3_k,   [EI_Q4_K] = (pack_fn)pack_q4_k,
    [EI_Q5_K] = (pack_fn)pack_q5_k,   [EI_Q6_K] = (pack_fn)pack_q6_k,   [EI_IQ4_XS] = (pack_fn)pack_iq4_xs,
    [EI_MXFP4] = (pack_fn)pack_mxfp4, [EI_NVFP4] = (pack_fn)pack_nvfp4, [EI_TQ2_0] = (pack_fn)pack_tq2_0,
#define ROW(NAME, name) [EI_##NAME] = (pack_fn)pack_##name,
    EI_CODEBOOK_FORMATS(ROW)
#undef ROW
};

int32_t ei_n_groups(int32_t n_rows) { return n_rows / EI_LANES + (n_rows % EI_LANES != 0); }

size_t ei_row_bytes(int32_t format, int64_t n_columns) {
    const ei_format *f = &ei_format_rows[format];
    return (size_t)(n_columns / f->block_len) * (size_t)f->block_bytes;
}

/* Vectors take 16 bytes of a row at once, which a row of floats need not be a multiple of. */
static bool fits_vectors(int32_t n_rows, size_t row_bytes, int32_t block_len) {
    return n_rows == EI_LANES && (block_len > 1 || row_bytes % 16 == 0);
}

void ei_repack_group(const ei_kernels *kernels, int32_t format, const uint8_t *rows, int32_t n_rows, int64_t n_columns,
                     uint8_t *group) {
    static const uint8_t zeros[256];
    const ei_format *f = &ei_format_rows[format];
    size_t row_bytes = ei_row_bytes(format, n_columns), step = (size_t)f->block_bytes;
    if (kernels && kernels->repack[format] && fits_vectors(n_rows, row_bytes, f->block_len)) {
        kernels->repack[format](rows, row_bytes, group);
        return;
    }
    for (size_t at = 0; at < row_bytes; at += step) {
        const void *blocks[EI_LANES];
        EACH_ROW blocks[r] = r < n_rows ? rows + (size_t)r * row_bytes + at : zeros;
        packers[format](group + EI_LANES * at, blocks);
    }
}

size_t ei_file_offset(int32_t n_rows, int32_t n_columns, int32_t format, int32_t group) {
    size_t matrix = (size_t)(group / ei_n_groups(n_rows)), row = (size_t)(group % ei_n_groups(n_rows)) * EI_LANES;
    return (matrix * (size_t)n_rows + row) * ei_row_bytes(format, n_columns);
}

void ei_repack_groups(const ei_kernels *kernels, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file,
                      int32_t first, int32_t last, uint8_t *out) {
    size_t group_bytes = EI_LANES * ei_row_bytes(format, n_columns);
    int32_t per_matrix = ei_n_groups(n_rows);
    for (int32_t g = first; g < last; g++, out += group_bytes)
        ei_repack_group(kernels, format, file + ei_file_offset(n_rows, n_columns, format, g),
                        min_i32(EI_LANES, n_rows - g % per_matrix * EI_LANES), n_columns, out);
}

static bool are_matrices(int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns) {
    return format >= 0 && format < EI_N_FORMATS && n_matrices > 0 && n_rows > 0 && n_columns > 0 &&
           n_columns % ei_format_rows[format].block_len == 0 && n_rows / EI_LANES + 1 <= INT32_MAX / n_matrices;
}

size_t ei_x_bytes(int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns) {
    if (!are_matrices(format, n_matrices, n_rows, n_columns)) return 0;
    return (size_t)n_matrices * (size_t)ei_n_groups(n_rows) * EI_LANES * ei_row_bytes(format, n_columns);
}

uint64_t ei_x_layout(int32_t format) {
    uint8_t rows[EI_LANES * 256] = {0}, group[EI_LANES * 256];
    if (format < 0 || format >= EI_N_FORMATS) return 0;
    size_t n_bytes = EI_LANES * (size_t)ei_format_rows[format].block_bytes;
    uint64_t hash = 0xcbf29ce484222325u, state = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        rows[i] = (uint8_t)(state >> 56);
    }
    ei_repack_group(NULL, format, rows, EI_LANES, ei_format_rows[format].block_len, group);
    for (size_t i = 0; i < n_bytes; i++) hash = (hash ^ group[i]) * 0x100000001b3u;
    return hash;
}

int32_t ei_repack(const char *isa, int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns,
                  const uint8_t *file, int32_t first, int32_t n, uint8_t *out) {
    const ei_kernels *k = ei_kernels_of(isa);
    if (!k || !are_matrices(format, n_matrices, n_rows, n_columns) || first < 0 || n < 0 ||
        n > n_matrices * ei_n_groups(n_rows) - first)
        return EI_BAD_ARGUMENT;
    ei_repack_groups(k, format, n_rows, n_columns, file, first, first + n, out);
    return EI_OK;
}
