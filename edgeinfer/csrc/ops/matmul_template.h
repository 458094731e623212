/* edgeinfer/csrc/ops/matmul_template.h: one matmul kernel per format: 16 rows of X by 1 .. EI_MAX_COLUMNS tokens.
 *
 * The including file defines EI_ISA, EI_FN and the verbs (isa/scalar_verbs.h). The law is in formats.h.
 * Rows stand in lanes, so nothing is ever reduced across lanes; a weight k-group is unpacked once and meets
 * every column's activation dword. `n_columns` is a constant after inlining: each count is its own function.
 */

typedef struct {
    const int8_t *q, *low;
    const float *d, *sums, *ds, *x;
    int32_t stride; /* columns of the tile */
} columns;

EI_INLINE columns columns_at(const ei_acts *acts, int32_t tile, int32_t column) {
    int32_t first = tile * EI_TILE, left = acts->n_tokens - first;
    size_t start = (size_t)first * (size_t)acts->width;
    columns c = {.stride = left < EI_TILE ? left : EI_TILE};
    if (acts->q) {
        c.q = acts->q + start + 4 * column;
        c.low = acts->low ? acts->low + start + 4 * column : NULL;
        c.d = acts->d + start / EI_RUN_LEN + column;
        c.sums = acts->sums + start / EI_RUN_LEN + column;
        c.ds = acts->ds + start / EI_BLOCK + column;
    }
    if (acts->x) c.x = acts->x + start + column;
    return c;
}

/* ---- k-groups: the unsigned code (or the signed value) of 4 k of 16 rows ---- */

EI_INLINE vb nibbles(const uint8_t codes[4][64], int g) {
    return g < 4 ? vb_and(vb_load(codes[g]), 0x0f) : vb_shr_and(vb_load(codes[g - 4]), 4, 0x0f);
}
/* bit `from` of every byte, moved to bit `to` */
EI_INLINE vb bit_moved(vb x, int from, int to) {
    uint8_t mask = (uint8_t)(1 << to);
    return from == to ? vb_and(x, mask) : from < to ? vb_shl_and(x, to - from, mask) : vb_shr_and(x, from - to, mask);
}
/* bits 2g, 2g+1 of every byte, moved to bits 4, 5 */
EI_INLINE vb pair_at_4(vb x, int g) {
    return g == 2 ? vb_and(x, 0x30) : g < 2 ? vb_shl_and(x, 4 - 2 * g, 0x30) : vb_shr_and(x, 2, 0x30);
}

EI_INLINE vb group_q4_0(const x_q4_0 *b, int j, int g) {
    (void)j;
    return nibbles(b->codes, g);
}
EI_INLINE vb group_q4_1(const x_q4_1 *b, int j, int g) {
    (void)j;
    return nibbles(b->codes, g);
}
EI_INLINE vb group_q5_0(const x_q5_0 *b, int j, int g) {
    (void)j;
    return vb_or(nibbles(b->codes, g), bit_moved(vb_load(b->high), g, 4));
}
EI_INLINE vb group_q5_1(const x_q5_1 *b, int j, int g) {
    (void)j;
    return vb_or(nibbles(b->codes, g), bit_moved(vb_load(b->high), g, 4));
}
EI_INLINE vb group_q8_0(const x_q8_0 *b, int j, int g) {
    (void)j;
    return vb_signed(vb_load(b->codes[g]));
}
EI_INLINE vb group_iq4_nl(const x_iq4_nl *b, int j, int g) {
    (void)j;
    return vb_signed(vb_lookup(nibbles(b->codes, g), ei_iq4_values));
}
EI_INLINE vb group_q2_k(const x_q2_k *b, int j, int g) {
    return vb_shr_and(vb_load(b->codes[2 * j + g / 4]), 2 * (g % 4), 0x03);
}
EI_INLINE vb group_q3_k(const x_q3_k *b, int j, int g) {
    vb low = vb_shr_and(vb_load(b->codes[2 * j + g / 4]), 2 * (g % 4), 0x03);
    return vb_or(low, bit_moved(vb_load(b->high[j]), g, 2));
}
EI_INLINE vb group_q4_k(const x_q4_k *b, int j, int g) { return nibbles(b->codes[j], g); }
EI_INLINE vb group_q5_k(const x_q5_k *b, int j, int g) {
    return vb_or(nibbles(b->codes[j], g), bit_moved(vb_load(b->high[j]), g, 4));
}
EI_INLINE vb group_q6_k(const x_q6_k *b, int j, int g) {
    int run = 2 * j + g / 4, i = g % 4;
    vb low = i < 2 ? vb_and(vb_load(b->low[run][i]), 0x0f) : vb_shr_and(vb_load(b->low[run][i - 2]), 4, 0x0f);
    return vb_or(low, pair_at_4(vb_load(b->high[run]), i));
}
EI_INLINE vb group_iq4_xs(const x_iq4_xs *b, int j, int g) {
    return vb_signed(vb_lookup(nibbles(b->codes[j], g), ei_iq4_values));
}

