/* edgeinfer/csrc/codebook.c: unpack IQ1, IQ2, IQ3 and TQ1_0, row by row, 8 codes at a time as the bytes of a word. */
#include "codebook.h"

#include "grids.h"

/* Everything the unpackers write of one row. */
typedef struct {
    int8_t *codes;   /* of k-group g at codes + 64g */
    uint8_t *scales; /* of run i at scales + 16i */
    float *w;
} row;

/* elements 8i .. 8i+7 */
EI_INLINE void put_8(row to, int i, uint64_t codes) {
    store_u32(to.codes + 128 * i, (uint32_t)codes);
    store_u32(to.codes + 128 * i + 64, (uint32_t)(codes >> 32));
}
EI_INLINE void put_scale(row to, int run, uint32_t scale) { to.scales[16 * run] = (uint8_t)(2 * scale + 1); }
EI_INLINE void put_scale_of_32(row to, int j, uint32_t scale) {
    put_scale(to, 2 * j, scale);
    put_scale(to, 2 * j + 1, scale);
}
/* No magnitude is 0, so adding 1 to the complement of one never carries into the next. */
EI_INLINE uint64_t negated(uint64_t magnitudes, uint64_t mask) {
    return (magnitudes ^ mask) + (mask & 0x0101010101010101u);
}
EI_INLINE uint64_t signed_8(uint64_t magnitudes, uint32_t signs) { return negated(magnitudes, ei_grids.signs[signs]); }
EI_INLINE uint64_t signed_by_7(uint64_t magnitudes, uint32_t signs) {
    return negated(magnitudes, ei_grids.signs_of_7[signs & 127]);
}
/* 8 elements of two points of 4 */
EI_INLINE uint64_t both(uint32_t first, uint32_t second) { return first | (uint64_t)second << 32; }
EI_INLINE uint64_t shifted(uint32_t index, uint32_t is_down) {
    return (ei_grids.iq1[index] + (is_down ? 0 : 0x0202020202020202u)) ^ 0x8080808080808080u;
}

static void row_iq2_xxs(const block_iq2_xxs *b, row to) {
    *to.w = f16_to_f32(b->d) * 0.125f;
    for (int j = 0; j < 8; j++) {
        const uint8_t *at = b->codes + 8 * j;
        uint32_t word = load_u32(at + 4);
        put_scale_of_32(to, j, word >> 28);
        EI_UNROLL for (int i = 0; i < 4; i++)
            put_8(to, 4 * j + i, signed_by_7(ei_grids.iq2_xxs[at[i]], word >> (7 * i)));
    }
}
static void row_iq2_xs(const block_iq2_xs *b, row to) {
    *to.w = f16_to_f32(b->d) * 0.125f;
    for (int i = 0; i < 32; i++)
        put_8(to, i, signed_by_7(ei_grids.iq2_xs[b->codes[i] & 511], (uint32_t)b->codes[i] >> 9));
    for (int run = 0; run < 16; run++) put_scale(to, run, (b->scales[run / 2] >> (4 * (run % 2))) & 15u);
}
static void row_iq2_s(const block_iq2_s *b, row to) {
    *to.w = f16_to_f32(b->d) * 0.125f;
    for (int j = 0; j < 8; j++) {
        uint32_t high = b->high[j];
        EI_UNROLL for (int i = 0; i < 4; i++) {
            uint32_t index = b->low[4 * j + i] | ((high >> (2 * i)) & 3) << 8;
            put_8(to, 4 * j + i, signed_8(ei_grids.iq2_s[index], b->signs[4 * j + i]));
        }
    }
    for (int run = 0; run < 16; run++) put_scale(to, run, (b->scales[run / 2] >> (4 * (run % 2))) & 15u);
}
static void row_iq3_xxs(const block_iq3_xxs *b, row to) {
    *to.w = f16_to_f32(b->d) * 0.25f;
    for (int j = 0; j < 8; j++) {
        uint32_t word = load_u32(b->signs + 4 * j);
        put_scale_of_32(to, j, word >> 28);
        EI_UNROLL for (int i = 0; i < 4; i++) {
            const uint8_t *at = b->codes + 8 * j + 2 * i;
            uint64_t point = both(ei_grids.iq3_xxs[at[0]], ei_grids.iq3_xxs[at[1]]);
            put_8(to, 4 * j + i, signed_by_7(point, word >> (7 * i)));
        }
    }
}
static void row_iq3_s(const block_iq3_s *b, row to) {
    *to.w = f16_to_f32(b->d);
    for (int j = 0; j < 8; j++) {
        const uint8_t *low = b->low + 8 * j;
        uint32_t high = b->high[j];
        EI_UNROLL for (int i = 0; i < 4; i++) {
            uint32_t first = low[2 * i] | ((high >> (2 * i)) & 1) << 8;
            uint32_t second = low[2 * i + 1] | ((high >> (2 * i + 1)) & 1) << 8;
            uint64_t point = both(ei_grids.iq3_s[first], ei_grids.iq3_s[second]);
            put_8(to, 4 * j + i, signed_8(point, b->signs[4 * j + i]));
        }
    }
    for (int j = 0; j < 8; j++) put_scale_of_32(to, j, (b->scales[j / 2] >> (4 * (j % 2))) & 15u);
}
static void row_iq1_s(const block_iq1_s *b, row to) {
    *to.w = f16_to_f32(b->d) * 0.125f;
    for (int j = 0; j < 8; j++) {
        uint32_t word = b->high[j];
        put_scale_of_32(to, j, (word >> 12) & 7);
        EI_UNROLL for (int i = 0; i < 4; i++)
            put_8(to, 4 * j + i, shifted(b->low[4 * j + i] | ((word >> (3 * i)) & 7) << 8, word >> 15));
    }
}
static void row_iq1_m(const block_iq1_m *b, row to) {
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) d |= (uint32_t)(b->scales[i] >> 12) << (4 * i);
    *to.w = f16_to_f32((uint16_t)d) * 0.125f;
    for (int j = 0; j < 16; j++) {
        uint32_t high = b->high[j];
        put_8(to, 2 * j, shifted(b->low[2 * j] | (high & 7) << 8, high & 8));
        put_8(to, 2 * j + 1, shifted(b->low[2 * j + 1] | (high & 0x70) << 4, high & 0x80));
    }
    for (int run = 0; run < 16; run++) put_scale(to, run, (b->scales[run / 4] >> (3 * (run % 4))) & 7u);
}

