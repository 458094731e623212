/* edgeinfer/csrc/isa/plane_verbs.h: scales and fine activations of the levels whose va holds 32-bit sums: the scale is
 * multiplied in as a float, and fine activations are two planes. Meanings: scalar_verbs.h. */
#define EI_FINE_WORDS 0

EI_INLINE vi vi_byte(vi x, int j) { return vi_and(vi_shr(x, 8 * j), vi_set(0xff)); }
typedef vf vs;
EI_INLINE vs vs_from_u16(vi c) { return vf_from_vi(c); }
EI_INLINE vs vs_from_s16(vi c) { return vf_from_vi(c); }
EI_INLINE vs vs_from_byte(vi x, int j) { return vs_from_u16(vi_byte(x, j)); }
EI_INLINE vi va_flush_by(vi sum, va x, vs c) {
    (void)c;
    return va_flush(sum, x);
}
EI_INLINE vf vs_scaled(vi sum, vs c) { return vf_mul(vf_from_vi(sum), c); }

typedef vb vw;
EI_INLINE vw vw_from_u8(vb x) { return x; }
EI_INLINE vw vw_from_s8(vb x) { return x; }
EI_INLINE vi vw_dot(vi sum, vw w, const int16_t *x) {
    (void)w, (void)x;
    return sum;
}
