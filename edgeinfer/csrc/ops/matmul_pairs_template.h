/* edgeinfer/csrc/ops/matmul_pairs_template.h: the integer matmul kernels by pairs of columns, for levels with a matrix
 * product (EI_PAIRS, isa/i8mm_verbs.h).
 *
 * One group of rows, EI_MAX_COLUMNS columns, 8-bit activations. The same steps in the same order as in
 * matmul_template.h, which includes this; rows and columns share a vector, so what belongs to a row is spread over two
 * lanes and what belongs to a column over every second one.
 */

enum { EI_N_PAIRS = EI_MAX_COLUMNS / 2 };

#define EACH_PAIR              EI_UNROLL for (int t = 0; t < EI_N_PAIRS; t++)
#define PER_COLUMN(plane, run) pf_columns(c.plane + (run) * stride + (size_t)(2 * t))
#define PAIRS_BEGIN(name)                                                                                              \
    (void)fetch;                                                                                                       \
    const x_##name *b = group;                                                                                         \
    columns c = columns_at(acts, tile, column);                                                                        \
    const size_t stride = c.stride;                                                                                    \
    pf acc[EI_N_PAIRS];                                                                                                \
    EACH_PAIR acc[t] = pf_zero();
#define PAIRS_END EACH_PAIR pf_store(out + 32 * t, acc[t]);
#define PAIRS_FN(name)                                                                                                 \
    static void EI_FN(matmul_##name##_coarse_4)(const void *group, const char *const *fetch, const ei_acts *acts,      \
                                                int32_t tile, int32_t column, float *out)
#define PAIRS_NEXT_32 c.q += 32 * stride, c.d += 2 * stride, c.sums += 2 * stride, c.ds += stride

