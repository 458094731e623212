/* edgeinfer/csrc/ops/matmul_codes_template.h: the codes and the sub-block scales of an X block, as vectors of 16 rows.
 *
 * The including file defines the verbs (isa/scalar_verbs.h). The layouts are those of formats.h.
 */

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

EI_INLINE vb group_mxfp4(const x_mxfp4 *b, int j, int g) {
    (void)j;
    return vb_lookup(nibbles(b->codes, g), ei_fp4_biased);
}
EI_INLINE vb group_nvfp4(const x_nvfp4 *b, int j, int g) {
    vb both = vb_load(b->codes[2 * j + g / 4][g % 2]);
    return vb_lookup(g % 4 < 2 ? vb_and(both, 0x0f) : vb_shr_and(both, 4, 0x0f), ei_fp4_biased);
}

EI_INLINE vb group_tq2_0(const x_tq2_0 *b, int j, int g) {
    return vb_shr_and(vb_load(b->codes[2 * j + g / 4]), 2 * (g % 4), 0x03);
}

/* ---- sub-block scales and mins of a super-block ---- */

/* Of every sub-block of 32 or of 16. by and scale are the same integers, in two forms; biased is scale times the bias
 * of the codes. */
typedef struct {
    vs by[16];
    vf scale[16], biased[16], min[16];
} super;

/* the 6-bit scales and mins of Q4_K and Q5_K */
EI_INLINE void scales_k4(const uint8_t raw[3][64], super *s) {
    vi r0 = vi_load(raw[0]), r1 = vi_load(raw[1]), r2 = vi_load(raw[2]);
    vi six = vi_set(0x3f3f3f3f), low = vi_set(0x0f0f0f0f), top = vi_set(0x30303030);
    vi scale[2] = {vi_and(r0, six), vi_or(vi_and(r2, low), vi_and(vi_shr(r0, 2), top))};
    vi min[2] = {vi_and(r1, six), vi_or(vi_and(vi_shr(r2, 4), low), vi_and(vi_shr(r1, 2), top))};
    EI_UNROLL for (int j = 0; j < 8; j++) {
        s->by[j] = vs_from_byte(scale[j / 4], j % 4);
        s->scale[j] = vf_from_vi(vi_byte(scale[j / 4], j % 4));
        s->min[j] = vf_from_vi(vi_byte(min[j / 4], j % 4));
    }
}
EI_INLINE void scales_q4_k(const x_q4_k *b, super *s) { scales_k4(b->scales, s); }
EI_INLINE void scales_q5_k(const x_q5_k *b, super *s) { scales_k4(b->scales, s); }
EI_INLINE void scales_q2_k(const x_q2_k *b, super *s) {
    EI_UNROLL for (int j = 0; j < 16; j++) {
        vi both = vi_from_u8(b->scales[j]), c = vi_and(both, vi_set(15));
        s->by[j] = vs_from_u16(c);
        s->scale[j] = vf_from_vi(c);
        s->min[j] = vf_from_vi(vi_shr(both, 4));
    }
}
EI_INLINE void signed_scale(vi c, int j, float bias, super *s) {
    s->by[j] = vs_from_s16(c);
    s->scale[j] = vf_from_vi(c);
    s->biased[j] = vf_mul(s->scale[j], vf_set(bias));
}
EI_INLINE void scales_q3_k(const x_q3_k *b, super *s) {
    vi raw[2] = {vi_load(b->scales[0]), vi_load(b->scales[1])}, high = vi_load(b->scales[2]);
    EI_UNROLL for (int j = 0; j < 16; j++) {
        vi low = vi_and(vi_shr(raw[j / 4 % 2], 8 * (j % 4) + 4 * (j / 8)), vi_set(15));
        vi top = vi_and(vi_shr(high, 8 * (j % 4) + 2 * (j / 4)), vi_set(3));
        signed_scale(vi_sub(vi_or(low, vi_shl(top, 4)), vi_set(32)), j, 4, s);
    }
}
EI_INLINE void scales_q6_k(const x_q6_k *b, super *s) {
    EI_UNROLL for (int j = 0; j < 16; j++) signed_scale(vi_from_s8(b->scales[j]), j, 32, s);
}
EI_INLINE void scales_iq4_xs(const x_iq4_xs *b, super *s) {
    vi low = vi_load(b->scales_low), high = vi_from_u16(b->scales_high);
    EI_UNROLL for (int j = 0; j < 8; j++) {
        vi six = vi_or(vi_and(vi_shr(low, 4 * j), vi_set(15)), vi_shl(vi_and(vi_shr(high, 2 * j), vi_set(3)), 4));
        signed_scale(vi_sub(six, vi_set(32)), j, EI_SIGNED_BIAS, s);
    }
}
/* of codes that are 1 too large */
EI_INLINE void scales_tq2_0(const x_tq2_0 *b, super *s) {
    (void)b;
    EI_UNROLL for (int j = 0; j < 16; j++) signed_scale(vi_set(1), j, 1, s);
}

/* ---- scales of 4-bit floats ---- */

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
