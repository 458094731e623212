/* edgeinfer/csrc/ops/matmul_wide_template.h: the matmul kernels for many columns; included by matmul_template.h.
 *
 * 256 k of a group, a stretch, are unpacked into L1 once and then met by all the columns of the call, a few at a time:
 * what a format's unpacking costs is shared by up to EI_WIDE tokens. How codes were packed no longer matters then, so
 * formats whose law has the same steps share one core.
 */
#include "../codebook.h"

enum { STRETCH = 256 };

typedef struct {
    union {
        vb bytes[STRETCH / 4]; /* k-groups */
        vw words[STRETCH / 4];
    };
    super s;                  /* of sub-blocks of 32 or 16; NVFP4: scale alone */
    vf d[STRETCH / EI_BLOCK]; /* of blocks of 32; of a super-block at [0] */
    vf m[STRETCH / EI_BLOCK]; /* their mins */
    float bias;               /* what unsigned codes are too large by */
    int32_t n_blocks;         /* of 32 */
} stretch;

/* ---- cores: n_columns columns of a tile by a stretch ---- */

#define CORE_ARGUMENTS const stretch *st, columns c, float *out, const int n_columns, const int fine, const int whole
#define CORE_BEGIN(is_signed)                                                                                          \
    const int by_words = EI_FINE_WORDS && (fine || (is_signed));                                                       \
    const size_t stride = whole ? EI_TILE : c.stride;                                                                  \
    vf acc[EI_MAX_COLUMNS];
#define CORE_LOAD EACH_COLUMN acc[t] = vf_load(out + 16 * t);
#define CORE_END  EACH_COLUMN vf_store(out + 16 * t, acc[t]);
#define STRETCH_RUN(half, BOUND, SIGNED, FLUSH)                                                                        \
    RUN_OF_16(st->bytes[8 * j + i], st->words[8 * j + i], SIGNED, half, BOUND, FLUSH)
/* codes that va_dot_s8 takes are too large by a constant, others by what the stretch says, if BIASED */
#define STRETCH_UNBIASED(BOUND, SIGNED, BIASED, half)                                                                  \
    const float bias = (SIGNED) ? EI_SIGNED_BIAS : st->bias;                                                           \
    const int has_bias = (SIGNED) ? EI_SIGNED_BIAS != 0 : (BIASED);                                                    \
    UNBIASED(BOUND, has_bias, bias, half)

/* Blocks of 32: Q4_0 and its like. */
#define BLOCK_CORE(name, BOUND, SIGNED, BIASED, MIN)                                                                   \
    EI_INLINE void core_##name(CORE_ARGUMENTS) {                                                                       \
        CORE_BEGIN(SIGNED)                                                                                             \
        CORE_LOAD                                                                                                      \
        for (int j = 0; j < st->n_blocks; j++) {                                                                       \
            vf sub[EI_MAX_COLUMNS];                                                                                    \
            EI_UNROLL for (int half = 0; half < 2; half++) {                                                           \
                STRETCH_RUN(half, BOUND, SIGNED, va_flush)                                                             \
                STRETCH_UNBIASED(BOUND, SIGNED, BIASED, half)                                                          \
                EACH_COLUMN {                                                                                          \
                    vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);                                             \
                    sub[t] = half ? vf_fma(dots[t], d, sub[t]) : vf_mul(dots[t], d);                                   \
                }                                                                                                      \
            }                                                                                                          \
            EACH_COLUMN acc[t] = vf_fma(sub[t], st->d[j], acc[t]);                                                     \
            if (MIN) EACH_COLUMN acc[t] = vf_fma(st->m[j], vf_set(c.ds[t]), acc[t]);                                   \
            NEXT_32;                                                                                                   \
        }                                                                                                              \
        CORE_END                                                                                                       \
    }
BLOCK_CORE(blocks, 31, 0, 1, 0)
BLOCK_CORE(blocks_min, 31, 0, 0, 1)
BLOCK_CORE(blocks_signed, 128, 1, 0, 0)

/* A super-block of 256. MIN: 0, or the elements that share one: mins have a loop of their own, since all the registers
 * are taken. Sub-blocks of 32 or of 16. */