/* ---- reading ahead ---- */

/* One token is bound by memory, and what the hardware fetches by itself does not keep up with a loop that computes:
 * without this, 1.4 times slower on Zen 3. Nearer or further, into L1 or L2, made no difference. */
enum { EI_FETCH_BYTES = 2048, EI_FETCH_COLUMNS = 2 };

/* Fetch the lines of part `part` of `parts` of the block that lies EI_FETCH_BYTES further. */
EI_INLINE void fetch_part(const void *block, size_t bytes, int part, int parts) {
    size_t from = bytes * (size_t)part / (size_t)parts / 64 * 64;
    size_t to = bytes * (size_t)(part + 1) / (size_t)parts / 64 * 64;
    EI_UNROLL for (size_t at = from; at < to; at += 64)
        __builtin_prefetch((const char *)block + EI_FETCH_BYTES + at, 0, 2);
}

/* ---- runs of 16 ---- */

/* The bias is taken back after the conversion to float where that is exact: up to 64 * 127*128 * 16 < 2^24. */
#define EI_BIAS_AS_INTEGER(BOUND) (fine && (BOUND) > 64)

/* dots[t] = integer dot of run `half` of 32 elements (k-groups 4*half .. +3) as float, the bias taken back.
 * Fine activations are 128*q + low: the codes meet q first, then low, in the same lanes. */
#define RUN_OF_16(name, j, half, BOUND, DOT, BIAS)                                                                     \
    vf dots[EI_MAX_COLUMNS];                                                                                           \
    {                                                                                                                  \
        vi isum[EI_MAX_COLUMNS];                                                                                       \
        EI_UNROLL for (int t = 0; t < n_columns; t++) isum[t] = vi_zero();                                             \
        EI_UNROLL for (int plane = 0; plane <= fine; plane++) {                                                        \
            const int8_t *x = plane ? c.low : c.q;                                                                     \
            if (plane) EI_UNROLL for (int t = 0; t < n_columns; t++) isum[t] = vi_shl(isum[t], 7);                     \
            EI_UNROLL for (int g = 0; g < 4; g += EI_RUN(BOUND, 4)) {                                                  \
                va run[EI_MAX_COLUMNS];                                                                                \
                EI_UNROLL for (int t = 0; t < n_columns; t++) run[t] = va_zero();                                      \
                EI_UNROLL for (int i = g; i < g + EI_RUN(BOUND, 4); i++) {                                             \
                    vb w = group_##name(b, j, 4 * (half) + i);                                                         \
                    EI_UNROLL for (int t = 0; t < n_columns; t++) run[t] =                                             \
                        DOT(run[t], w, x + 4 * ((size_t)(4 * (half) + i) * stride + (size_t)t));                       \
                }                                                                                                      \
                EI_UNROLL for (int t = 0; t < n_columns; t++) isum[t] = va_flush(isum[t], run[t]);                     \
            }                                                                                                          \
        }                                                                                                              \
        EI_UNROLL for (int t = 0; t < n_columns; t++) {                                                                \
            vf sum = vf_set(c.sums[(half) * stride + (size_t)t]);                                                      \
            if (BIAS && EI_BIAS_AS_INTEGER(BOUND)) isum[t] = vi_sub(isum[t], vi_round(vf_mul(vf_set(BIAS), sum)));     \
            dots[t] = vf_from_vi(isum[t]);                                                                             \
            if (BIAS && !EI_BIAS_AS_INTEGER(BOUND)) dots[t] = vf_fnma(vf_set(BIAS), sum, dots[t]);                     \
        }                                                                                                              \
    }

