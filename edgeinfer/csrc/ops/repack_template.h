/* edgeinfer/csrc/ops/repack_template.h: the packers of repack.c over whole vectors: a dword of 16 rows is one vi.
 *
 * The including ISA defines the verbs of scalar_verbs.h. Each function lays one row of 16 full rows out as a group and
 * moves the bits that its namesake in repack.c moves, which says what they mean; formats without one are left to it.
 */

/* dword w of the 16 rows at p, n of them, a multiple of 4 */
EI_INLINE void dwords(const uint8_t *p, size_t stride, int n, vi *out) {
    EI_UNROLL for (int w = 0; w < n; w += 4) vi_load_rows(p + 4 * w, stride, out + w);
}

EI_INLINE vi masked(vi x, uint32_t mask) { return vi_and(x, vi_set((int32_t)mask)); }

/* The low (shift 0) or high (4) nibbles of two dwords, as the low and the high nibbles of one. */
EI_INLINE vi nibble_pair(vi first, vi second, int shift) {
    if (shift) return vi_or(masked(vi_shr(first, 4), 0x0f0f0f0fu), masked(second, 0xf0f0f0f0u));
    return vi_or(masked(first, 0x0f0f0f0fu), vi_shl(masked(second, 0x0f0f0f0fu), 4));
}

/* bit 4g + i -> byte i, bit g */
EI_INLINE vi bits_by_group(vi x) {
    vi out = vi_zero();
    EI_UNROLL for (int i = 0; i < 4; i++) {
        vi b = masked(vi_shr(x, i), 0x11111111u);
        b = masked(vi_or(b, vi_shr(b, 3)), 0x03030303u);
        b = masked(vi_or(b, vi_shr(b, 6)), 0x000f000fu);
        b = masked(vi_or(b, vi_shr(b, 12)), 0xffu);
        out = vi_or(out, vi_shl(b, 8 * i));
    }
    return out;
}

/* Bytes of n bits, in 8/n dwords -> 8/n planes: plane j, byte i, bits n*g: bits n*j of byte i of dword g. */
EI_INLINE void planes(const vi *in, int n, uint8_t (*out)[64], int step) {
    uint32_t mask = 0x01010101u * ((1u << n) - 1);
    EI_UNROLL for (int j = 0; j < 8 / n; j++) {
        vi plane = vi_zero();
        EI_UNROLL for (int g = 0; g < 8 / n; g++) {
            vi bits = masked(vi_shr(in[g], n * j), mask);
            plane = vi_or(plane, vi_shl(bits, n * g));
        }
        vi_store(out[step * j], plane);
    }
}

EI_INLINE void split_u16(vi x, uint16_t *low, uint16_t *high) {
    vi_to_u16(low, masked(x, 0xffffu));
    vi_to_u16(high, vi_shr(x, 16));
}

EI_INLINE void u16_rows(const uint8_t *p, size_t stride, uint16_t *out) {
    for (size_t r = 0; r < EI_LANES; r++) out[r] = load_u16(p + r * stride);
}

/* 4 bytes of each row to a plane of 16 each */
EI_INLINE void byte_rows(vi x, int8_t (*out)[16]) {
    EI_UNROLL for (int i = 0; i < 4; i++) {
        vi lifted = masked(vi_add(vi_shr(x, 8 * i), vi_set(128)), 0xff);
        vi_to_s8(out[i], vi_sub(lifted, vi_set(128)));
    }
}

EI_INLINE void store_planes(const vi *in, int n, uint8_t (*out)[64]) {
    EI_UNROLL for (int w = 0; w < n; w++) vi_store(out[w], in[w]);
}

/* 16 dwords of the 2-bit codes of Q2_K and Q3_K, and of the high bits of Q6_K */
EI_INLINE void two_bit_runs(const uint8_t *p, size_t stride, uint8_t (*out)[64]) {
    EI_UNROLL for (int half = 0; half < 4; half++) {
        vi in[4];
        dwords(p + 16 * half, stride, 4, in);
        planes(in, 2, out + 8 * (half / 2) + half % 2, 2);
    }
}

EI_INLINE void high_bits(const uint8_t *p, size_t stride, uint8_t (*out)[64]) {
    vi in[8];
    dwords(p, stride, 8, in);
    planes(in, 1, out, 1);
}

