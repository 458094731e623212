/* edgeinfer/csrc/ops/encode_search_template.h: find the scale (and the minimum) with which codes stand for a run of
 * values best: the least sum of w*(x - scale*code - min)^2.
 *
 * The including file defines the verbs (isa/scalar_verbs.h). A run is [k][lane], each lane a run of its own. A step of
 * every search rounds the values to codes by one scale, then solves for the best scale of those codes: the sums that
 * the solution needs also tell the error that is left, up to the constant sum of w*x*x.
 */

/* What codes stand for: whole numbers of low .. high, or the values of a table, which low and high bound. */
typedef enum { WHOLE, IQ4, FP4 } code_kind;
typedef struct {
    code_kind kind;
    float low, high;
} code_values;

typedef const float (*run_of)[EI_LANES];

enum { IQ4_N = 16, FP4_N = 8 };

/* The value nearest to t. */
EI_INLINE vf nearest_iq4(vf t) {
    vf value = vf_set(ei_iq4_values[0]);
    for (int i = 1; i < IQ4_N; i++)
        value = vf_select_ge(t, vf_set(0.5f * (float)(ei_iq4_values[i - 1] + ei_iq4_values[i])),
                             vf_set(ei_iq4_values[i]), value);
    return value;
}
EI_INLINE vf nearest_fp4(vf t) {
    vf magnitude = vf_abs(t), value = vf_zero();
    for (int i = 1; i < FP4_N; i++)
        value = vf_select_ge(magnitude, vf_set(0.5f * (float)(ei_fp4_values[i - 1] + ei_fp4_values[i])),
                             vf_set(ei_fp4_values[i]), value);
    return vf_signed_as(value, t);
}

/* The value nearest to x*by. Adding 1.5 * 2^23 rounds to a whole number. */
EI_INLINE vf nearest(code_values values, vf x, vf by) {
    if (values.kind == IQ4) return nearest_iq4(vf_mul(x, by));
    if (values.kind == FP4) return nearest_fp4(vf_mul(x, by));
    float magic = 12582912.0f;
    vf t = vf_fma(x, by, vf_set(magic));
    t = vf_max(vf_min(t, vf_set(magic + values.high)), vf_set(magic + values.low));
    return vf_sub(t, vf_set(magic));
}

/* Its code. */
EI_INLINE vi code_of(code_values values, vf value) {
    if (values.kind == WHOLE) return vi_sub(vi_round(value), vi_set((int32_t)values.low));
    vf code = vf_zero();
    if (values.kind == IQ4) {
        for (int i = 1; i < IQ4_N; i++) code = vf_select_ge(value, vf_set(ei_iq4_values[i]), vf_set((float)i), code);
        return vi_round(code);
    }
    for (int i = 1; i < FP4_N; i++)
        code = vf_select_ge(vf_abs(value), vf_set(ei_fp4_values[i]), vf_set((float)i), code);
    return vi_or(vi_round(code), vi_shl(vi_shr(vf_bits(value), 31), 3));
}

/* a/b, and 0 where b is too small. */
EI_INLINE vf ratio(vf a, vf b) { return vf_mul(a, inverse_of(b)); }

EI_INLINE void extremes(run_of x, int n, vf *low, vf *high) {
    *low = *high = vf_load(x[0]);
    for (int k = 1; k < n; k++) {
        *low = vf_min(vf_load(x[k]), *low);
        *high = vf_max(vf_load(x[k]), *high);
    }
}

/* -- a scale alone -------------------------------------------------------------------------- */

/* A scale, what it takes from the sum of w*x*x, and the sum of w*code*code. */
typedef struct {
    vf scale, gain, squares;
} scale_fit;

/* Sums over a run of w*x*code and w*code*code. */
typedef struct {
    vf products, squares;
} scale_sums;

EI_INLINE scale_sums sums_by_scale(run_of x, run_of w, int n, code_values values, vf inverse) {
    scale_sums sums = {vf_zero(), vf_zero()};
    for (int k = 0; k < n; k++) {
        vf value = vf_load(x[k]), code = nearest(values, value, inverse), weighted = vf_mul(vf_load(w[k]), code);
        sums.products = vf_fma(weighted, value, sums.products);
        sums.squares = vf_fma(weighted, code, sums.squares);
    }
    return sums;
}

/* Round by `inverse`, solve for the scale, and keep it where it is at least as good. */
EI_INLINE void try_scale(run_of x, run_of w, int n, code_values values, vf inverse, scale_fit *best) {
    scale_sums sums = sums_by_scale(x, w, n, values, inverse);
    vf scale = ratio(sums.products, sums.squares), gain = vf_mul(scale, sums.products);
    best->scale = vf_select_ge(gain, best->gain, scale, best->scale);
    best->squares = vf_select_ge(gain, best->gain, sums.squares, best->squares);
    best->gain = vf_select_ge(gain, best->gain, gain, best->gain);
}

/* The first scales to try put the value of largest magnitude where the code would be first, first + step, ... */
typedef struct {
    float first, step;
    int n;
} targets;

