/* edgeinfer/csrc/ops/matmul_template.h: one matmul kernel per format: a tile of groups of 16 rows by tokens.
 *
 * The including file defines EI_ISA, EI_FN and the verbs (isa/scalar_verbs.h). The law is in formats.h.
 * Rows stand in lanes, so nothing is ever reduced across lanes; a weight k-group is unpacked once and meets every
 * column's activations. `n_columns` is a constant after inlining: each count is its own function.
 */
#include "matmul_codes_template.h"

typedef struct {
    const int8_t *q, *low;
    const int16_t *words;
    const float *d, *sums, *ds, *x;
    size_t stride; /* columns of the tile */
} columns;

EI_INLINE columns columns_at(const ei_acts *acts, int32_t tile, int32_t column) {
    int32_t first = tile * EI_TILE, left = acts->n_tokens - first;
    size_t start = (size_t)first * (size_t)acts->width;
    columns c = {.stride = left < EI_TILE ? (size_t)left : EI_TILE};
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
#define IS_SIGNED_u8 0
#define IS_SIGNED_s8 1
/* Words suit signed codes, which bytes can be multiplied by only with their signs moved; few columns do not pay for
 * widening the weights. */
#define USES_WORDS(kind) (EI_FINE_WORDS && (fine || (EI_JOIN(IS_SIGNED, kind) && n_columns > EI_FEW_COLUMNS)))
#define DOT_OF(kind)     EI_JOIN(va_dot, kind)
#define WORDS_OF(kind)   EI_JOIN(vw_from, kind)

/* isum[t] = integer dot of run `half` of 32 elements (k-groups 4*half .. +3), bias included.
 * Fine activations are words, or two planes 128*q + low that the codes meet one after the other.
 * FLUSH(sum, run): va_flush, or one that multiplies by the sub-block's scale besides. */
#define RUN_OF_16(name, b, j, half, BOUND, DOT, FLUSH)                                                                 \
    vi isum[EI_MAX_COLUMNS];                                                                                           \
    EACH_COLUMN isum[t] = vi_zero();                                                                                   \
    if (USES_WORDS(DOT)) {                                                                                             \
        EI_UNROLL for (int i = 4 * (half); i < 4 * (half) + 4; i++) {                                                  \
            vw w = WORDS_OF(DOT)(group_##name(b, j, i));                                                               \
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
                    vb w = group_##name(b, j, i);                                                                      \
                    EACH_COLUMN run[t] = DOT_OF(DOT)(run[t], w, x + 4 * ((size_t)i * stride + (size_t)t));             \
                }                                                                                                      \
                EACH_COLUMN isum[t] = FLUSH(isum[t], run[t]);                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }

/* The bias is taken back after the conversion to float where that is exact: up to 64 * 127*128 * 16 < 2^24. */
#define UNBIASED(BOUND, BIAS, half)                                                                                    \
    vf dots[EI_MAX_COLUMNS];                                                                                           \
    EACH_COLUMN {                                                                                                      \
        vf sum = vf_set(c.sums[(half) * stride + (size_t)t]);                                                          \
        bool as_integer = fine && (BOUND) > 64;                                                                        \
        if (BIAS && as_integer) isum[t] = vi_sub(isum[t], vi_round(vf_mul(vf_set(BIAS), sum)));                        \
        dots[t] = vf_from_vi(isum[t]);                                                                                 \
        if (BIAS && !as_integer) dots[t] = vf_fnma(vf_set(BIAS), sum, dots[t]);                                        \
    }

#define NEXT_32                                                                                                        \
    if (!(fine && EI_FINE_WORDS)) c.q += 32 * stride;                                                                  \
    if (fine && !EI_FINE_WORDS) c.low += 32 * stride;                                                                  \
    if (EI_FINE_WORDS && c.words) c.words += 32 * stride;                                                              \
    c.d += 2 * stride, c.sums += 2 * stride, c.ds += stride

#define KERNEL_BEGIN(name)                                                                                             \
    const x_##name *b = group;                                                                                         \
    columns c = columns_at(acts, tile, column);                                                                        \
    const size_t stride = whole ? EI_TILE : c.stride;                                                                  \
    const char *fetch_at[EI_STREAMS] = {fetch[0], fetch[1], fetch[2], fetch[3]};                                       \
    vf acc[EI_MAX_COLUMNS];                                                                                            \
    EACH_COLUMN acc[t] = vf_zero();
#define KERNEL_END EACH_COLUMN vf_store(out + 16 * t, acc[t]);
#define KERNEL_ARGUMENTS                                                                                               \
    const void *group, const char *const *fetch, const ei_acts *acts, int32_t tile, int32_t column, float *out,        \
        const int n_columns, const int fine, const int whole

/* ---- blocks of 32 ---- */

/* sub[t] = dots_a * d_a, then fma(dots_b, d_b), of the block of 32 at b */
#define SUB_32(name, BOUND, DOT, BIAS)                                                                                 \
    vf sub[EI_MAX_COLUMNS];                                                                                            \
    EI_UNROLL for (int half = 0; half < 2; half++) {                                                                   \
        RUN_OF_16(name, b, 0, half, BOUND, DOT, va_flush)                                                              \
        UNBIASED(BOUND, BIAS, half)                                                                                    \
        EACH_COLUMN {                                                                                                  \
            vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);                                                     \
            sub[t] = half ? vf_fma(dots[t], d, sub[t]) : vf_mul(dots[t], d);                                           \
        }                                                                                                              \
    }

#define BLOCK32(name, BOUND, DOT, BIAS, MIN)                                                                           \
    EI_INLINE void block32_##name(KERNEL_ARGUMENTS) {                                                                  \
        KERNEL_BEGIN(name)                                                                                             \
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
    if (fine || USES_WORDS(DOT)) {                                                                                     \
        RUN_OF_16(name, b, j, half, BOUND, DOT, va_flush)                                                              \
        UNBIASED(BOUND, BIAS, half)                                                                                    \
        EACH_COLUMN scaled[t] = vf_mul(dots[t], s.scale[at]);                                                          \
    } else {                                                                                                           \
        RUN_OF_16(name, b, j, half, BOUND, DOT, SCALED_FLUSH)                                                          \
        EACH_COLUMN {                                                                                                  \
            scaled[t] = vs_scaled(isum[t], s.by[at]);                                                                  \
            if (BIAS) scaled[t] = vf_fnma(s.biased[at], vf_set(c.sums[(half) * stride + (size_t)t]), scaled[t]);       \
        }                                                                                                              \
    }                                                                                                                  \
    EACH_COLUMN {                                                                                                      \
        vf d = vf_set(c.d[(size_t)(half) * stride + (size_t)t]);                                                       \
        u[t] = vf_fma(scaled[t], d, u[t]);                                                                             \
    }

#define SUPER(name, SUB_BLOCKS, SUPER_MIN)                                                                             \
    EI_INLINE void super_##name(KERNEL_ARGUMENTS) {                                                                    \
        KERNEL_BEGIN(name)                                                                                             \
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

SUPER(q2_k, TWO_16(q2_k, 3, u8, 0, MIN_16), END_MIN)
SUPER(q3_k, TWO_16(q3_k, 7, u8, 4, ), )
SUPER(q4_k, ONE_32(q4_k, 15, u8, 0, MIN_32), END_MIN)
SUPER(q5_k, ONE_32(q5_k, 31, u8, 0, MIN_32), END_MIN)
SUPER(q6_k, TWO_16(q6_k, 63, u8, 32, ), )
SUPER(iq4_xs, ONE_32(iq4_xs, 127, s8, EI_SIGNED_BIAS, ), )

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

#include "matmul_codebook_template.h"

/* ---- one function per format, precision and number of columns ---- */

#define COLUMNS_NAME(name, precision, n) EI_FN(matmul_##name##_##precision##_##n)
/* The widest kernel knows that most tiles are whole: its activations then stand at constant distances. */
#define COLUMNS_FN(n, kind, name, precision, fine)                                                                     \
    static void COLUMNS_NAME(name, precision, n)(const void *group, const char *const *fetch, const ei_acts *acts,     \
                                                 int32_t tile, int32_t column, float *out) {                           \
        if (EI_WHOLE_TILES && n == EI_MAX_COLUMNS && acts->n_tokens - tile * EI_TILE >= EI_TILE)                       \
            kind##_##name(group, fetch, acts, tile, column, out, n, fine, 1);                                          \
        else                                                                                                           \
            kind##_##name(group, fetch, acts, tile, column, out, n, fine, n == EI_TILE);                               \
    }
#if EI_MAX_COLUMNS == 8
#define EACH_COUNT(X, ...)                                                                                             \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__)                                                                                                  \
    X(3, __VA_ARGS__)                                                                                                  \
    X(4, __VA_ARGS__)                                                                                                  \
    X(5, __VA_ARGS__)                                                                                                  \
    X(6, __VA_ARGS__)                                                                                                  \
    X(7, __VA_ARGS__)                                                                                                  \
    X(8, __VA_ARGS__)
#elif EI_MAX_COLUMNS == 4
#define EACH_COUNT(X, ...)                                                                                             \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__)                                                                                                  \
    X(3, __VA_ARGS__)                                                                                                  \
    X(4, __VA_ARGS__)
#else
#define EACH_COUNT(X, ...) X(1, __VA_ARGS__)
#endif
#define INTEGER_COLUMNS(kind, name)                                                                                    \
    EACH_COUNT(COLUMNS_FN, kind, name, coarse, 0)                                                                      \
    EACH_COUNT(COLUMNS_FN, kind, name, fine, 1)

/* formats whose widest coarse kernel a level with a matrix product has by pairs of columns */
#ifdef EI_PAIRS
#include "matmul_pairs_template.h"
#define EACH_UNPAIRED(X, ...)                                                                                          \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__)                                                                                                  \
    X(3, __VA_ARGS__)
#else
#define EACH_UNPAIRED EACH_COUNT
#endif
#define PAIRED_COLUMNS(kind, name)                                                                                     \
    EACH_UNPAIRED(COLUMNS_FN, kind, name, coarse, 0)                                                                   \
    EACH_COUNT(COLUMNS_FN, kind, name, fine, 1)

EACH_COUNT(COLUMNS_FN, floats, f32, coarse, 0)
EACH_COUNT(COLUMNS_FN, floats, f16, coarse, 0)
EACH_COUNT(COLUMNS_FN, floats, bf16, coarse, 0)
PAIRED_COLUMNS(block32, q4_0)
PAIRED_COLUMNS(block32, q4_1)
PAIRED_COLUMNS(block32, q5_0)
PAIRED_COLUMNS(block32, q5_1)
PAIRED_COLUMNS(block32, q8_0)
PAIRED_COLUMNS(block32, iq4_nl)
PAIRED_COLUMNS(super, q2_k)
PAIRED_COLUMNS(super, q3_k)
PAIRED_COLUMNS(super, q4_k)
PAIRED_COLUMNS(super, q5_k)
PAIRED_COLUMNS(super, q6_k)
PAIRED_COLUMNS(super, iq4_xs)
INTEGER_COLUMNS(super, tq2_0)
INTEGER_COLUMNS(float4, mxfp4)
INTEGER_COLUMNS(float4, nvfp4)
EACH_COUNT(CODEBOOK_BODY, coarse, 0)
EACH_COUNT(CODEBOOK_BODY, fine, 1)
#define ROW(NAME, name)                                                                                                \
    EACH_COUNT(CODEBOOK_FN, name, coarse)                                                                              \
    EACH_COUNT(CODEBOOK_FN, name, fine)
EI_CODEBOOK_FORMATS(ROW)
#undef ROW

#define COLUMNS_ENTRY(n, name, precision) COLUMNS_NAME(name, precision, n),
#define COLUMNS_OF(name, precision)       {EACH_COUNT(COLUMNS_ENTRY, name, precision)}
#define FLOAT_ROW(name)                   {COLUMNS_OF(name, coarse), COLUMNS_OF(name, coarse)}

const ei_matmul_fn EI_FN(matmul)[EI_N_FORMATS][2][EI_TILE] = {[EI_F32] = FLOAT_ROW(f32),
                                                              [EI_F16] = FLOAT_ROW(f16),
                                                              [EI_BF16] = FLOAT_ROW(bf16),
#define ROW(NAME, name) [EI_##NAME] = {COLUMNS_OF(name, coarse), COLUMNS_OF(name, fine)},
                                                              EI_INTEGER_FORMATS(ROW)
#undef ROW
};