/* the nibbles of Q4_K and Q5_K */
EI_INLINE void k_codes(const uint8_t *p, size_t stride, uint8_t (*out)[4][64]) {
    for (int pair = 0; pair < 4; pair++) {
        vi in[8];
        dwords(p + 32 * pair, stride, 8, in);
        EI_UNROLL for (int j = 0; j < 2; j++) EI_UNROLL for (int g = 0; g < 4; g++)
            vi_store(out[2 * pair + j][g], nibble_pair(in[g], in[g + 4], 4 * j));
    }
}

EI_INLINE void codes_16(const uint8_t *p, size_t stride, uint8_t (*out)[64]) {
    vi in[4];
    dwords(p, stride, 4, in);
    store_planes(in, 4, out);
}

EI_INLINE void block_q4_0_rows(const uint8_t *p, size_t stride, x_q4_0 *x) {
    u16_rows(p, stride, x->d);
    codes_16(p + 2, stride, x->codes);
}
EI_INLINE void block_q4_1_rows(const uint8_t *p, size_t stride, x_q4_1 *x) {
    vi head[4];
    dwords(p, stride, 4, head);
    split_u16(head[0], x->d, x->m);
    codes_16(p + 4, stride, x->codes);
}
EI_INLINE void block_q5_0_rows(const uint8_t *p, size_t stride, x_q5_0 *x) {
    vi head[4];
    dwords(p + 2, stride, 4, head);
    u16_rows(p, stride, x->d);
    vi_store(x->high, bits_by_group(head[0]));
    codes_16(p + 6, stride, x->codes);
}
EI_INLINE void block_q5_1_rows(const uint8_t *p, size_t stride, x_q5_1 *x) {
    vi head[4];
    dwords(p, stride, 4, head);
    split_u16(head[0], x->d, x->m);
    vi_store(x->high, bits_by_group(head[1]));
    codes_16(p + 8, stride, x->codes);
}
EI_INLINE void block_q8_0_rows(const uint8_t *p, size_t stride, x_q8_0 *x) {
    u16_rows(p, stride, x->d);
    codes_16(p + 2, stride, (uint8_t (*)[64])x->codes);
    codes_16(p + 18, stride, (uint8_t (*)[64])x->codes + 4);
}
EI_INLINE void block_q2_k_rows(const uint8_t *p, size_t stride, x_q2_k *x) {
    vi scales[4], tail[4];
    dwords(p, stride, 4, scales);
    dwords(p + 68, stride, 4, tail);
    split_u16(tail[3], x->d, x->dmin);
    EI_UNROLL for (int w = 0; w < 4; w++) byte_rows(scales[w], (int8_t (*)[16])x->scales + 4 * w);
    two_bit_runs(p + 16, stride, x->codes);
}
EI_INLINE void block_q3_k_rows(const uint8_t *p, size_t stride, x_q3_k *x) {
    vi tail[4]; /* the last of the codes, then the scales */
    dwords(p + 92, stride, 4, tail);
    u16_rows(p + 108, stride, x->d);
    store_planes(tail + 1, 3, x->scales);
    two_bit_runs(p + 32, stride, x->codes);
    high_bits(p, stride, x->high);
}
EI_INLINE void block_q4_k_rows(const uint8_t *p, size_t stride, x_q4_k *x) {
    vi head[4];
    dwords(p, stride, 4, head);
    split_u16(head[0], x->d, x->dmin);
    store_planes(head + 1, 3, x->scales);
    k_codes(p + 16, stride, x->codes);
}
EI_INLINE void block_q5_k_rows(const uint8_t *p, size_t stride, x_q5_k *x) {
    vi head[4];
    dwords(p, stride, 4, head);
    split_u16(head[0], x->d, x->dmin);
    store_planes(head + 1, 3, x->scales);
    high_bits(p + 16, stride, x->high);
    k_codes(p + 48, stride, x->codes);
}
EI_INLINE void block_q6_k_rows(const uint8_t *p, size_t stride, x_q6_k *x) {
    vi scales[4];
    u16_rows(p + 208, stride, x->d);
    for (int i = 0; i < 8; i++) {
        vi in[4];
        uint8_t (*low)[2][64] = x->low + 8 * (i / 4) + i % 4;
        dwords(p + 16 * i, stride, 4, in);
        EI_UNROLL for (int half = 0; half < 2; half++) EI_UNROLL for (int g = 0; g < 2; g++)
            vi_store(low[4 * half][g], nibble_pair(in[g], in[g + 2], 4 * half));
    }
    two_bit_runs(p + 128, stride, x->high);
    dwords(p + 192, stride, 4, scales);
    EI_UNROLL for (int w = 0; w < 4; w++) byte_rows(scales[w], x->scales + 4 * w);
}
EI_INLINE void block_iq4_xs_rows(const uint8_t *p, size_t stride, x_iq4_xs *x) {
    vi head[4];
    dwords(p, stride, 4, head);
    split_u16(head[0], x->d, x->scales_high);
    vi_store(x->scales_low, head[1]);
    for (int j = 0; j < 8; j++) codes_16(p + 8 + 16 * j, stride, x->codes[j]);
}
EI_INLINE void block_mxfp4_rows(const uint8_t *p, size_t stride, x_mxfp4 *x) {
    for (size_t r = 0; r < EI_LANES; r++) x->e[r] = p[r * stride];
    codes_16(p + 1, stride, x->codes);
}