/* dots[t] = integer dot of run `half` of 32 elements as floats, bias included */
#define PAIRS_RUN(name, j, half)                                                                                       \
    pf dots[EI_N_PAIRS];                                                                                               \
    {                                                                                                                  \
        pi sum[EI_N_PAIRS];                                                                                            \
        EACH_PAIR sum[t] = pi_zero();                                                                                  \
        EI_UNROLL for (int i = 4 * (half); i < 4 * (half) + 4; i += 2) {                                               \
            pb w = pb_join(group_##name(b, j, i), group_##name(b, j, i + 1));                                          \
            const int8_t *x = c.q + 4 * ((size_t)i * stride);                                                          \
            EACH_PAIR sum[t] = pi_dot(sum[t], w, x + 8 * t, x + 4 * stride + 8 * t);                                   \
        }                                                                                                              \
        EACH_PAIR dots[t] = pf_from_pi(sum[t]);                                                                        \
    }

#define PAIRS_BLOCK32(name, BIAS, MIN)                                                                                 \
    PAIRS_FN(name) {                                                                                                   \
        PAIRS_BEGIN(name)                                                                                              \
        for (int32_t k = acts->width / EI_BLOCK; k > 0; k--, b++) {                                                    \
            pf sub[EI_N_PAIRS];                                                                                        \
            EI_UNROLL for (int half = 0; half < 2; half++) {                                                           \
                PAIRS_RUN(name, 0, half)                                                                               \
                EACH_PAIR {                                                                                            \
                    pf d = PER_COLUMN(d, (size_t)half);                                                                \
                    if (BIAS) dots[t] = pf_fnma(pf_set(BIAS), PER_COLUMN(sums, (size_t)half), dots[t]);                \
                    sub[t] = half ? pf_fma(dots[t], d, sub[t]) : pf_mul(dots[t], d);                                   \
                }                                                                                                      \
            }                                                                                                          \
            pf scale = pf_rows(vf_from_f16(b->d));                                                                     \
            EACH_PAIR acc[t] = pf_fma(sub[t], scale, acc[t]);                                                          \
            MIN PAIRS_NEXT_32;                                                                                         \
        }                                                                                                              \
        PAIRS_END                                                                                                      \
    }
#define PAIRS_ADD_MIN                                                                                                  \
    pf min = pf_rows(vf_from_f16(b->m));                                                                               \
    EACH_PAIR acc[t] = pf_fma(min, PER_COLUMN(ds, 0), acc[t]);

PAIRS_BLOCK32(q4_0, 8, )
PAIRS_BLOCK32(q4_1, 0, PAIRS_ADD_MIN)
PAIRS_BLOCK32(q5_0, 16, )
PAIRS_BLOCK32(q5_1, 0, PAIRS_ADD_MIN)
PAIRS_BLOCK32(q8_0, EI_SIGNED_BIAS, )
PAIRS_BLOCK32(iq4_nl, EI_SIGNED_BIAS, )

#define PAIRS_SCALED(name, half, AT, BIAS)                                                                             \
    const int at = AT;                                                                                                 \
    PAIRS_RUN(name, j, half)                                                                                           \
    pf scale = pf_rows(s.scale[at]);                                                                                   \
    EACH_PAIR {                                                                                                        \
        pf scaled = pf_mul(dots[t], scale);                                                                            \
        if (BIAS) scaled = pf_fnma(pf_rows(s.biased[at]), PER_COLUMN(sums, (size_t)half), scaled);                     \
        u[t] = pf_fma(scaled, PER_COLUMN(d, (size_t)half), u[t]);                                                      \
    }
#define PAIRS_SUPER(name, SUB_BLOCKS, SUPER_MIN)                                                                       \
    PAIRS_FN(name) {                                                                                                   \
        PAIRS_BEGIN(name)                                                                                              \
        for (int32_t k = acts->width / 256; k > 0; k--, b++) {                                                         \
            super s;                                                                                                   \
            pf u[EI_N_PAIRS], v[EI_N_PAIRS];                                                                           \
            scales_##name(b, &s);                                                                                      \
            EACH_PAIR u[t] = v[t] = pf_zero();                                                                         \
            for (int j = 0; j < 8; j++) {                                                                              \
                SUB_BLOCKS                                                                                             \
                PAIRS_NEXT_32;                                                                                         \
            }                                                                                                          \
            pf scale = pf_rows(vf_from_f16(b->d));                                                                     \
            EACH_PAIR acc[t] = pf_fma(u[t], scale, acc[t]);                                                            \
            SUPER_MIN                                                                                                  \
        }                                                                                                              \
        PAIRS_END                                                                                                      \
    }
#define PAIRS_ONE_32(name, BIAS, MIN)                                                                                  \
    EI_UNROLL for (int half = 0; half < 2; half++){PAIRS_SCALED(name, half, j, BIAS)} MIN
#define PAIRS_TWO_16(name, BIAS, MIN)                                                                                  \
    EI_UNROLL for (int half = 0; half < 2; half++) { PAIRS_SCALED(name, half, 2 * j + half, BIAS) MIN }
#define PAIRS_MIN_32                                                                                                   \
    pf min = pf_rows(s.min[j]);                                                                                        \
    EACH_PAIR v[t] = pf_fma(min, PER_COLUMN(ds, 0), v[t]);
#define PAIRS_MIN_16                                                                                                   \
    pf min = pf_rows(s.min[at]);                                                                                       \
    EACH_PAIR v[t] = pf_fma(min, pf_mul(PER_COLUMN(d, (size_t)half), PER_COLUMN(sums, (size_t)half)), v[t]);
#define PAIRS_END_MIN                                                                                                  \
    pf dmin = pf_rows(vf_from_f16(b->dmin));                                                                           \
    EACH_PAIR acc[t] = pf_fnma(v[t], dmin, acc[t]);

PAIRS_SUPER(q2_k, PAIRS_TWO_16(q2_k, 0, PAIRS_MIN_16), PAIRS_END_MIN)
PAIRS_SUPER(q3_k, PAIRS_TWO_16(q3_k, 4, ), )
PAIRS_SUPER(q4_k, PAIRS_ONE_32(q4_k, 0, PAIRS_MIN_32), PAIRS_END_MIN)
PAIRS_SUPER(q5_k, PAIRS_ONE_32(q5_k, 0, PAIRS_MIN_32), PAIRS_END_MIN)
PAIRS_SUPER(q6_k, PAIRS_TWO_16(q6_k, 32, ), )
PAIRS_SUPER(iq4_xs, PAIRS_ONE_32(iq4_xs, EI_SIGNED_BIAS, ), )