/* Trit t of 8 bytes as codes, power 3^t: what a multiply by it moves past the top of a byte is gone, and the whole part
 * of three times the rest, as a fraction of 256, is the trit. */
EI_INLINE uint64_t trits(uint64_t packed, uint64_t power) {
    const uint64_t bytes = 0x00ff00ff00ff00ffu;
    uint64_t even = ((packed & bytes) * power & bytes) * 3 >> 8 & bytes;
    uint64_t odd = ((packed >> 8 & bytes) * power & bytes) * 3 & ~bytes;
    /* 0, 1, 2 -> -1, 0, 1 without a borrow */
    return ((even | odd) + 0x7f7f7f7f7f7f7f7fu) ^ 0x8080808080808080u;
}
EI_INLINE uint64_t load_u64(const void *p) { return load_u32(p) | (uint64_t)load_u32((const uint8_t *)p + 4) << 32; }

static void row_tq1_0(const block_tq1_0 *b, row to) {
    uint64_t power = 1;
    *to.w = f16_to_f32(b->d);
    for (int run = 0; run < 16; run++) put_scale(to, run, 0);
    for (int t = 0; t < 5; t++, power *= 3) {
        EI_UNROLL for (int i = 0; i < 4; i++) put_8(to, 4 * t + i, trits(load_u64(b->codes + 8 * i), power));
        EI_UNROLL for (int i = 0; i < 2; i++) put_8(to, 20 + 2 * t + i, trits(load_u64(b->codes + 32 + 8 * i), power));
        if (t < 4) store_u32(to.codes + 64 * (60 + t), (uint32_t)trits(load_u32(b->high), power));
    }
}

#define ROW(NAME, name)                                                                                                \
    void ei_unpack_##name(const block_##name *rows, int32_t n_rows, ei_codes *out) {                                   \
        for (int32_t r = 0; r < n_rows; r++)                                                                           \
            row_##name(rows + r, (row){&out->codes[0][4 * r], &out->scales[0][r], &out->w[r]});                        \
    }
EI_CODEBOOK_FORMATS(ROW)