/* Float formats have no blocks: 16 bytes of each row at once. */
EI_INLINE void block_f32_rows(const uint8_t *p, size_t stride, x_f32 *x) { codes_16(p, stride, (uint8_t (*)[64])x); }
EI_INLINE void block_f16_rows(const uint8_t *p, size_t stride, x_f16 *x) {
    vi in[4];
    dwords(p, stride, 4, in);
    EI_UNROLL for (int w = 0; w < 4; w++) split_u16(in[w], x[2 * w].w, x[2 * w + 1].w);
}

/* 16 streams are more than the hardware follows: fetch, in one, what the next group will read. */
EI_INLINE void fetch_ahead(const uint8_t *next, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
}

/* `bytes` of each row at once */
#define REPACK(name, bytes)                                                                                            \
    static void repack_##name(const uint8_t *rows, size_t row_bytes, uint8_t *group) {                                 \
        for (size_t at = 0; at < row_bytes; at += (bytes)) {                                                           \
            fetch_ahead(rows + EI_LANES * (row_bytes + at), EI_LANES * (bytes));                                       \
            block_##name##_rows(rows + at, row_bytes, (x_##name *)(group + EI_LANES * at));                            \
        }                                                                                                              \
    }
REPACK(f32, 16)
REPACK(f16, 16)
REPACK(q4_0, sizeof(block_q4_0))
REPACK(q4_1, sizeof(block_q4_1))
REPACK(q5_0, sizeof(block_q5_0))
REPACK(q5_1, sizeof(block_q5_1))
REPACK(q8_0, sizeof(block_q8_0))
REPACK(q2_k, sizeof(block_q2_k))
REPACK(q3_k, sizeof(block_q3_k))
REPACK(q4_k, sizeof(block_q4_k))
REPACK(q5_k, sizeof(block_q5_k))
REPACK(q6_k, sizeof(block_q6_k))
REPACK(iq4_xs, sizeof(block_iq4_xs))
REPACK(mxfp4, sizeof(block_mxfp4))
#undef REPACK

static const ei_repack_fn EI_FN(repack)[EI_N_FORMATS] = {
    [EI_F32] = repack_f32,   [EI_F16] = repack_f16,     [EI_BF16] = repack_f16,      [EI_Q4_0] = repack_q4_0,
    [EI_Q4_1] = repack_q4_1, [EI_Q5_0] = repack_q5_0,   [EI_Q5_1] = repack_q5_1,     [EI_Q8_0] = repack_q8_0,
    [EI_Q2_K] = repack_q2_k, [EI_Q3_K] = repack_q3_k,   [EI_Q4_K] = repack_q4_k,     [EI_Q5_K] = repack_q5_k,
    [EI_Q6_K] = repack_q6_k, [EI_IQ4_NL] = repack_q4_0, [EI_IQ4_XS] = repack_iq4_xs, [EI_MXFP4] = repack_mxfp4,
};
