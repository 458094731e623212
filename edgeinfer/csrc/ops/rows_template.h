/* edgeinfer/csrc/ops/rows_template.h: what is done to rows of floats: quantize, norm, add, activate, turn.
 *
 * The including file defines EI_ISA, EI_FN, the verbs (isa/scalar_verbs.h) and ops/math_template.h. A tail runs through
 * the same vector steps on its first lanes, and a lane past the end adds nothing, so a result does not depend on how a
 * row is cut.
 */

/* -- quantize ------------------------------------------------------------------------------- */

EI_INLINE void store_codes(int8_t *plane, int32_t w, int32_t run, vi codes) {
    int8_t *q = plane + (size_t)run * EI_RUN_LEN * (size_t)w;
    if (w == 1) {
        vi_to_s8(q, codes);
        return;
    }
    int8_t bytes[EI_RUN_LEN];
    vi_to_s8(bytes, codes);
    for (int g = 0; g < EI_RUN_LEN / 4; g++) store_u32(q + (size_t)g * 4 * (size_t)w, load_u32(bytes + 4 * g));
}

/* The order of words: k, k+2, k+1, k+3 (kernels.h). */
EI_INLINE void store_words(int16_t *plane, int32_t w, int32_t run, vi codes) {
    int32_t lanes[EI_RUN_LEN];
    vi_store(lanes, codes);
    int16_t *at = plane + (size_t)run * EI_RUN_LEN * (size_t)w;
    for (int g = 0; g < EI_RUN_LEN / 4; g++, at += 4 * w)
        for (int i = 0; i < 4; i++) at[i] = (int16_t)lanes[4 * g + i / 2 + i % 2 * 2];
}

enum { Q_MOST = 127, FINE = 128 };

/* d = max|x| / most, code = x * (most / max|x|) to nearest even; returns d * (sum of codes). |code| <= most: the two
 * roundings of the factor cannot carry it half a step further. A fine code is 128*q + low, q the nearest to code/128.
 * The maximum of |x| is taken on the bits, so an infinity or a NaN wins, lands in d, and reaches every output. Such a
 * run, and one too small for its factor to be finite, has all codes 0. */
EI_INLINE float quantize_run(const float *x, const ei_column *to, int32_t run) {
    vf values = vf_load(x);
    int32_t bits = vi_max_all(vf_bits(vf_abs(values)));
    float most = to->fine ? Q_MOST * FINE : Q_MOST;
    float amax = f32_from_bits((uint32_t)bits), d = amax / most, sum = 0.0f;
    vi codes = vi_zero();
    if (amax >= 0x1p-112f && bits < 0x7f800000) {
        codes = vi_round(vf_mul(values, vf_set(most / amax)));
        sum = vf_sum(vf_from_vi(codes));
    }
    if (to->low) {
        vi high = vi_round(vf_mul(vf_from_vi(codes), vf_set(1.0f / FINE)));
        store_codes(to->low, to->w, run, vi_sub(codes, vi_shl(high, 7)));
        codes = high;
    }
    if (to->words) store_words(to->words, to->w, run, codes);
    if (to->q) store_codes(to->q, to->w, run, codes);
    to->d[(size_t)run * (size_t)to->w] = d;
    to->sums[(size_t)run * (size_t)to->w] = sum;
    return d * sum;
}

EI_INLINE void quantize_block(const float *x, const ei_column *to, int32_t block) {
    float first = quantize_run(x, to, 2 * block), second = quantize_run(x + EI_RUN_LEN, to, 2 * block + 1);
    to->ds[(size_t)block * (size_t)to->w] = first + second;
}

static void store_values(const float *x, const ei_column *to, int32_t first, int32_t n) {
    if (to->w == 1) {
        memcpy(to->x + first, x, (size_t)n * sizeof *x);
        return;
    }
    float *at = to->x + (size_t)first * (size_t)to->w;
    for (int32_t i = 0; i < n; i++) at[(size_t)i * (size_t)to->w] = x[i];
}

static void EI_FN(quantize_part)(const float *x, int32_t token, int32_t first, int32_t n_blocks, ei_acts *acts) {
    ei_column to = column_of(acts, token);
    if (to.d)
        for (int32_t b = 0; b < n_blocks; b++) quantize_block(x + (size_t)b * EI_BLOCK, &to, first / EI_BLOCK + b);
    if (to.x) store_values(x, &to, first, n_blocks * EI_BLOCK);
}