#define N_SUBS(length)           ((length) == 16 ? STRETCH / 16 : STRETCH / 32)
#define STRETCH_SCALED(sum, run) va_flush_by(sum, run, st->s.by[at])
#define SUPER_CORE(name, SUB_BLOCK, BOUND, SIGNED, BIASED, MIN)                                                        \
    EI_INLINE void core_##name(CORE_ARGUMENTS) {                                                                       \
        CORE_BEGIN(SIGNED)                                                                                             \
        const columns from = c;                                                                                        \
        vf u[EI_MAX_COLUMNS], v[EI_MAX_COLUMNS];                                                                       \
        EACH_COLUMN u[t] = vf_zero();                                                                                  \
        for (int j = 0; j < 8; j++) {                                                                                  \
            EI_UNROLL for (int half = 0; half < 2; half++) {                                                           \
                const int at = (SUB_BLOCK) == 32 ? j : 2 * j + half;                                                   \
                const int biased = (SIGNED) ? EI_SIGNED_BIAS != 0 : (BIASED);                                          \
                vf scaled[EI_MAX_COLUMNS];                                                                             \
                if (fine || by_words) {                                                                                \
                    STRETCH_RUN(half, BOUND, SIGNED, va_flush)                                                         \
                    STRETCH_UNBIASED(BOUND, SIGNED, BIASED, half)                                                      \
                    EACH_COLUMN scaled[t] = vf_mul(dots[t], st->s.scale[at]);                                          \
                } else {                                                                                               \
                    STRETCH_RUN(half, BOUND, SIGNED, STRETCH_SCALED)                                                   \
                    EACH_COLUMN {                                                                                      \
                        vf sum = vf_set(c.sums[(size_t)half * stride + (size_t)t]);                                    \
                        scaled[t] = vs_scaled(isum[t], st->s.by[at]);                                                  \
                        if (biased) scaled[t] = vf_fnma(st->s.biased[at], sum, scaled[t]);                             \
                    }                                                                                                  \
                }                                                                                                      \
                EACH_COLUMN {                                                                                          \
                    vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);                                             \
                    u[t] = vf_fma(scaled[t], d, u[t]);                                                                 \
                }                                                                                                      \
            }                                                                                                          \
            NEXT_32;                                                                                                   \
        }                                                                                                              \
        CORE_LOAD                                                                                                      \
        EACH_COLUMN acc[t] = vf_fma(u[t], st->d[0], acc[t]);                                                           \
        if (MIN) {                                                                                                     \
            EACH_COLUMN v[t] = vf_zero();                                                                              \
            for (int at = 0; at < N_SUBS(MIN); at++) EACH_COLUMN {                                                     \
                    size_t i = (size_t)at * stride + (size_t)t;                                                        \
                    vf ds = (MIN) == 32 ? vf_set(from.ds[i]) : vf_mul(vf_set(from.d[i]), vf_set(from.sums[i]));        \
                    v[t] = vf_fma(st->s.min[at], ds, v[t]);                                                            \
                }                                                                                                      \
            EACH_COLUMN acc[t] = vf_fnma(v[t], st->m[0], acc[t]);                                                      \
        }                                                                                                              \
        CORE_END                                                                                                       \
    }
SUPER_CORE(super_2, 16, 3, 0, 0, 16)
SUPER_CORE(super_3, 16, 7, 0, 1, 0)
SUPER_CORE(super_4, 32, 31, 0, 0, 32)
SUPER_CORE(super_6, 16, 63, 0, 1, 0)
SUPER_CORE(super_signed, 16, 128, 1, 0, 0)

/* NVFP4: a float scale for every 16, in the place of the sub-blocks'. */
EI_INLINE void core_halves(CORE_ARGUMENTS) {
    CORE_BEGIN(0)
    CORE_LOAD
    for (int j = 0; j < st->n_blocks; j++) {
        EI_UNROLL for (int half = 0; half < 2; half++) {
            STRETCH_RUN(half, 2 * EI_FP4_BIAS, 0, va_flush)
            STRETCH_UNBIASED(2 * EI_FP4_BIAS, 0, 1, half)
            EACH_COLUMN {
                vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);
                acc[t] = vf_fma(vf_mul(dots[t], d), st->s.scale[2 * j + half], acc[t]);
            }
        }
        NEXT_32;
    }
    CORE_END
}

#ifdef EI_PAIRS
#include "matmul_pairs_template.h"
#define WIDEST(name, fine, whole)                                                                                      \
    if (fine)                                                                                                          \
        core_##name(st, c, out, EI_MAX_COLUMNS, fine, whole);                                                          \
    else                                                                                                               \
        pairs_##name(st, c, out)
#else
#define WIDEST(name, fine, whole) core_##name(st, c, out, EI_MAX_COLUMNS, fine, whole)
#endif

