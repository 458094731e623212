/* edgeinfer/csrc/ops/matmul_pairs_template.h: the cores with 8-bit activations by pairs of columns, for levels with a
 * matrix product (EI_PAIRS, isa/i8mm_verbs.h); included by matmul_wide_template.h.
 *
 * The same steps in the same order as in the cores there; rows and columns share a vector, so what belongs to a row is
 * spread over two lanes and what belongs to a column over every second one.
 */

enum { EI_N_PAIRS = EI_MAX_COLUMNS / 2 };

/* signed codes have no bias here */
_Static_assert(EI_SIGNED_BIAS == 0, "no bias");

#define EACH_PAIR              EI_UNROLL for (int t = 0; t < EI_N_PAIRS; t++)
#define PER_COLUMN(plane, run) pf_columns(c.plane + (run) * stride + (size_t)(2 * t))
#define PAIRS_FN(name)         static void pairs_##name(const stretch *st, columns c, float *out)
#define PAIRS_BEGIN                                                                                                    \
    const size_t stride = c.stride;                                                                                    \
    pf acc[EI_N_PAIRS];                                                                                                \
    EACH_PAIR acc[t] = pf_load(out + 32 * t);
#define PAIRS_END     EACH_PAIR pf_store(out + 32 * t, acc[t]);
#define PAIRS_NEXT_32 c.q += 32 * stride, c.d += 2 * stride, c.sums += 2 * stride, c.ds += stride

/* dots[t] = integer dot of run `half` of 32 elements as floats, bias included */
#define PAIRS_RUN(half)                                                                                                \
    pf dots[EI_N_PAIRS];                                                                                               \
    {                                                                                                                  \
        pi sum[EI_N_PAIRS];                                                                                            \
        EACH_PAIR sum[t] = pi_zero();                                                                                  \
        EI_UNROLL for (int i = 4 * (half); i < 4 * (half) + 4; i += 2) {                                               \
            pb w = pb_join(st->bytes[8 * j + i], st->bytes[8 * j + i + 1]);                                            \
            const int8_t *x = c.q + 4 * ((size_t)i * stride);                                                          \
            EACH_PAIR sum[t] = pi_dot(sum[t], w, x + 8 * t, x + 4 * stride + 8 * t);                                   \
        }                                                                                                              \
        EACH_PAIR dots[t] = pf_from_pi(sum[t]);                                                                        \
    }
#define PAIRS_UNBIASED(BIASED, half)                                                                                   \
    if (BIASED) EACH_PAIR dots[t] = pf_fnma(pf_set(st->bias), PER_COLUMN(sums, (size_t)half), dots[t]);

#define PAIRS_BLOCKS(name, BIASED, MIN)                                                                                \
    PAIRS_FN(name) {                                                                                                   \
        PAIRS_BEGIN                                                                                                    \
        for (int j = 0; j < st->n_blocks; j++) {                                                                       \
            pf sub[EI_N_PAIRS];                                                                                        \
            EI_UNROLL for (int half = 0; half < 2; half++) {                                                           \
                PAIRS_RUN(half)                                                                                        \
                PAIRS_UNBIASED(BIASED, half)                                                                           \
                EACH_PAIR {                                                                                            \
                    pf d = PER_COLUMN(d, (size_t)half);                                                                \
                    sub[t] = half ? pf_fma(dots[t], d, sub[t]) : pf_mul(dots[t], d);                                   \
                }                                                                                                      \
            }                                                                                                          \
            pf scale = pf_rows(st->d[j]);                                                                              \
            EACH_PAIR acc[t] = pf_fma(sub[t], scale, acc[t]);                                                          \
            if (MIN) {                                                                                                 \
                pf min = pf_rows(st->m[j]);                                                                            \
                EACH_PAIR acc[t] = pf_fma(min, PER_COLUMN(ds, 0), acc[t]);                                             \
            }                                                                                                          \
            PAIRS_NEXT_32;                                                                                             \
        }                                                                                                              \
        PAIRS_END                                                                                                      \
    }
PAIRS_BLOCKS(blocks, 1, 0)
PAIRS_BLOCKS(blocks_min, 0, 1)
PAIRS_BLOCKS(blocks_signed, 0, 0)

#define PAIRS_SUPER(name, SUB_BLOCK, BIASED, MIN)                                                                      \
    PAIRS_FN(name) {                                                                                                   \
        PAIRS_BEGIN                                                                                                    \
        pf u[EI_N_PAIRS], v[EI_N_PAIRS];                                                                               \
        EACH_PAIR u[t] = v[t] = pf_zero();                                                                             \
        for (int j = 0; j < 8; j++) {                                                                                  \
            EI_UNROLL for (int half = 0; half < 2; half++) {                                                           \
                const int at = (SUB_BLOCK) == 32 ? j : 2 * j + half;                                                   \
                PAIRS_RUN(half)                                                                                        \
                pf scale = pf_rows(st->s.scale[at]);                                                                   \
                EACH_PAIR {                                                                                            \
                    pf scaled = pf_mul(dots[t], scale), d = PER_COLUMN(d, (size_t)half);                               \
                    pf sum = PER_COLUMN(sums, (size_t)half);                                                           \
                    if (BIASED) scaled = pf_fnma(pf_rows(st->s.biased[at]), sum, scaled);                              \
                    u[t] = pf_fma(scaled, d, u[t]);                                                                    \
                    if ((MIN) == 16) v[t] = pf_fma(pf_rows(st->s.min[at]), pf_mul(d, sum), v[t]);                      \
                }                                                                                                      \
            }                                                                                                          \
            if ((MIN) == 32) {                                                                                         \
                pf min = pf_rows(st->s.min[j]);                                                                        \
                EACH_PAIR v[t] = pf_fma(min, PER_COLUMN(ds, 0), v[t]);                                                 \
            }                                                                                                          \
            PAIRS_NEXT_32;                                                                                             \
        }                                                                                                              \
        pf scale = pf_rows(st->d[0]);                                                                                  \
        EACH_PAIR acc[t] = pf_fma(u[t], scale, acc[t]);                                                                \
        if (MIN) {                                                                                                     \
            pf dmin = pf_rows(st->m[0]);                                                                               \
            EACH_PAIR acc[t] = pf_fnma(v[t], dmin, acc[t]);                                                            \
        }                                                                                                              \
        PAIRS_END                                                                                                      \
    }
PAIRS_SUPER(super_2, 16, 0, 16)
PAIRS_SUPER(super_3, 16, 1, 0)
PAIRS_SUPER(super_4, 32, 0, 32)
PAIRS_SUPER(super_6, 16, 1, 0)
PAIRS_SUPER(super_signed, 16, 0, 0)

PAIRS_FN(halves) {
    PAIRS_BEGIN
    for (int j = 0; j < st->n_blocks; j++) {
        EI_UNROLL for (int half = 0; half < 2; half++) {
            PAIRS_RUN(half)
            PAIRS_UNBIASED(1, half)
            pf scale = pf_rows(st->s.scale[2 * j + half]);
            EACH_PAIR acc[t] = pf_fma(pf_mul(dots[t], PER_COLUMN(d, (size_t)half)), scale, acc[t]);
        }
        PAIRS_NEXT_32;
    }
    PAIRS_END
}