#define NEXT_32                                                                                                        \
    c.q += 32 * stride, c.low += fine ? 32 * stride : 0, c.d += 2 * stride, c.sums += 2 * stride, c.ds += stride

/* sub-block of 32: sub[t] = dots_a * d_a, then fma(dots_b, d_b) */
#define SUB_32(name, j, BOUND, DOT, BIAS)                                                                              \
    vf sub[EI_MAX_COLUMNS];                                                                                            \
    EI_UNROLL for (int half = 0; half < 2; half++) {                                                                   \
        RUN_OF_16(name, j, half, BOUND, DOT, BIAS)                                                                     \
        EI_UNROLL for (int t = 0; t < n_columns; t++) {                                                                \
            vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);                                                     \
            sub[t] = half ? vf_fma(dots[t], d, sub[t]) : vf_mul(dots[t], d);                                           \
        }                                                                                                              \
    }

#define KERNEL_BEGIN(name)                                                                                             \
    const x_##name *b = group;                                                                                         \
    columns c = columns_at(acts, tile, column);                                                                        \
    const size_t stride = (size_t)c.stride;                                                                            \
    vf acc[EI_MAX_COLUMNS];                                                                                            \
    EI_UNROLL for (int t = 0; t < n_columns; t++) acc[t] = vf_zero();
#define KERNEL_END EI_UNROLL for (int t = 0; t < n_columns; t++) vf_store(out + 16 * t, acc[t]);
#define KERNEL_ARGUMENTS                                                                                               \
    const void *group, const ei_acts *acts, int32_t tile, int32_t column, float *out, const int n_columns,             \
        const int fine

/* ---- blocks of 32: name, largest |code|, dot verb, what the codes are too large by, the min ---- */

#define BLOCK32(name, BOUND, DOT, BIAS, MIN)                                                                           \
    EI_INLINE void block32_##name(KERNEL_ARGUMENTS) {                                                                  \
        KERNEL_BEGIN(name)                                                                                             \
        for (int32_t k = acts->width / EI_BLOCK; k > 0; k--, b++) {                                                    \
            if (n_columns <= EI_FETCH_COLUMNS) fetch_part(b, sizeof *b, 0, 1);                                         \
            SUB_32(name, 0, BOUND, DOT, BIAS)                                                                          \
            vf scale = vf_from_f16(b->d);                                                                              \
            EI_UNROLL for (int t = 0; t < n_columns; t++) acc[t] = vf_fma(sub[t], scale, acc[t]);                      \
            MIN NEXT_32;                                                                                               \
        }                                                                                                              \
        KERNEL_END                                                                                                     \
    }
#define ADD_MIN                                                                                                        \
    vf min = vf_from_f16(b->m);                                                                                        \
    EI_UNROLL for (int t = 0; t < n_columns; t++) acc[t] = vf_fma(min, vf_set(c.ds[t]), acc[t]);