/* Both: also with the opposite sign. rounds: how often the best is refined. */
EI_INLINE scale_fit find_scale(run_of x, run_of w, int n, code_values values, targets at, bool both, int rounds) {
    vf low, high;
    extremes(x, n, &low, &high);
    vf largest = vf_select_ge(high, vf_sub(vf_zero(), low), high, low), unit = inverse_of(largest);
    scale_fit best = {vf_zero(), vf_zero(), vf_zero()};
    for (int i = 0; i < at.n; i++) {
        float target = at.first + at.step * (float)i;
        try_scale(x, w, n, values, vf_mul(unit, vf_set(target)), &best);
        if (both) try_scale(x, w, n, values, vf_mul(unit, vf_set(-target)), &best);
    }
    for (int i = 0; i < rounds; i++) try_scale(x, w, n, values, inverse_of(best.scale), &best);
    return best;
}

/* -- a scale and a minimum ------------------------------------------------------------------ */

/* x ~ scale*code + min, code 0 .. high. spread: the sum of w*code*code. */
typedef struct {
    vf scale, min, gain, spread;
} min_fit;

/* What does not change with the codes: sums of w and of w*x. */
typedef struct {
    vf w, wx;
} run_sums;

EI_INLINE run_sums sums_of(run_of x, run_of w, int n) {
    run_sums sums = {vf_zero(), vf_zero()};
    for (int k = 0; k < n; k++) {
        sums.w = vf_add(sums.w, vf_load(w[k]));
        sums.wx = vf_fma(vf_load(w[k]), vf_load(x[k]), sums.wx);
    }
    return sums;
}

EI_INLINE vf at_or_above(vf x, vf min, vf inverse, float high) {
    float magic = 12582912.0f;
    vf t = vf_fma(vf_sub(x, min), inverse, vf_set(magic));
    return vf_sub(vf_max(vf_min(t, vf_set(magic + high)), vf_set(magic)), vf_set(magic));
}

/* Sums over a run of w*code, w*code*code and w*x*code. */
typedef struct {
    vf codes, squares, products;
} min_sums;

EI_INLINE min_sums sums_by_min(run_of x, run_of w, int n, float high, vf inverse, vf min) {
    min_sums sums = {vf_zero(), vf_zero(), vf_zero()};
    for (int k = 0; k < n; k++) {
        vf value = vf_load(x[k]), code = at_or_above(value, min, inverse, high);
        vf weighted = vf_mul(vf_load(w[k]), code);
        sums.codes = vf_add(sums.codes, weighted);
        sums.squares = vf_fma(weighted, code, sums.squares);
        sums.products = vf_fma(weighted, value, sums.products);
    }
    return sums;
}

/* below: the minimum may not be above 0. */
EI_INLINE void try_min(run_of x, run_of w, int n, float high, const run_sums *sums, bool below, vf inverse, vf min,
                       min_fit *best) {
    min_sums by_code = sums_by_min(x, w, n, high, inverse, min);
    vf codes = by_code.codes, squares = by_code.squares, products = by_code.products;
    vf whole = vf_mul(sums->w, squares), determinant = vf_fnma(codes, codes, whole);
    vf usable = vf_sub(determinant, vf_mul(whole, vf_set(0x1p-18f)));
    vf by = inverse_of(vf_select_ge(usable, vf_zero(), determinant, vf_zero()));
    vf scale = vf_mul(vf_fnma(sums->wx, codes, vf_mul(sums->w, products)), by);
    vf level = vf_mul(vf_fnma(codes, products, vf_mul(squares, sums->wx)), by);
    /* all codes equal, or a minimum where none may be: the better of a minimum alone and a scale alone */
    vf mean = ratio(sums->wx, sums->w);
    if (below) mean = vf_min(mean, vf_zero());
    vf alone = ratio(products, squares), flat = vf_mul(mean, sums->wx), sloped = vf_mul(alone, products);
    vf one_scale = vf_select_ge(flat, sloped, vf_zero(), alone), one_min = vf_select_ge(flat, sloped, mean, vf_zero());
    vf both = vf_select_ge(by, vf_set(0x1p-126f), vf_set(1.0f), vf_zero());
    if (below) both = vf_select_ge(vf_zero(), level, both, vf_zero());
    scale = vf_select_ge(both, vf_set(1.0f), scale, one_scale);
    level = vf_select_ge(both, vf_set(1.0f), level, one_min);
    vf gain = vf_fma(scale, products, vf_mul(level, sums->wx));
    best->scale = vf_select_ge(gain, best->gain, scale, best->scale);
    best->min = vf_select_ge(gain, best->gain, level, best->min);
    best->spread = vf_select_ge(gain, best->gain, squares, best->spread);
    best->gain = vf_select_ge(gain, best->gain, gain, best->gain);
}

EI_INLINE min_fit find_min(run_of x, run_of w, int n, float codes_high, bool below, targets at, int rounds) {
    vf low, high;
    extremes(x, n, &low, &high);
    if (below) low = vf_min(low, vf_zero());
    vf unit = inverse_of(vf_sub(high, low));
    run_sums sums = sums_of(x, w, n);
    min_fit best = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int i = 0; i < at.n; i++)
        try_min(x, w, n, codes_high, &sums, below, vf_mul(unit, vf_set(at.first + at.step * (float)i)), low, &best);
    for (int i = 0; i < rounds; i++)
        try_min(x, w, n, codes_high, &sums, below, inverse_of(best.scale), best.min, &best);
    return best;
}
