/* edgeinfer/csrc/ops/matmul_codebook_template.h: the matmul kernels of the codebook formats, of 4-bit floats and of
 * TQ2_0; included by matmul_template.h, whose macros they are made of.
 */
#include "../codebook.h"

/* ---- codebooks: a super-block is unpacked in plain C, then all columns meet its codes ---- */

EI_INLINE vb group_codes(const ei_codes *b, int j, int g) { return vb_signed(vb_load(b->codes[8 * j + g])); }

typedef void (*unpack_fn)(const void *rows, int32_t n_rows, ei_codes *out);

/* One body a column count for all these formats: what differs is behind `unpack`. */
EI_INLINE void codebook(unpack_fn unpack, size_t block_bytes, KERNEL_ARGUMENTS) {
    ei_codes unpacked __attribute__((aligned(64)));
    const ei_codes *b = &unpacked;
    const uint8_t *rows = group;
    (void)fetch;
    columns c = columns_at(acts, tile, column);
    const size_t stride = whole ? EI_TILE : c.stride;
    vf acc[EI_MAX_COLUMNS];
    EACH_COLUMN acc[t] = vf_zero();
    for (int32_t k = acts->width / 256; k > 0; k--, rows += EI_LANES * block_bytes) {
        vf u[EI_MAX_COLUMNS];
        EACH_COLUMN u[t] = vf_zero();
        unpack(rows, EI_LANES, &unpacked);
        for (int j = 0; j < 8; j++) {
            EI_UNROLL for (int half = 0; half < 2; half++) {
                RUN_OF_16(codes, b, j, half, EI_CODEBOOK_LARGEST + EI_SIGNED_BIAS, s8, va_flush)
                UNBIASED(EI_CODEBOOK_LARGEST + EI_SIGNED_BIAS, EI_SIGNED_BIAS, half)
                vf scale = vf_from_vi(vi_from_u8(b->scales[2 * j + half]));
                EACH_COLUMN {
                    vf d = vf_set(c.d[(size_t)half * stride + (size_t)t]);
                    u[t] = vf_fma(vf_mul(dots[t], scale), d, u[t]);
                }
            }
            NEXT_32;
        }
        vf w = vf_load(b->w);
        EACH_COLUMN acc[t] = vf_fma(u[t], w, acc[t]);
    }
    EACH_COLUMN vf_store(out + 16 * t, acc[t]);
}

#define CODEBOOK_BODY(n, precision, fine)                                                                              \
    static void EI_FN(codebook_##precision##_##n)(unpack_fn unpack, size_t block_bytes, const void *group,             \
                                                  const char *const *fetch, const ei_acts *acts, int32_t tile,         \
                                                  int32_t column, float *out) {                                        \
        codebook(unpack, block_bytes, group, fetch, acts, tile, column, out, n, fine, n == EI_TILE);                   \
    }
#define CODEBOOK_FN(n, name, precision)                                                                                \
    static void COLUMNS_NAME(name, precision, n)(const void *group, const char *const *fetch, const ei_acts *acts,     \
                                                 int32_t tile, int32_t column, float *out) {                           \
        EI_FN(codebook_##precision##_##n)                                                                              \
        ((unpack_fn)ei_unpack_##name, sizeof(block_##name), group, fetch, acts, tile, column, out);                    \
    }

/* ---- 4-bit floats ---- */

EI_INLINE vb group_mxfp4(const x_mxfp4 *b, int j, int g) {
    (void)j;
    return vb_lookup(nibbles(b->codes, g), ei_fp4_biased);
}
EI_INLINE vb group_nvfp4(const x_nvfp4 *b, int j, int g) {
    vb both = vb_load(b->codes[2 * j + g / 4][g % 2]);
    return vb_lookup(g % 4 < 2 ? vb_and(both, 0x0f) : vb_shr_and(both, 4, 0x0f), ei_fp4_biased);
}

/* 2^(e - 128), e from 0 to 255, as a product of two normal powers of two: the result may be subnormal */
EI_INLINE vf half_e8m0(const uint8_t *e) {
    vi all = vi_from_u8(e), part = vi_shr(all, 1);
    vi first = vi_add(part, vi_set(63)), second = vi_add(vi_sub(all, part), vi_set(63));
    return vf_mul(vf_from_bits(vi_shl(first, 23)), vf_from_bits(vi_shl(second, 23)));
}
/* Half of the UE4M3: its fields become those of a float, whose exponent a multiply rebases. 0x7f alone is 0. */
EI_INLINE vf half_ue4m3(const uint8_t *d) {
    vi all = vi_from_u8(d);
    vf value = vf_mul(vf_from_bits(vi_shl(vi_and(all, vi_set(0x7f)), 20)), vf_set(0x1p119f));
    vf code = vf_from_vi(all), or_zero = vf_select_ge(code, vf_set(0x80), value, vf_zero());
    return vf_select_ge(code, vf_set(0x7f), or_zero, value);
}

EI_INLINE void float4_mxfp4(KERNEL_ARGUMENTS) {
    KERNEL_BEGIN(mxfp4)
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
    for (int32_t k = acts->width / 64; k > 0; k--) {
        for (int j = 0; j < 2; j++) {
            if (FETCHES) fetch_part(fetch_at, sizeof *b, j, 2);
            EI_UNROLL for (int half = 0; half < 2; half++) {
                RUN_OF_16(nvfp4, b, j, half, 2 * EI_FP4_BIAS, u8, va_flush)
                UNBIASED(2 * EI_FP4_BIAS, EI_FP4_BIAS, half)
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

/* ---- TQ2_0: the codes of Q2_K, 1 too large, and a scale of 1 ---- */

EI_INLINE vb group_tq2_0(const x_tq2_0 *b, int j, int g) {
    return vb_shr_and(vb_load(b->codes[2 * j + g / 4]), 2 * (g % 4), 0x03);
}
EI_INLINE void scales_tq2_0(const x_tq2_0 *b, super *s) {
    (void)b;
    EI_UNROLL for (int j = 0; j < 16; j++) signed_scale(vi_set(1), j, 1, s);
}
SUPER(tq2_0, TWO_16(tq2_0, 3, u8, 1, ), )