BLOCK32(q4_0, 15, va_dot_u8, 8, )
BLOCK32(q4_1, 15, va_dot_u8, 0, ADD_MIN)
BLOCK32(q5_0, 31, va_dot_u8, 16, )
BLOCK32(q5_1, 31, va_dot_u8, 0, ADD_MIN)
BLOCK32(q8_0, 128, va_dot_s8, EI_SIGNED_BIAS, )
BLOCK32(iq4_nl, 127, va_dot_s8, EI_SIGNED_BIAS, )

/* ---- super-blocks of 256 ---- */

/* per sub-block of 32 or 16 */
typedef struct {
    vf scale[16], min[16];
} super;

EI_INLINE vf byte_of(vi packed, int i) { return vf_from_vi(vi_and(vi_shr(packed, 8 * i), vi_set(0xff))); }

/* the 6-bit scales and mins of Q4_K and Q5_K */
EI_INLINE void scales_k4(const uint8_t raw[3][64], super *s) {
    vi r0 = vi_load(raw[0]), r1 = vi_load(raw[1]), r2 = vi_load(raw[2]);
    vi six = vi_set(0x3f3f3f3f), low = vi_set(0x0f0f0f0f), top = vi_set(0x30303030);
    vi scale[2] = {vi_and(r0, six), vi_or(vi_and(r2, low), vi_and(vi_shr(r0, 2), top))};
    vi min[2] = {vi_and(r1, six), vi_or(vi_and(vi_shr(r2, 4), low), vi_and(vi_shr(r1, 2), top))};
    EI_UNROLL for (int j = 0; j < 8; j++) {
        s->scale[j] = byte_of(scale[j / 4], j % 4);
        s->min[j] = byte_of(min[j / 4], j % 4);
    }
}
EI_INLINE void scales_q4_k(const x_q4_k *b, super *s) { scales_k4(b->scales, s); }
EI_INLINE void scales_q5_k(const x_q5_k *b, super *s) { scales_k4(b->scales, s); }
EI_INLINE void scales_q2_k(const x_q2_k *b, super *s) {
    EI_UNROLL for (int j = 0; j < 16; j++) {
        vi both = vi_from_u8(b->scales[j]);
        s->scale[j] = vf_from_vi(vi_and(both, vi_set(15)));
        s->min[j] = vf_from_vi(vi_shr(both, 4));
    }
}
EI_INLINE void scales_q3_k(const x_q3_k *b, super *s) {
    vi raw[2] = {vi_load(b->scales[0]), vi_load(b->scales[1])}, high = vi_load(b->scales[2]);
    EI_UNROLL for (int j = 0; j < 16; j++) {
        vi low = vi_and(vi_shr(raw[j / 4 % 2], 8 * (j % 4) + 4 * (j / 8)), vi_set(15));
        vi top = vi_and(vi_shr(high, 8 * (j % 4) + 2 * (j / 4)), vi_set(3));
        s->scale[j] = vf_from_vi(vi_sub(vi_or(low, vi_shl(top, 4)), vi_set(32)));
    }
}
EI_INLINE void scales_q6_k(const x_q6_k *b, super *s) {
    EI_UNROLL for (int j = 0; j < 16; j++) s->scale[j] = vf_from_vi(vi_from_s8(b->scales[j]));
}
EI_INLINE void scales_iq4_xs(const x_iq4_xs *b, super *s) {
    vi low = vi_load(b->scales_low), high = vi_from_u16(b->scales_high);
    EI_UNROLL for (int j = 0; j < 8; j++) {
        vi six = vi_or(vi_and(vi_shr(low, 4 * j), vi_set(15)), vi_shl(vi_and(vi_shr(high, 2 * j), vi_set(3)), 4));
        s->scale[j] = vf_from_vi(vi_sub(six, vi_set(32)));
    }
}

