/* edgeinfer/csrc/ops/matmul_table_template.h: one function per format and precision, and the table of them; included by
 * matmul_template.h.
 */

/* Columns from which whole tiles are worth unpacking for; where only unpacked codes meet the matrix product, one tile.
 */
#ifdef EI_PAIRS
#define WIDE_FROM EI_TILE
#else
#define WIDE_FROM (2 * EI_TILE)
#endif

#define MATMUL_FN(name, precision)                                                                                     \
    static void EI_FN(matmul_##name##_##precision)(const void *group, const char *const *fetch, const ei_acts *acts,   \
                                                   int32_t token, int32_t n, float *out)
/* One kernel for a number of columns. */
#define COLUMNS_FN(name, kind, precision, fine, n, whole)                                                              \
    static EI_APART void name##_##precision##_##n##_##whole(const void *group, const char *const *fetch,               \
                                                            const ei_acts *acts, int32_t token, float *out) {          \
        kind##_##name(group, fetch, acts, token, out, n, fine, whole);                                                 \
    }
/* The widest kernel exists once more for whole tiles, whose activations stand at constant distances. */
#if EI_MAX_COLUMNS == 8
#define EACH_WIDTH(X, ...) X(__VA_ARGS__, 1, 0) X(__VA_ARGS__, 2, 0) X(__VA_ARGS__, 4, 0) X(__VA_ARGS__, 8, 1)
#elif EI_MAX_COLUMNS == 4 && EI_WHOLE_TILES
#define EACH_WIDTH(X, ...) X(__VA_ARGS__, 4, 1) X(__VA_ARGS__, 4, 0) X(__VA_ARGS__, 2, 0) X(__VA_ARGS__, 1, 0)
#elif EI_MAX_COLUMNS == 4
#define EACH_WIDTH(X, ...) X(__VA_ARGS__, 1, 0) X(__VA_ARGS__, 2, 0) X(__VA_ARGS__, 4, 0)
#else
#define EACH_WIDTH(X, ...) X(__VA_ARGS__, 1, 0)
#endif
#define IS_WIDTH(name, precision, n_columns, whole)                                                                    \
    if (width == n_columns && (!whole || is_whole)) {                                                                  \
        name##_##precision##_##n_columns##_##whole(group, fetch, acts, token, out);                                    \
        continue;                                                                                                      \
    }
/* n columns, as many of a tile together as there is a kernel for */
#define DIRECT(name, precision)                                                                                        \
    for (int32_t last = token + n, width; token < last; token += width, out += EI_LANES * width) {                     \
        int32_t column = token % EI_TILE;                                                                              \
        bool is_whole = acts->n_tokens - token + column >= EI_TILE;                                                    \
        (void)is_whole;                                                                                                \
        width = WIDTH_OF(min_i32(last - token, EI_TILE - column));                                                     \
        EACH_WIDTH(IS_WIDTH, name, precision)                                                                          \
    }
/* The whole tiles of many columns first */
#define WIDE_FIRST(name, precision)                                                                                    \
    if (n >= WIDE_FROM) {                                                                                              \
        int32_t wide = n - n % EI_TILE;                                                                                \
        wide_##name##_##precision(group, acts, token, wide, out);                                                      \
        token += wide, n -= wide, out += EI_LANES * wide;                                                              \
    }

/* Formats that unpack in an instruction or two */
#define DIRECT_FN(name, kind, precision, fine)                                                                         \
    EACH_WIDTH(COLUMNS_FN, name, kind, precision, fine)                                                                \
    MATMUL_FN(name, precision) { DIRECT(name, precision) }
#define DIRECT_FORMAT(name, kind)                                                                                      \
    DIRECT_FN(name, kind, coarse, 0)                                                                                   \
    DIRECT_FN(name, kind, fine, 1)
/* Others */
#define WIDE_FN(name, kind, core, precision, fine, PER, BIAS)                                                          \
    EACH_WIDTH(COLUMNS_FN, name, kind, precision, fine)                                                                \
    WIDE(name, core, precision, fine, PER, BIAS)                                                                       \
    MATMUL_FN(name, precision) {                                                                                       \
        WIDE_FIRST(name, precision)                                                                                    \
        DIRECT(name, precision)                                                                                        \
    }
#define WIDE_FORMAT(name, kind, core, PER, BIAS)                                                                       \
    WIDE_FN(name, kind, core, coarse, 0, PER, BIAS)                                                                    \
    WIDE_FN(name, kind, core, fine, 1, PER, BIAS)

#ifdef EI_PAIRS
WIDE_FORMAT(q4_0, block32, blocks, 8, 8)
WIDE_FORMAT(q4_1, block32, blocks_min, 8, 0)
WIDE_FORMAT(q8_0, block32, blocks_signed, 8, 0)
#else
DIRECT_FORMAT(q4_0, block32)
DIRECT_FORMAT(q4_1, block32)
DIRECT_FORMAT(q8_0, block32)
#endif
WIDE_FORMAT(q5_0, block32, blocks, 8, 16)
WIDE_FORMAT(q5_1, block32, blocks_min, 8, 0)
WIDE_FORMAT(iq4_nl, block32, blocks_signed, 8, 0)
WIDE_FORMAT(mxfp4, float4, blocks, 8, EI_FP4_BIAS)
WIDE_FORMAT(nvfp4, float4, halves, 4, EI_FP4_BIAS)
WIDE_FORMAT(q2_k, super, super_2, 1, 0)
WIDE_FORMAT(q3_k, super, super_3, 1, 4)
WIDE_FORMAT(q4_k, super, super_4, 1, 0)
WIDE_FORMAT(q5_k, super, super_4, 1, 0)
WIDE_FORMAT(q6_k, super, super_6, 1, 32)
WIDE_FORMAT(tq2_0, super, super_3, 1, 1)
WIDE_FORMAT(iq4_xs, super, super_signed, 1, 0)

#define CODEBOOK_FN(name, precision)                                                                                   \
    MATMUL_FN(name, precision) {                                                                                       \
        (void)fetch;                                                                                                   \
        codebook_##precision((unpack_fn)ei_unpack_##name, sizeof(block_##name), group, acts, token, n, out);           \
    }
#define CODEBOOK(NAME, name)                                                                                           \
    CODEBOOK_FN(name, coarse)                                                                                          \
    CODEBOOK_FN(name, fine)
EI_CODEBOOK_FORMATS(CODEBOOK)

DIRECT_FN(f32, floats, coarse, 0)
DIRECT_FN(f16, floats, coarse, 0)
DIRECT_FN(bf16, floats, coarse, 0)

#define FLOAT_ROW(name) {EI_FN(matmul_##name##_coarse), EI_FN(matmul_##name##_coarse)}

const ei_matmul_fn EI_FN(matmul)[EI_N_FORMATS][2] = {[EI_F32] = FLOAT_ROW(f32),
                                                     [EI_F16] = FLOAT_ROW(f16),
                                                     [EI_BF16] = FLOAT_ROW(bf16),
#define ROW(NAME, name) [EI_##NAME] = {EI_FN(matmul_##name##_coarse), EI_FN(matmul_##name##_fine)},
                                                     EI_INTEGER_FORMATS(ROW)
#undef ROW
};
