/* edgeinfer/csrc/ops/matmul_template.h: one matmul kernel per format: a group of 16 rows by tokens.
 *
 * The including file defines EI_ISA, EI_FN and the verbs (isa/scalar_verbs.h). The law is in formats.h.
 * Rows stand in lanes, so nothing is ever reduced across lanes. A few columns are met by the codes as they are unpacked
 * (here); many of them by codes that were unpacked beforehand (matmul_wide_template.h). `n_columns` is a constant after
 * inlining: each count is a copy of its own.
 */
#include "matmul_codes_template.h"

typedef struct {
    const int8_t *q, *low;
    const int16_t *words;
    const float *d, *sums, *ds, *x;
    size_t stride; /* columns of the tile */
} columns;

/* From k on (a multiple of 32, or any for x alone), the columns of a tile from `token` on. */
EI_INLINE columns columns_at(const ei_acts *acts, int32_t token, int32_t k) {
    int32_t column = token % EI_TILE, first = token - column, left = acts->n_tokens - first;
    columns c = {.stride = left < EI_TILE ? (size_t)left : EI_TILE};
    size_t start = (size_t)first * (size_t)acts->width + (size_t)k * c.stride;
    if (acts->q) c.q = acts->q + start + 4 * column;
    if (acts->low) c.low = acts->low + start + 4 * column;
    if (acts->words) c.words = acts->words + start + 4 * column;
    if (acts->d) {
        c.d = acts->d + start / EI_RUN_LEN + column;
        c.sums = acts->sums + start / EI_RUN_LEN + column;
        c.ds = acts->ds + start / EI_BLOCK + column;
    }
    if (acts->x) c.x = acts->x + start + column;
    return c;
}

/* How many of n columns of a tile are taken together, and code for a width that there is. */
#define WIDTH_OF(n) ((n) >= EI_MAX_COLUMNS ? EI_MAX_COLUMNS : (n) >= 4 ? 4 : (n) >= 2 ? 2 : 1)
#if EI_MAX_COLUMNS >= 2
#define IF_2(...) __VA_ARGS__
#else
#define IF_2(...)
#endif
#if EI_MAX_COLUMNS >= 4
#define IF_4(...) __VA_ARGS__
#else
#define IF_4(...)
#endif
#if EI_MAX_COLUMNS >= 8
#define IF_8(...) __VA_ARGS__
#else
#define IF_8(...)
#endif

/* ---- reading ahead ---- */

/* So many columns are bound by memory. What the hardware fetches by itself does not keep up with a loop that computes,
 * and one stream is slower than several that lie far apart: while a block is computed, a quarter of a block is asked
 * for at each of the EI_STREAMS places the caller names. Into L2: L1 holds what is being read. */
#define FETCHES (n_columns <= EI_FEW_COLUMNS)

/* Part `part` of `parts` of the lines that belong to a block of so many bytes. */
EI_INLINE void fetch_part(const char *const *at, size_t bytes, int part, int parts) {
    size_t lines = (bytes / EI_STREAMS / (size_t)parts + 63) / 64, first = lines * (size_t)part;
    EI_UNROLL for (int s = 0; s < EI_STREAMS; s++) {
        EI_UNROLL for (size_t i = 0; i < lines; i++) __builtin_prefetch(at[s] + 64 * (first + i), 0, 2);
    }
}

#define NEXT_FETCH                                                                                                     \
    if (FETCHES) { EI_UNROLL for (int s = 0; s < EI_STREAMS; s++) fetch_at[s] += sizeof *b / EI_STREAMS; }

/* ---- runs of 16 ---- */

#define EACH_COLUMN EI_UNROLL for (int t = 0; t < n_columns; t++)

/* A format: what its kernels must know besides the unpacking.
 *   BOUND   the largest |code|, with its bias
 *   BIAS    what the codes are too large by
 *   DOT     u8 or s8: which products its codes take */
#define IS_SIGNED_u8    0
#define IS_SIGNED_s8    1
#define IS_SIGNED(kind) EI_JOIN(IS_SIGNED, kind)
#define WORDS_OF(kind)  EI_JOIN(vw_from, kind)
/* Words suit signed codes, which bytes can be multiplied by only with their signs moved; few columns do not pay for
 * widening the weights. */
#define USES_WORDS(kind) (EI_FINE_WORDS && (fine || (IS_SIGNED(kind) && n_columns > EI_FEW_COLUMNS)))

/* isum[t] = integer dot of run `half` of 32 elements (k-groups 4*half .. +3), bias included.
 * Fine activations are words, or two planes 128*q + low that the codes meet one after the other.
 * BYTES, WORDS: k-group i as codes or, where by_words, as words. SIGNED: whether BYTES are.
 * FLUSH(sum, run): va_flush, or one that multiplies by the sub-block's scale besides. */