#define SUPER(name, SUB_BLOCKS, SUPER_MIN)                                                                             \
    EI_INLINE void super_##name(KERNEL_ARGUMENTS) {                                                                    \
        KERNEL_BEGIN(name)                                                                                             \
        for (int32_t k = acts->width / 256; k > 0; k--, b++) {                                                         \
            super s;                                                                                                   \
            scales_##name(b, &s);                                                                                      \
            vf u[EI_MAX_COLUMNS], v[EI_MAX_COLUMNS];                                                                   \
            EI_UNROLL for (int t = 0; t < n_columns; t++) u[t] = v[t] = vf_zero();                                     \
            for (int j = 0; j < 8; j++) {                                                                              \
                if (n_columns <= EI_FETCH_COLUMNS) fetch_part(b, sizeof *b, j, 8);                                     \
                SUB_BLOCKS                                                                                             \
                NEXT_32;                                                                                               \
            }                                                                                                          \
            vf scale = vf_from_f16(b->d);                                                                              \
            EI_UNROLL for (int t = 0; t < n_columns; t++) acc[t] = vf_fma(u[t], scale, acc[t]);                        \
            SUPER_MIN                                                                                                  \
        }                                                                                                              \
        KERNEL_END                                                                                                     \
    }
/* one sub-block of 32 with its scale; MIN: its min */
#define ONE_32(name, BOUND, DOT, BIAS, MIN)                                                                            \
    SUB_32(name, j, BOUND, DOT, BIAS)                                                                                  \
    EI_UNROLL for (int t = 0; t < n_columns; t++) {                                                                    \
        u[t] = vf_fma(sub[t], s.scale[j], u[t]);                                                                       \
        MIN                                                                                                            \
    }
#define MIN_32 v[t] = vf_fma(s.min[j], vf_set(c.ds[t]), v[t]);
/* two sub-blocks of 16, each with its scale */
#define TWO_16(name, BOUND, DOT, BIAS, MIN)                                                                            \
    EI_UNROLL for (int half = 0; half < 2; half++) {                                                                   \
        RUN_OF_16(name, j, half, BOUND, DOT, BIAS)                                                                     \
        EI_UNROLL for (int t = 0; t < n_columns; t++) {                                                                \
            vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);                                                     \
            u[t] = vf_fma(vf_mul(dots[t], d), s.scale[2 * j + half], u[t]);                                            \
            MIN                                                                                                        \
        }                                                                                                              \
    }
#define MIN_16                                                                                                         \
    vf sum = vf_set(c.sums[(size_t)half * stride + (size_t)t]);                                                        \
    v[t] = vf_fma(s.min[2 * j + half], vf_mul(d, sum), v[t]);
#define END_MIN                                                                                                        \
    vf dmin = vf_from_f16(b->dmin);                                                                                    \
    EI_UNROLL for (int t = 0; t < n_columns; t++) acc[t] = vf_fnma(v[t], dmin, acc[t]);

SUPER(q2_k, TWO_16(q2_k, 3, va_dot_u8, 0, MIN_16), END_MIN)
SUPER(q3_k, TWO_16(q3_k, 7, va_dot_u8, 4, ), )
SUPER(q4_k, ONE_32(q4_k, 15, va_dot_u8, 0, MIN_32), END_MIN)
SUPER(q5_k, ONE_32(q5_k, 31, va_dot_u8, 0, MIN_32), END_MIN)
SUPER(q6_k, TWO_16(q6_k, 63, va_dot_u8, 32, ), )
SUPER(iq4_xs, ONE_32(iq4_xs, 127, va_dot_s8, EI_SIGNED_BIAS, ), )

/* ---- float weights ---- */

#define FLOATS(name, LOAD)                                                                                             \
    EI_INLINE void floats_##name(KERNEL_ARGUMENTS) {                                                                   \
        KERNEL_BEGIN(name)                                                                                             \
        (void)fine;                                                                                                    \
        for (int32_t k = acts->width; k > 0; k--, b++, c.x += stride) {                                                \
            vf w = LOAD(b->w);                                                                                         \
            EI_UNROLL for (int t = 0; t < n_columns; t++) acc[t] = vf_fma(w, vf_set(c.x[t]), acc[t]);                  \
        }                                                                                                              \
        KERNEL_END                                                                                                     \
    }
