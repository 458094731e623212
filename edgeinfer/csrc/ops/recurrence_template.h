/* edgeinfer/csrc/ops/recurrence_template.h: what takes the state of a sequence from one row to the next.
 *
 * The including file defines EI_ISA, EI_FN, the verbs (isa/scalar_verbs.h) and ops/math_template.h. Lanes are columns
 * of the state, so no sum crosses lanes and a result does not depend on how columns are cut. The law, column by column:
 *   convolve  y = taps[0]*weight[0]; for each tap after it: y = fma(taps[j], weight[j], y); y = y + bias
 *   scan      t = softplus(dt + dt_bias), keep = exp(a*t), u = t*x, y = 0; for each row i of the state, in order:
 *             s = fma(u, b[i], s*keep), y = fma(s, c[i], y); at the end y = fma(d, x, y)
 *   delta     keep = exp(g), h = 0; for each row i, in order: s = s*keep, h = fma(s, k[i], h); then r = (v - h)*beta,
 *             y = 0; for each row i, in order: s = fma(k[i], r, s), y = fma(q[i]*scale, s, y)
 * The state is read from `from` and left in `state`, which may be the same.
 */

/* Vectors of columns whose chains of fma run side by side. */
enum { EI_SIDE_BY_SIDE = 4 };

/* w is a constant after inlining: EI_SIDE_BY_SIDE, all lanes of each, or 1, of which n lanes. */
EI_INLINE vf load_columns(const float *p, int w, int32_t n) { return w == 1 ? vf_load_n(p, n) : vf_load(p); }
EI_INLINE void store_columns(float *p, vf a, int w, int32_t n) {
    if (w == 1)
        vf_store_n(p, a, n);
    else
        vf_store(p, a);
}

EI_INLINE void convolve_columns(const float *const *taps, int32_t n_taps, const float *weight, int32_t stride,
                                const float *bias, float *y, int32_t at, int w, int32_t lanes) {
    vf sum = vf_mul(load_columns(taps[0] + at, w, lanes), load_columns(weight + at, w, lanes));
    for (int32_t j = 1; j < n_taps; j++) {
        const float *by = weight + (size_t)j * (size_t)stride;
        sum = vf_fma(load_columns(taps[j] + at, w, lanes), load_columns(by + at, w, lanes), sum);
    }
    if (bias) sum = vf_add(sum, load_columns(bias + at, w, lanes));
    store_columns(y + at, sum, w, lanes);
}

static void EI_FN(convolve)(const float *const *taps, int32_t n_taps, const float *weight, int32_t stride,
                            const float *bias, float *y, int32_t n) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) convolve_columns(taps, n_taps, weight, stride, bias, y, i, 0, 16);
    if (i < n) convolve_columns(taps, n_taps, weight, stride, bias, y, i, 1, n - i);
}

EI_INLINE void scan_columns(const float *from, float *state, int32_t stride, int32_t n_rows, int w, int32_t lanes,
                            const ei_scan *in, const float *x, vf t, float keep, float *y) {
    vf u[EI_SIDE_BY_SIDE], sum[EI_SIDE_BY_SIDE];
    EI_UNROLL for (int c = 0; c < w; c++) {
        u[c] = vf_mul(t, load_columns(x + 16 * c, w, lanes));
        sum[c] = vf_zero();
    }
    for (int32_t i = 0; i < n_rows; i++) {
        size_t at = (size_t)i * (size_t)stride;
        vf by = vf_set(keep), b = vf_set(in->b[i]), out = vf_set(in->c[i]);
        EI_UNROLL for (int c = 0; c < w; c++) {
            vf s = vf_fma(u[c], b, vf_mul(load_columns(from + at + 16 * c, w, lanes), by));
            store_columns(state + at + 16 * c, s, w, lanes);
            sum[c] = vf_fma(s, out, sum[c]);
        }
    }
    EI_UNROLL for (int c = 0; c < w; c++) {
        vf through = vf_fma(vf_set(in->d), load_columns(x + 16 * c, w, lanes), sum[c]);
        store_columns(y + 16 * c, through, w, lanes);
    }
}

static void EI_FN(scan)(const float *from, float *state, int32_t stride, int32_t n_rows, int32_t n, const ei_scan *in,
                        float *y) {
    vf t = vf_softplus(vf_set(in->dt + in->dt_bias));
    float keep[16];
    vf_store(keep, vf_exp(vf_mul(vf_set(in->a), t)));
    int32_t i = 0, side = 16 * EI_SIDE_BY_SIDE;
    for (; i + side <= n; i += side)
        scan_columns(from + i, state + i, stride, n_rows, EI_SIDE_BY_SIDE, 16, in, in->x + i, t, keep[0], y + i);
    for (; i < n; i += 16)
        scan_columns(from + i, state + i, stride, n_rows, 1, min_i32(16, n - i), in, in->x + i, t, keep[0], y + i);
}

EI_INLINE void delta_columns(const float *from, float *state, int32_t stride, int32_t n_rows, int w, int32_t lanes,
                             const ei_delta *in, const float *v, float keep, float *y) {
    vf held[EI_SIDE_BY_SIDE], r[EI_SIDE_BY_SIDE], sum[EI_SIDE_BY_SIDE];
    EI_UNROLL for (int c = 0; c < w; c++) held[c] = sum[c] = vf_zero();
    for (int32_t i = 0; i < n_rows; i++) {
        const float *row = from + (size_t)i * (size_t)stride;
        vf by = vf_set(keep), k = vf_set(in->k[i]);
        EI_UNROLL for (int c = 0; c < w; c++) held[c] =
            vf_fma(vf_mul(load_columns(row + 16 * c, w, lanes), by), k, held[c]);
    }
    EI_UNROLL for (int c = 0; c < w; c++) r[c] =
        vf_mul(vf_sub(load_columns(v + 16 * c, w, lanes), held[c]), vf_set(in->beta));
    for (int32_t i = 0; i < n_rows; i++) {
        size_t at = (size_t)i * (size_t)stride;
        vf by = vf_set(keep), k = vf_set(in->k[i]), q = vf_set(in->q[i] * in->scale);
        EI_UNROLL for (int c = 0; c < w; c++) {
            vf s = vf_fma(k, r[c], vf_mul(load_columns(from + at + 16 * c, w, lanes), by));
            store_columns(state + at + 16 * c, s, w, lanes);
            sum[c] = vf_fma(q, s, sum[c]);
        }
    }
    EI_UNROLL for (int c = 0; c < w; c++) store_columns(y + 16 * c, sum[c], w, lanes);
}

static void EI_FN(delta)(const float *from, float *state, int32_t stride, int32_t n_rows, int32_t n, const ei_delta *in,
                         float *y) {
    float keep = exp_of(in->g);
    int32_t i = 0, side = 16 * EI_SIDE_BY_SIDE;
    for (; i + side <= n; i += side)
        delta_columns(from + i, state + i, stride, n_rows, EI_SIDE_BY_SIDE, 16, in, in->v + i, keep, y + i);
    for (; i < n; i += 16)
        delta_columns(from + i, state + i, stride, n_rows, 1, min_i32(16, n - i), in, in->v + i, keep, y + i);
}