/* Whole tiles by a stretch. */
#define WHOLE_TILES(name, precision, fine)                                                                             \
    static EI_APART void tiles_##name##_##precision(const stretch *st, const ei_acts *acts, int32_t k, int32_t token,  \
                                                    int32_t n, float *out) {                                           \
        for (int32_t last = token + n; token < last; token += EI_MAX_COLUMNS, out += EI_LANES * EI_MAX_COLUMNS) {      \
            columns c = columns_at(acts, token, k);                                                                    \
            WIDEST(name, fine, 1);                                                                                     \
        }                                                                                                              \
    }
#define EACH_CORE(X, precision, fine)                                                                                  \
    X(blocks, precision, fine)                                                                                         \
    X(blocks_min, precision, fine)                                                                                     \
    X(blocks_signed, precision, fine)                                                                                  \
    X(super_2, precision, fine)                                                                                        \
    X(super_3, precision, fine)                                                                                        \
    X(super_4, precision, fine)                                                                                        \
    X(super_6, precision, fine)                                                                                        \
    X(super_signed, precision, fine)                                                                                   \
    X(halves, precision, fine)
EACH_CORE(WHOLE_TILES, coarse, 0)
EACH_CORE(WHOLE_TILES, fine, 1)

/* ---- unpacking ---- */

EI_INLINE void put_group(stretch *st, int i, vb codes, const int is_signed, const int fine) {
    if (EI_FINE_WORDS && (fine || is_signed))
        st->words[i] = is_signed ? vw_from_s8(codes) : vw_from_u8(codes);
    else
        st->bytes[i] = codes;
}
#define PUT_32(name, b, j, at, DOT)                                                                                    \
    EI_UNROLL for (int g = 0; g < 8; g++) put_group(st, 8 * (at) + g, group_##name(b, j, g), IS_SIGNED(DOT), fine)

/* What is unpacked next is asked for now. */
EI_INLINE void fetch_block(const void *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)block + at, 0, 3);
}

#define UNPACK_ARGUMENTS stretch *st, const void *blocks, const int fine
#define UNPACK_BLOCKS(name, DOT, SCALE, MIN)                                                                           \
    EI_INLINE void unpack_##name(UNPACK_ARGUMENTS) {                                                                   \
        const x_##name *b = blocks;                                                                                    \
        for (int j = 0; j < st->n_blocks; j++, b++) {                                                                  \
            fetch_block(b + STRETCH / EI_BLOCK, sizeof *b);                                                            \
            PUT_32(name, b, 0, j, DOT);                                                                                \
            st->d[j] = SCALE;                                                                                          \
            MIN                                                                                                        \
        }                                                                                                              \
    }
#define BLOCK_MIN st->m[j] = vf_from_f16(b->m);
UNPACK_BLOCKS(q4_0, u8, vf_from_f16(b->d), )
UNPACK_BLOCKS(q4_1, u8, vf_from_f16(b->d), BLOCK_MIN)
UNPACK_BLOCKS(q5_0, u8, vf_from_f16(b->d), )
UNPACK_BLOCKS(q5_1, u8, vf_from_f16(b->d), BLOCK_MIN)
UNPACK_BLOCKS(q8_0, s8, vf_from_f16(b->d), )
UNPACK_BLOCKS(iq4_nl, s8, vf_from_f16(b->d), )
UNPACK_BLOCKS(mxfp4, u8, half_e8m0(b->e), )

#define UNPACK_SUPER(name, DOT, MORE)                                                                                  \
    EI_INLINE void unpack_##name(UNPACK_ARGUMENTS) {                                                                   \
        const x_##name *b = blocks;                                                                                    \
        fetch_block(b + 1, sizeof *b);                                                                                 \
        for (int j = 0; j < 8; j++) PUT_32(name, b, j, j, DOT);                                                        \
        scales_##name(b, &st->s);                                                                                      \
        st->d[0] = vf_from_f16(b->d);                                                                                  \
        MORE                                                                                                           \
    }
#define SUPER_DMIN st->m[0] = vf_from_f16(b->dmin);
/* a scale for 32 serves as two for 16 */
EI_INLINE void spread_scales(super *s) {
    for (int j = 15; j > 0; j--)
        s->by[j] = s->by[j / 2], s->scale[j] = s->scale[j / 2], s->biased[j] = s->biased[j / 2];
}
UNPACK_SUPER(q2_k, u8, SUPER_DMIN)
UNPACK_SUPER(q3_k, u8, )
UNPACK_SUPER(q4_k, u8, SUPER_DMIN)
UNPACK_SUPER(q5_k, u8, SUPER_DMIN)
UNPACK_SUPER(q6_k, u8, )
UNPACK_SUPER(tq2_0, u8, )
UNPACK_SUPER(iq4_xs, s8, spread_scales(&st->s);)