FLOATS(f32, vf_load)
FLOATS(f16, vf_from_f16)
FLOATS(bf16, vf_from_bf16)

#include "matmul_codebook_template.h"

/* ---- one function per format, precision and column count ---- */

#define COLUMNS_FN(kind, name, precision, fine, n)                                                                     \
    static void EI_FN(matmul_##name##_##precision##_##n)(const void *group, const ei_acts *acts, int32_t tile,         \
                                                         int32_t column, float *out) {                                 \
        kind##_##name(group, acts, tile, column, out, n, fine);                                                        \
    }
#if EI_MAX_COLUMNS == 8
#define EACH_COUNT(X, ...)                                                                                             \
    X(__VA_ARGS__, 1)                                                                                                  \
    X(__VA_ARGS__, 2)                                                                                                  \
    X(__VA_ARGS__, 3)                                                                                                  \
    X(__VA_ARGS__, 4)                                                                                                  \
    X(__VA_ARGS__, 5)                                                                                                  \
    X(__VA_ARGS__, 6)                                                                                                  \
    X(__VA_ARGS__, 7)                                                                                                  \
    X(__VA_ARGS__, 8)
#elif EI_MAX_COLUMNS == 4
#define EACH_COUNT(X, ...)                                                                                             \
    X(__VA_ARGS__, 1)                                                                                                  \
    X(__VA_ARGS__, 2)                                                                                                  \
    X(__VA_ARGS__, 3)                                                                                                  \
    X(__VA_ARGS__, 4)
#else
#define EACH_COUNT(X, ...) X(__VA_ARGS__, 1)
#endif
#define INTEGER_COLUMNS(kind, name)                                                                                    \
    EACH_COUNT(COLUMNS_FN, kind, name, coarse, 0)                                                                      \
    EACH_COUNT(COLUMNS_FN, kind, name, fine, 1)

EACH_COUNT(COLUMNS_FN, floats, f32, coarse, 0)
EACH_COUNT(COLUMNS_FN, floats, f16, coarse, 0)
EACH_COUNT(COLUMNS_FN, floats, bf16, coarse, 0)
INTEGER_COLUMNS(block32, q4_0)
INTEGER_COLUMNS(block32, q4_1)
INTEGER_COLUMNS(block32, q5_0)
INTEGER_COLUMNS(block32, q5_1)
INTEGER_COLUMNS(block32, q8_0)
INTEGER_COLUMNS(block32, iq4_nl)
INTEGER_COLUMNS(super, q2_k)
INTEGER_COLUMNS(super, q3_k)
INTEGER_COLUMNS(super, q4_k)
INTEGER_COLUMNS(super, q5_k)
INTEGER_COLUMNS(super, q6_k)
INTEGER_COLUMNS(super, iq4_xs)
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

#define COLUMNS_ENTRY(name, precision, n) EI_FN(matmul_##name##_##precision##_##n),
#define INTEGER_ROW(name)                                                                                              \
    {                                                                                                                  \
        {EACH_COUNT(COLUMNS_ENTRY, name, coarse)}, { EACH_COUNT(COLUMNS_ENTRY, name, fine) }                           \
    }
#define FLOAT_ROW(name)                                                                                                \
    {                                                                                                                  \
        {EACH_COUNT(COLUMNS_ENTRY, name, coarse)}, { EACH_COUNT(COLUMNS_ENTRY, name, coarse) }                         \
    }

const ei_matmul_fn EI_FN(matmul)[EI_N_FORMATS][2][EI_TILE] = {[EI_F32] = FLOAT_ROW(f32),
                                                              [EI_F16] = FLOAT_ROW(f16),
                                                              [EI_BF16] = FLOAT_ROW(bf16),
#define ROW(NAME, name) [EI_##NAME] = INTEGER_ROW(name),
                                                              EI_INTEGER_FORMATS(ROW)
#undef ROW
};