#define RUN_OF_16(BYTES, WORDS, SIGNED, half, BOUND, FLUSH)                                                            \
    vi isum[EI_MAX_COLUMNS];                                                                                           \
    EACH_COLUMN isum[t] = vi_zero();                                                                                   \
    if (by_words) {                                                                                                    \
        EI_UNROLL for (int i = 4 * (half); i < 4 * (half) + 4; i++) {                                                  \
            vw w = WORDS;                                                                                              \
            EACH_COLUMN isum[t] = vw_dot(isum[t], w, c.words + 4 * ((size_t)i * stride + (size_t)t));                  \
        }                                                                                                              \
    } else {                                                                                                           \
        EI_UNROLL for (int plane = 0; plane <= fine; plane++) {                                                        \
            const int8_t *x = plane ? c.low : c.q;                                                                     \
            if (plane) EACH_COLUMN isum[t] = vi_shl(isum[t], 7);                                                       \
            EI_UNROLL for (int first = 4 * (half); first < 4 * (half) + 4; first += EI_RUN(BOUND, 4)) {                \
                va run[EI_MAX_COLUMNS];                                                                                \
                EACH_COLUMN run[t] = va_zero();                                                                        \
                EI_UNROLL for (int i = first; i < first + EI_RUN(BOUND, 4); i++) {                                     \
                    vb w = BYTES;                                                                                      \
                    EACH_COLUMN {                                                                                      \
                        const int8_t *at = x + 4 * ((size_t)i * stride + (size_t)t);                                   \
                        run[t] = (SIGNED) ? va_dot_s8(run[t], w, at) : va_dot_u8(run[t], w, at);                       \
                    }                                                                                                  \
                }                                                                                                      \
                EACH_COLUMN isum[t] = FLUSH(isum[t], run[t]);                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
#define GROUP_RUN(name, b, j, half, BOUND, DOT, FLUSH)                                                                 \
    RUN_OF_16(group_##name(b, j, i), WORDS_OF(DOT)(group_##name(b, j, i)), IS_SIGNED(DOT), half, BOUND, FLUSH)

/* The bias is taken back after the conversion to float where that is exact: up to 64 * 127*128 * 16 < 2^24. */
#define UNBIASED(BOUND, HAS_BIAS, BIAS, half)                                                                          \
    vf dots[EI_MAX_COLUMNS];                                                                                           \
    EACH_COLUMN {                                                                                                      \
        vf sum = vf_set(c.sums[(half) * stride + (size_t)t]);                                                          \
        bool as_integer = fine && (BOUND) > 64;                                                                        \
        if ((HAS_BIAS) && as_integer) isum[t] = vi_sub(isum[t], vi_round(vf_mul(vf_set(BIAS), sum)));                  \
        dots[t] = vf_from_vi(isum[t]);                                                                                 \
        if ((HAS_BIAS) && !as_integer) dots[t] = vf_fnma(vf_set(BIAS), sum, dots[t]);                                  \
    }

#define NEXT_32                                                                                                        \
    if (by_words) c.words += 32 * stride;                                                                              \
    if (!by_words) c.q += 32 * stride;                                                                                 \
    if (!by_words && fine) c.low += 32 * stride;                                                                       \
    c.d += 2 * stride, c.sums += 2 * stride, c.ds += stride

#define KERNEL_BEGIN(name)                                                                                             \
    const x_##name *b = group;                                                                                         \
    columns c = columns_at(acts, token, 0);                                                                            \
    const size_t stride = whole ? EI_TILE : c.stride;                                                                  \
    const char *fetch_at[EI_STREAMS] = {fetch[0], fetch[1], fetch[2], fetch[3]};                                       \
    vf acc[EI_MAX_COLUMNS];                                                                                            \
    EACH_COLUMN acc[t] = vf_zero();
#define KERNEL_END EACH_COLUMN vf_store(out + 16 * t, acc[t]);
#define KERNEL_ARGUMENTS                                                                                               \
    const void *group, const char *const *fetch, const ei_acts *acts, int32_t token, float *out, const int n_columns,  \
        const int fine, const int whole

/* ---- blocks of 32 ---- */

/* sub[t] = dots_a * d_a, then fma(dots_b, d_b), of the block of 32 at b */
#define SUB_32(name, BOUND, DOT, BIAS)                                                                                 \
    vf sub[EI_MAX_COLUMNS];                                                                                            \
    EI_UNROLL for (int half = 0; half < 2; half++) {                                                                   \
        GROUP_RUN(name, b, 0, half, BOUND, DOT, va_flush)                                                              \
        UNBIASED(BOUND, BIAS, BIAS, half)                                                                              \
        EACH_COLUMN {                                                                                                  \
            vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);                                                     \
            sub[t] = half ? vf_fma(dots[t], d, sub[t]) : vf_mul(dots[t], d);                                           \
        }                                                                                                              \
    }

#define BLOCK32(name, BOUND, DOT, BIAS, MIN)                                                                           \
    EI_INLINE void block32_##name(KERNEL_ARGUMENTS) {                                                                  \
        KERNEL_BEGIN(name)                                                                                             \
        const int by_words = USES_WORDS(DOT);                                                                          \
        for (int32_t k = acts->width / EI_BLOCK; k > 0; k--) {                                                         \
            if (FETCHES) fetch_part(fetch_at, sizeof *b, 0, 1);                                                        \
            SUB_32(name, BOUND, DOT, BIAS)                                                                             \
            vf scale = vf_from_f16(b->d);                                                                              \
            EACH_COLUMN acc[t] = vf_fma(sub[t], scale, acc[t]);                                                        \
            MIN NEXT_FETCH b++;                                                                                        \
            NEXT_32;                                                                                                   \
        }                                                                                                              \
        KERNEL_END                                                                                                     \
    }
#define ADD_MIN                                                                                                        \
    vf min = vf_from_f16(b->m);                                                                                        \
    EACH_COLUMN acc[t] = vf_fma(min, vf_set(c.ds[t]), acc[t]);

BLOCK32(q4_0, 15, u8, 8, )
BLOCK32(q4_1, 15, u8, 0, ADD_MIN)
BLOCK32(q5_0, 31, u8, 16, )
BLOCK32(q5_1, 31, u8, 0, ADD_MIN)
BLOCK32(q8_0, 128, s8, EI_SIGNED_BIAS, )
BLOCK32(iq4_nl, 127, s8, EI_SIGNED_BIAS, )

/* ---- super-blocks of 256 ---- */

/* One run of a sub-block, u = fma(scale * dot, d, u). With 8-bit activations scale * dot is an exact float however it
 * comes about: below 64 * 127 * 16 * 128, and a bias times the scale times the sum is as well. */
#define SCALED_FLUSH(sum, run) va_flush_by(sum, run, s.by[at])
#define SCALED_RUN(name, half, AT, BOUND, DOT, BIAS)                                                                   \
    const int at = AT;                                                                                                 \
    vf scaled[EI_MAX_COLUMNS];                                                                                         \
    if (fine || by_words) {                                                                                            \
        GROUP_RUN(name, b, j, half, BOUND, DOT, va_flush)                                                              \
        UNBIASED(BOUND, BIAS, BIAS, half)                                                                              \
        EACH_COLUMN scaled[t] = vf_mul(dots[t], s.scale[at]);                                                          \
    } else {                                                                                                           \
        GROUP_RUN(name, b, j, half, BOUND, DOT, SCALED_FLUSH)                                                          \
        EACH_COLUMN {                                                                                                  \
            scaled[t] = vs_scaled(isum[t], s.by[at]);                                                                  \
            if (BIAS) scaled[t] = vf_fnma(s.biased[at], vf_set(c.sums[(half) * stride + (size_t)t]), scaled[t]);       \
        }                                                                                                              \
    }                                                                                                                  \
    EACH_COLUMN {                                                                                                      \
        vf d = vf_set(c.d[(size_t)(half) * stride + (size_t)t]);                                                       \
        u[t] = vf_fma(scaled[t], d, u[t]);                                                                             \
    }

#define SUPER(name, DOT, SUB_BLOCKS, SUPER_MIN)                                                                        \
    EI_INLINE void super_##name(KERNEL_ARGUMENTS) {                                                                    \
        KERNEL_BEGIN(name)                                                                                             \
        const int by_words = USES_WORDS(DOT);                                                                          \
        for (int32_t k = acts->width / 256; k > 0; k--) {                                                              \
            super s;                                                                                                   \
            vf u[EI_MAX_COLUMNS], v[EI_MAX_COLUMNS];                                                                   \
            scales_##name(b, &s);                                                                                      \
            EACH_COLUMN u[t] = v[t] = vf_zero();                                                                       \
            for (int j = 0; j < 8; j++) {                                                                              \
                if (FETCHES) fetch_part(fetch_at, sizeof *b, j, 8);                                                    \
                SUB_BLOCKS                                                                                             \
                NEXT_32;                                                                                               \
            }                                                                                                          \
            vf scale = vf_from_f16(b->d);                                                                              \
            EACH_COLUMN acc[t] = vf_fma(u[t], scale, acc[t]);                                                          \
            SUPER_MIN NEXT_FETCH b++;                                                                                  \
        }                                                                                                              \
        KERNEL_END                                                                                                     \
    }
/* one sub-block of 32 with its scale; MIN: its min */
#define ONE_32(name, BOUND, DOT, BIAS, MIN)                                                                            \
    EI_UNROLL for (int half = 0; half < 2; half++){SCALED_RUN(name, half, j, BOUND, DOT, BIAS)} MIN
#define MIN_32 EACH_COLUMN v[t] = vf_fma(s.min[j], vf_set(c.ds[t]), v[t]);
/* two sub-blocks of 16, each with its scale */
#define TWO_16(name, BOUND, DOT, BIAS, MIN)                                                                            \
    EI_UNROLL for (int half = 0; half < 2; half++) {                                                                   \
        SCALED_RUN(name, half, 2 * j + half, BOUND, DOT, BIAS)                                                         \
        MIN                                                                                                            \
    }
#define MIN_16                                                                                                         \
    EACH_COLUMN {                                                                                                      \
        vf ds =                                                                                                        \
            vf_mul(vf_set(c.d[(size_t)half * stride + (size_t)t]), vf_set(c.sums[(size_t)half * stride + (size_t)t])); \
        v[t] = vf_fma(s.min[at], ds, v[t]);                                                                            \
    }
#define END_MIN                                                                                                        \
    vf dmin = vf_from_f16(b->dmin);                                                                                    \
    EACH_COLUMN acc[t] = vf_fnma(v[t], dmin, acc[t]);

SUPER(q2_k, u8, TWO_16(q2_k, 3, u8, 0, MIN_16), END_MIN)
SUPER(q3_k, u8, TWO_16(q3_k, 7, u8, 4, ), )
SUPER(q4_k, u8, ONE_32(q4_k, 15, u8, 0, MIN_32), END_MIN)
SUPER(q5_k, u8, ONE_32(q5_k, 31, u8, 0, MIN_32), END_MIN)
SUPER(q6_k, u8, TWO_16(q6_k, 63, u8, 32, ), )
SUPER(iq4_xs, s8, ONE_32(iq4_xs, 127, s8, EI_SIGNED_BIAS, ), )
SUPER(tq2_0, u8, TWO_16(tq2_0, 3, u8, 1, ), )

/* ---- float weights ---- */

#define FLOATS(name, LOAD)                                                                                             \
    EI_INLINE void floats_##name(KERNEL_ARGUMENTS) {                                                                   \
        KERNEL_BEGIN(name)                                                                                             \
        (void)fine;                                                                                                    \
        for (int32_t k = acts->width; k > 0; k--, c.x += stride) {                                                     \
            if (FETCHES && k % 8 == 0) fetch_part(fetch_at, 8 * sizeof *b, 0, 1);                                      \
            vf w = LOAD(b->w);                                                                                         \
            EACH_COLUMN acc[t] = vf_fma(w, vf_set(c.x[t]), acc[t]);                                                    \
            NEXT_FETCH                                                                                                 \
            b++;                                                                                                       \
        }                                                                                                              \
        KERNEL_END                                                                                                     \
    }