static void EI_FN(quantize)(const float *x, int32_t token, ei_acts *acts) {
    ei_column to = column_of(acts, token);
    if (to.d)
        for (int32_t b = 0; b < acts->width / EI_BLOCK; b++) quantize_block(x + (size_t)b * EI_BLOCK, &to, b);
    if (to.x) store_values(x, &to, 0, acts->width);
}

/* -- elementwise ---------------------------------------------------------------------------- */

/* y[i ..] = EXPR(load, i) over n elements; load(p) reads 16 of them, or the tail. */
#define EI_MAP(EXPR)                                                                                                   \
    do {                                                                                                               \
        int32_t i = 0;                                                                                                 \
        for (; i + 16 <= n; i += 16) vf_store(y + i, EXPR(vf_load, i));                                                \
        if (i < n) vf_store_n(y + i, EXPR(EI_LOAD_TAIL, i), n - i);                                                    \
    } while (0)
#define EI_LOAD_TAIL(p) vf_load_n(p, n - i)

static void EI_FN(center)(const float *x, float *y, int32_t n) {
    vf sums = vf_zero();
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) sums = vf_add(sums, vf_load(x + i));
    if (i < n) sums = vf_add(sums, vf_load_n(x + i, n - i));
    vf mean = vf_set(vf_sum(sums) / (float)n);
#define CENTERED(load, i) vf_sub(load(x + (i)), mean)
    EI_MAP(CENTERED);
#undef CENTERED
}

static void EI_FN(rms_norm)(const float *x, const float *weight, float *y, int32_t n, float eps) {
    vf squares = vf_zero();
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vf v = vf_load(x + i);
        squares = vf_fma(v, v, squares);
    }
    if (i < n) {
        vf v = vf_load_n(x + i, n - i);
        squares = vf_fma(v, v, squares);
    }
    vf r = vf_set(1.0f / sqrtf(vf_sum(squares) / (float)n + eps));
#define WEIGHTED(load, i)   vf_mul(vf_mul(load(x + (i)), r), load(weight + (i)))
#define UNWEIGHTED(load, i) vf_mul(load(x + (i)), r)
    if (weight)
        EI_MAP(WEIGHTED);
    else
        EI_MAP(UNWEIGHTED);
#undef WEIGHTED
#undef UNWEIGHTED
}

static void EI_FN(add)(const float *a, const float *b, float alpha, float *y, int32_t n) {
    vf by = vf_set(alpha);
#define SUM(load, i) vf_add(load(a + (i)), vf_mul(by, load(b + (i))))
    EI_MAP(SUM);
#undef SUM
}

static void EI_FN(from_f16)(const uint16_t *x, float *y, int64_t n) {
    int64_t whole = n - n % EI_LANES;
    for (int64_t i = 0; i < whole; i += EI_LANES) vf_store(y + i, vf_from_f16(x + i));
    if (whole == n) return;
    uint16_t rest[EI_LANES] = {0};
    memcpy(rest, x + whole, (size_t)(n - whole) * sizeof *x);
    vf_store_n(y + whole, vf_from_f16(rest), (int)(n - whole));
}

static void EI_FN(multiply)(const float *a, const float *b, float *y, int32_t n) {
#define PRODUCT(load, i) vf_mul(load(a + (i)), load(b + (i)))
    EI_MAP(PRODUCT);
#undef PRODUCT
}

static void EI_FN(scale)(const float *x, float by, float softcap, float *y, int32_t n) {
    vf factor = vf_set(by);
#define SCALED(load, i) vf_mul(load(x + (i)), factor)
#define CAPPED(load, i) vf_softcap(vf_mul(load(x + (i)), factor), softcap, inverse)
    if (softcap > 0) {
        float inverse = 1.0f / softcap;
        EI_MAP(CAPPED);
    } else {
        EI_MAP(SCALED);
    }
#undef SCALED
#undef CAPPED
}

static void EI_FN(accumulate)(const float *x, float by, float *y, int32_t n) {
    vf factor = vf_set(by);
#define SUM(load, i) vf_fma(load(x + (i)), factor, load(y + (i)))
    EI_MAP(SUM);
#undef SUM
}