EI_INLINE void unpack_nvfp4(UNPACK_ARGUMENTS) {
    const x_nvfp4 *b = blocks;
    for (int j = 0; j < st->n_blocks; j++) {
        PUT_32(nvfp4, b + j / 2, j % 2, j, u8);
        for (int half = 0; half < 2; half++) st->s.scale[2 * j + half] = half_ue4m3(b[j / 2].d[2 * (j % 2) + half]);
    }
}

/* Codebook formats are unpacked in plain C. */
EI_INLINE void put_codes(stretch *st, const ei_codes *codes, const int fine) {
    for (int i = 0; i < STRETCH / 4; i++) put_group(st, i, vb_signed(vb_load(codes->codes[i])), 1, fine);
    for (int j = 0; j < 16; j++) {
        vi c = vi_from_u8(codes->scales[j]);
        st->s.by[j] = vs_from_u16(c);
        st->s.scale[j] = vf_from_vi(c);
        st->s.biased[j] = vf_mul(st->s.scale[j], vf_set(EI_SIGNED_BIAS));
    }
    st->d[0] = vf_load(codes->w);
}

/* ---- many columns ---- */

/* out = a group by n columns of whole tiles; PER blocks of the format are a stretch. */
#define WIDE(name, core, precision, fine, PER, BIAS)                                                                   \
    static EI_APART void wide_##name##_##precision(const void *group, const ei_acts *acts, int32_t token, int32_t n,   \
                                                   float *out) {                                                       \
        stretch st __attribute__((aligned(64)));                                                                       \
        const x_##name *b = group;                                                                                     \
        st.bias = BIAS;                                                                                                \
        memset(out, 0, (size_t)n * EI_LANES * sizeof *out);                                                            \
        for (int32_t k = 0; k < acts->width; k += STRETCH, b += PER) {                                                 \
            st.n_blocks = min_i32(STRETCH, acts->width - k) / EI_BLOCK;                                                \
            unpack_##name(&st, b, fine);                                                                               \
            tiles_##core##_##precision(&st, acts, k, token, n, out);                                                   \
        }                                                                                                              \
    }

/* ---- codebooks: one body for all of them; what differs is behind `unpack` ---- */

typedef void (*unpack_fn)(const void *rows, int32_t n_rows, ei_codes *out);

/* Fewer columns than a tile by a stretch of signed codes. */
#define FEW_COLUMNS(precision, fine)                                                                                   \
    static void few_##precision(const stretch *st, const ei_acts *acts, int32_t k, int32_t token, int32_t n,           \
                                float *out) {                                                                          \
        for (int32_t width; n; n -= width, token += width, out += EI_LANES * width) {                                  \
            columns c = columns_at(acts, token, k);                                                                    \
            width = WIDTH_OF(n);                                                                                       \
            if (width == 1) core_super_signed(st, c, out, 1, fine, 0);                                                 \
            IF_2(if (width == 2) core_super_signed(st, c, out, 2, fine, 0);)                                           \
            IF_4(if (width == 4) core_super_signed(st, c, out, 4, fine, 0);)                                           \
        }                                                                                                              \
    }
FEW_COLUMNS(coarse, 0)
FEW_COLUMNS(fine, 1)

/* Their unpacking is too long to do for each few columns. */
#define CODEBOOK_COLUMNS(precision, fine)                                                                              \
    static void codebook_##precision(unpack_fn unpack, size_t block_bytes, const void *group, const ei_acts *acts,     \
                                     int32_t token, int32_t n, float *out) {                                           \
        ei_codes codes __attribute__((aligned(64)));                                                                   \
        stretch st __attribute__((aligned(64)));                                                                       \
        const uint8_t *rows = group;                                                                                   \
        int32_t wide = n - n % EI_TILE;                                                                                \
        memset(out, 0, (size_t)n * EI_LANES * sizeof *out);                                                            \
        for (int32_t k = 0; k < acts->width; k += STRETCH, rows += EI_LANES * block_bytes) {                           \
            unpack(rows, EI_LANES, &codes);                                                                            \
            put_codes(&st, &codes, fine);                                                                              \
            tiles_super_signed_##precision(&st, acts, k, token, wide, out);                                            \
            if (n > wide) few_##precision(&st, acts, k, token + wide, n - wide, out + EI_LANES * wide);                \
        }                                                                                                              \
    }
CODEBOOK_COLUMNS(coarse, 0)
CODEBOOK_COLUMNS(fine, 1)