FLOATS(f32, vf_load)
FLOATS(f16, vf_from_f16)
FLOATS(bf16, vf_from_bf16)

/* ---- 4-bit floats ---- */

EI_INLINE void float4_mxfp4(KERNEL_ARGUMENTS) {
    KERNEL_BEGIN(mxfp4)
    const int by_words = USES_WORDS(u8);
    for (int32_t k = acts->width / EI_BLOCK; k > 0; k--) {
        if (FETCHES) fetch_part(fetch_at, sizeof *b, 0, 1);
        SUB_32(mxfp4, 2 * EI_FP4_BIAS, u8, EI_FP4_BIAS)
        vf scale = half_e8m0(b->e);
        EACH_COLUMN acc[t] = vf_fma(sub[t], scale, acc[t]);
        NEXT_FETCH
        b++;
        NEXT_32;
    }
    KERNEL_END
}
EI_INLINE void float4_nvfp4(KERNEL_ARGUMENTS) {
    KERNEL_BEGIN(nvfp4)
    const int by_words = USES_WORDS(u8);
    for (int32_t k = acts->width / 64; k > 0; k--) {
        for (int j = 0; j < 2; j++) {
            if (FETCHES) fetch_part(fetch_at, sizeof *b, j, 2);
            EI_UNROLL for (int half = 0; half < 2; half++) {
                GROUP_RUN(nvfp4, b, j, half, 2 * EI_FP4_BIAS, u8, va_flush)
                UNBIASED(2 * EI_FP4_BIAS, 1, EI_FP4_BIAS, half)
                vf scale = half_ue4m3(b->d[2 * j + half]);
                EACH_COLUMN {
                    vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);
                    acc[t] = vf_fma(vf_mul(dots[t], d), scale, acc[t]);
                }
            }
            NEXT_32;
        }
        NEXT_FETCH
        b++;
    }
    KERNEL_END
}

#include "matmul_wide_template.h"

#include "matmul_table_template.h"