static void EI_FN(softmax)(const float *x, float *y, int32_t n) {
    float most = x[0];
    for (int32_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    vf top = vf_set(most), sum = vf_zero();
#define POWER(load, i) vf_exp(vf_sub(load(x + (i)), top))
    EI_MAP(POWER);
#undef POWER
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) sum = vf_add(sum, vf_load(y + i));
    if (i < n) sum = vf_add(sum, vf_load_n(y + i, n - i));
    vf total = vf_set(vf_sum(sum));
#define SHARE(load, i) vf_div(load(y + (i)), total)
    EI_MAP(SHARE);
#undef SHARE
}

/* fn and whether up is NULL are constants after inlining: one loop for each, without a branch. */
EI_INLINE void activate(int32_t fn, const float *gate, const float *up, float *y, int32_t n) {
#define ACTIVATED(load, i) vf_activated(fn, load(gate + (i)))
#define GATED(load, i)     vf_mul(vf_activated(fn, load(gate + (i))), load(up + (i)))
    if (up)
        EI_MAP(GATED);
    else
        EI_MAP(ACTIVATED);
#undef ACTIVATED
#undef GATED
}

#define EI_EACH_FUNCTION(X)                                                                                            \
    X(EI_SILU) X(EI_GELU_TANH) X(EI_GELU_ERF) X(EI_RELU) X(EI_RELU2) X(EI_SIGMOID) X(EI_TANH) X(EI_SOFTPLUS)

static void EI_FN(act)(int32_t fn, const float *x, float *y, int32_t n) {
#define CASE(id)                                                                                                       \
    case id: activate(id, x, NULL, y, n); break;
    switch (fn) { EI_EACH_FUNCTION(CASE) }
#undef CASE
}

static void EI_FN(gated)(int32_t fn, const float *gate, const float *up, float *y, int32_t n) {
#define CASE(id)                                                                                                       \
    case id: activate(id, gate, up, y, n); break;
    switch (fn) { EI_EACH_FUNCTION(CASE) }
#undef CASE
}

static void EI_FN(swiglu_oai)(const float *gate, const float *up, float alpha, float limit, float *y, int32_t n) {
    vf by = vf_set(alpha), one = vf_set(1.0f), high = vf_set(limit), low = vf_set(-limit);
#define CLAMPED(load, i)                                                                                               \
    vf_mul(vf_mul(vf_min(high, load(gate + (i))), vf_sigmoid(vf_mul(by, vf_min(high, load(gate + (i)))))),             \
           vf_add(vf_max(low, vf_min(high, load(up + (i)))), one))
    EI_MAP(CLAMPED);
#undef CLAMPED
}

/* -- rope ----------------------------------------------------------------------------------- */

/* (a, b) -> (a*c - b*s, a*s + b*c): the product with c resp. s of a is rounded, the other one is fused. */
static void rope_halves(float *x, int32_t n_pairs, const float *cosines, const float *sines) {
    float *low = x, *high = x + n_pairs;
    for (int32_t i = 0; i < n_pairs; i += 16) {
        int32_t n = min_i32(16, n_pairs - i);
        vf a = vf_load_n(low + i, n), b = vf_load_n(high + i, n);
        vf c = vf_load_n(cosines + i, n), s = vf_load_n(sines + i, n);
        vf_store_n(low + i, vf_fnma(b, s, vf_mul(a, c)), n);
        vf_store_n(high + i, vf_fma(b, c, vf_mul(a, s)), n);
    }
}

static void rope_neighbours(float *x, int32_t n_pairs, const float *cosines, const float *sines) {
    for (int32_t i = 0; i < n_pairs; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = sines[i];
        x[2 * i] = fmaf(-b, s, a * c);
        x[2 * i + 1] = fmaf(b, c, a * s);
    }
}

static void EI_FN(rope)(float *x, int32_t n_heads, int32_t dim, int32_t n_pairs, int32_t interleaved,
                        const float *cosines, const float *sines) {
    for (int32_t h = 0; h < n_heads; h++) {
        float *head = x + (size_t)h * (size_t)dim;
        if (interleaved)
            rope_neighbours(head, n_pairs, cosines, sines);
        else
            rope_halves(head, n_pairs, cosines, sines);
    }
}
