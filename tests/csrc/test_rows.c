/* tests/csrc/test_rows.c: every ISA's row kernels equal the law bit for bit; the law's functions are accurate. */
#include "inputs.h"
#include "law.h"

static const float special[] = {
    0.0f,   -0.0f,    1.0f,      -1.0f,   88.0f,    -88.0f, 87.0f,  -87.0f,  -86.99f, 20.0f,  1e-8f, -1e-8f,
    1e-38f, 1e-45f,   -1e-45f,   3.4e38f, -3.4e38f, 1e20f,  -1e20f, 0.3466f, 0.3465f, 5.5f,   -5.5f, 1e4f,
    -1e4f,  INFINITY, -INFINITY, NAN,     10.0f,    -10.0f, 173.3f, -173.3f, 13.2f,   -13.2f,
};
enum { N_SPECIAL = sizeof special / sizeof *special, LONGEST = 70 };

/* Rows of 1 .. 70 elements, each in a buffer that ends with the row. */
static float *row_of(guarded *g, int n, int round) {
    *g = guarded_new((size_t)n * 4);
    float *x = g->data;
    random_fill(x, (size_t)n, round % 3 == 0 ? 1.0f : round % 3 == 1 ? 12.0f : 120.0f);
    if (round % 2)
        for (int i = 0; i < n; i++)
            if (random_below(4) == 0) x[i] = special[random_below(N_SPECIAL)];
    return x;
}

static void expect_row(const char *isa, const char *what, int n, const float *got, const float *want) {
    for (int i = 0; i < n; i++)
        EXPECT(same(got[i], want[i]), "%s %s n=%d [%d]: %a, law %a", isa, what, n, i, got[i], want[i]);
}

static void test_functions(const ei_kernels *k, int n, int round) {
    guarded gx, gu, gy;
    float *x = row_of(&gx, n, round), *u = row_of(&gu, n, round), *y = row_of(&gy, n, 0), want[LONGEST];
    for (int32_t fn = 0; fn < EI_N_FUNCTIONS; fn++) {
        for (int i = 0; i < n; i++) want[i] = law_function(fn, x[i]);
        k->act(fn, x, y, n);
        expect_row(k->isa, "act", n, y, want);
        for (int i = 0; i < n; i++) want[i] *= u[i];
        k->gated(fn, x, u, y, n);
        expect_row(k->isa, "gated", n, y, want);
    }
    for (int i = 0; i < n; i++) {
        float g = x[i] > 7.0f ? 7.0f : x[i], v = u[i] > 7.0f ? 7.0f : u[i];
        v = v < -7.0f ? -7.0f : v;
        want[i] = g * law_sigmoid(1.702f * g) * (v + 1.0f);
    }
    k->swiglu_oai(x, u, 1.702f, 7.0f, y, n);
    expect_row(k->isa, "swiglu_oai", n, y, want);
    guarded_free(gx), guarded_free(gu), guarded_free(gy);
}

static void test_arithmetic(const ei_kernels *k, int n, int round) {
    guarded ga, gb, gy;
    float *a = row_of(&ga, n, round), *b = row_of(&gb, n, round), *y = row_of(&gy, n, 0), want[LONGEST] = {0};
    for (int i = 0; i < n; i++) want[i] = a[i] + 0.37f * b[i];
    k->add(a, b, 0.37f, y, n);
    expect_row(k->isa, "add", n, y, want);
    for (int i = 0; i < n; i++) want[i] = a[i] * b[i];
    k->multiply(a, b, y, n);
    expect_row(k->isa, "multiply", n, y, want);
    for (int i = 0; i < n; i++) want[i] = a[i] * 1.7f;
    k->scale(a, 1.7f, 0, y, n);
    expect_row(k->isa, "scale", n, y, want);
    for (int i = 0; i < n; i++) want[i] = law_softcap(a[i] * 1.7f, 30.0f);
    k->scale(a, 1.7f, 30.0f, y, n);
    expect_row(k->isa, "softcap", n, y, want);
    memcpy(want, y, (size_t)n * 4);
    for (int i = 0; i < n; i++) want[i] = fmaf(a[i], 0.37f, want[i]);
    k->accumulate(a, 0.37f, y, n);
    expect_row(k->isa, "accumulate", n, y, want);
    law_softmax(a, want, n);
    k->softmax(a, y, n);
    expect_row(k->isa, "softmax", n, y, want);
    law_center(a, want, n);
    k->center(a, y, n);
    expect_row(k->isa, "center", n, y, want);
    law_rms_norm(a, b, want, n, 1e-5f);
    k->rms_norm(a, b, y, n, 1e-5f);
    expect_row(k->isa, "rms_norm", n, y, want);
    law_rms_norm(a, NULL, want, n, 1e-6f);
    k->rms_norm(a, NULL, a, n, 1e-6f);
    expect_row(k->isa, "rms_norm in place", n, a, want);
    guarded_free(ga), guarded_free(gb), guarded_free(gy);
}

static void test_rope(const ei_kernels *k, int n_pairs, int round) {
    int dim = 2 * n_pairs + (round % 3), n_heads = 1 + round % 3, n = dim * n_heads;
    guarded gx, gc, gs;
    float *x = row_of(&gx, n, round), *c = row_of(&gc, n_pairs, 0), *s = row_of(&gs, n_pairs, 0);
    for (int32_t interleaved = 0; interleaved < 2; interleaved++) {
        float *want = malloc((size_t)n * 4);
        memcpy(want, x, (size_t)n * 4);
        for (int h = 0; h < n_heads; h++)
            for (int i = 0; i < n_pairs; i++) {
                float *head = want + h * dim;
                law_turn(head + (interleaved ? 2 * i : i), head + (interleaved ? 2 * i + 1 : i + n_pairs), c[i], s[i]);
            }
        k->rope(x, n_heads, dim, n_pairs, interleaved, c, s);
        expect_row(k->isa, interleaved ? "rope neighbours" : "rope halves", n, x, want);
        free(want);
    }
    guarded_free(gx), guarded_free(gc), guarded_free(gs);
}

/* The planes of n_tokens tokens, each ending at its guard page. */
typedef struct {
    guarded q, low, words, d, ds, sums, x;
    ei_acts acts;
} planes;

static planes planes_new(int32_t n_tokens, int32_t width, bool with_q, bool fine, bool words, bool with_x) {
    size_t n = (size_t)n_tokens * (size_t)width;
    planes p = {.q = guarded_new(n),
                .low = guarded_new(n),
                .words = guarded_new(2 * n),
                .d = guarded_new(n / 16 * 4),
                .sums = guarded_new(n / 16 * 4),
                .ds = guarded_new(n / 32 * 4),
                .x = guarded_new(n * 4),
                .acts = {.n_tokens = n_tokens, .width = width, .fine = fine}};
    if (with_q) p.acts.d = p.d.data, p.acts.ds = p.ds.data, p.acts.sums = p.sums.data;
    if (with_q && !(fine && words)) p.acts.q = p.q.data;
    if (with_q && words) p.acts.words = p.words.data;
    if (fine && !words) p.acts.low = p.low.data;
    if (with_x) p.acts.x = p.x.data;
    return p;
}

static void planes_free(planes *p) {
    guarded_free(p->q), guarded_free(p->low), guarded_free(p->words), guarded_free(p->d), guarded_free(p->ds);
    guarded_free(p->sums), guarded_free(p->x);
}

static void expect_planes(const char *isa, const planes *p, const float *x) {
    const ei_acts *a = &p->acts;
    for (int32_t t = 0; t < a->n_tokens; t++) {
        int32_t tile = t / 8, w = a->n_tokens - 8 * tile < 8 ? a->n_tokens - 8 * tile : 8, c = t % 8;
        const float *row = x + (size_t)t * (size_t)a->width;
        for (int32_t r = 0; a->d && r < a->width / 16; r++) {
            bool fine = a->fine;
            law_run want = law_quantize(row + 16 * r, fine), second = want;
            if (r % 2 == 0) second = law_quantize(row + 16 * r + 16, fine);
            int32_t at = tile * 8 * (a->width / 16) + r * w + c;
            EXPECT(same(a->d[at], want.d), "%s d: %a, law %a", isa, a->d[at], want.d);
            EXPECT(a->sums[at] == want.sum, "%s sum: %a, law %a", isa, a->sums[at], want.sum);
            at = tile * 8 * (a->width / 32) + r / 2 * w + c;
            float ds = want.d * want.sum + second.d * second.sum;
            EXPECT(r % 2 || same(a->ds[at], ds), "%s ds: %a, law %a", isa, a->ds[at], ds);
            for (int32_t i = 0; i < 16; i++) {
                int32_t k = 16 * r + i;
                int32_t group = tile * 8 * a->width + k / 4 * 4 * w + 4 * c, code = want.q[i];
                if (fine) code = 128 * want.q[i] + want.low[i];
                if (a->words) {
                    int32_t word = a->words[group + (k % 4 / 2) + k % 2 * 2];
                    EXPECT(word == code, "%s word of %a: %d, law %d", isa, row[k], word, code);
                }
                if (a->q) {
                    int32_t byte = a->q[group + k % 4];
                    if (a->low) byte = 128 * byte + a->low[group + k % 4];
                    EXPECT(byte == code, "%s code of %a: %d, law %d", isa, row[k], byte, code);
                }
            }
        }
        for (int32_t k = 0; a->x && k < a->width; k++)
            EXPECT(same(a->x[tile * 8 * a->width + k * w + c], row[k]), "%s x plane", isa);
    }
}

static void test_quantize(const ei_kernels *k, int32_t n_tokens, int32_t width, int round) {
    bool with_q = width % 32 == 0, with_x = !with_q || round % 2, fine = with_q && round / 2 % 2;
    planes p = planes_new(n_tokens, width, with_q, fine, k->fine_words, with_x);
    guarded gx;
    float *x = row_of(&gx, n_tokens * width, round);
    if (round % 5 == 4)
        for (int32_t i = 0; i < n_tokens * width; i++) x[i] *= i / 64 % 2 ? 1e-34f : 1e-36f;
    if (round % 7 == 6 && with_q) memset(x, 0, 32 * 4);
    for (int32_t t = n_tokens - 1; t >= 0; t--) k->quantize(x + (size_t)t * (size_t)width, t, &p.acts);
    expect_planes(k->isa, &p, x);
    if (with_q) {
        memset(p.q.data, 99, (size_t)n_tokens * (size_t)width);
        memset(p.words.data, 99, 2 * (size_t)n_tokens * (size_t)width);
        for (int32_t t = 0; t < n_tokens; t++)
            for (int32_t first = 0; first < width; first += 64)
                k->quantize_part(x + (size_t)t * (size_t)width + first, t, first, width - first < 64 ? 1 : 2, &p.acts);
        expect_planes(k->isa, &p, x);
    }
    planes_free(&p);
    guarded_free(gx);
}

static void test_isa(const ei_kernels *k) {
    for (int n = 1; n <= LONGEST; n++)
        for (int round = 0; round < 6; round++) {
            test_functions(k, n, round);
            test_arithmetic(k, n, round);
            test_rope(k, n, round);
        }
    static const int32_t widths[] = {32, 64, 96, 160, 256, 576, 8, 20, 45};
    for (int32_t n_tokens = 1; n_tokens <= 17; n_tokens++)
        for (int round = 0; round < 12; round++) test_quantize(k, n_tokens, widths[(n_tokens + round) % 9], round);
}

static double exact_function(int32_t fn, double x) {
    switch (fn) {
    case EI_SILU: return x / (1 + exp(-x));
    case EI_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case EI_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case EI_RELU: return x > 0 ? x : 0;
    case EI_RELU2: return x > 0 ? x * x : 0;
    case EI_SIGMOID: return 1 / (1 + exp(-x));
    case EI_TANH: return tanh(x);
    default: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    }
}

/* The law itself against libm in double: within 4e-7 of max(1, |value|); NaN stays NaN. */
static void test_accuracy(void) {
    for (int32_t fn = 0; fn < EI_N_FUNCTIONS; fn++) {
        double worst = 0;
        for (int i = -300000; i <= 300000; i++) {
            float x = (float)i * 1e-4f;
            double want = exact_function(fn, x), error = fabs(law_function(fn, x) - want) / fmax(1, fabs(want));
            worst = fmax(worst, error);
        }
        EXPECT(worst < 4e-7, "function %d is off by %g", fn, worst);
        EXPECT(isnan(law_function(fn, NAN)), "function %d swallows NaN", fn);
        EXPECT(isnan(law_function(fn, f32_from_bits(0xffc12345u))), "function %d swallows a NaN with payload", fn);
    }
    double worst = 0;
    for (int i = 0; i <= 870000; i++) {
        float x = (float)-i * 1e-4f;
        double want = exp(x);
        worst = fmax(worst, fabs(law_exp(x) - want) / want);
    }
    EXPECT(worst < 1.2e-7, "exp is off by %g", worst);
    EXPECT(law_exp(0) == 1 && law_exp(-INFINITY) == 0 && isnan(law_exp(NAN)), "exp of 0, -inf, NaN");
}

static void test_rope_row(void) {
    static const int32_t positions[] = {0, 1, 2, 3, 7, 100, 4095, 8191, 131071, 500000, 1048575};
    float inv_freq[64], c[64], s[64];
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
        for (int i = 0; i < 64; i++) inv_freq[i] = i % 2 ? (float)pow(10000.0, -i / 64.0) : 1.0f - (float)i * 0x1p-20f;
        ei_rope_row(positions[p], inv_freq, 64, 1.0f, c, s);
        for (int i = 0; i < 64; i++) {
            double angle = (double)positions[p] * (double)inv_freq[i];
            EXPECT(fabs(c[i] - cos(angle)) < 4e-8 && fabs(s[i] - sin(angle)) < 4e-8, "rope at %g: %a %a", angle, c[i],
                   s[i]);
        }
        float c2[64], s2[64];
        ei_rope_row(positions[p], inv_freq, 64, 2.0f, c2, s2);
        for (int i = 0; i < 64; i++)
            EXPECT(c2[i] == 2 * c[i] && s2[i] == 2 * s[i], "mscale at position %d", positions[p]);
    }
}

int main(void) {
    for (int i = 0; i < N_ISA_NAMES; i++) {
        const ei_kernels *k = kernels_to_test(i);
        if (k) test_isa(k);
    }
    test_accuracy();
    test_rope_row();
    if (n_failures) printf("%d failures\n", n_failures);
    return n_failures != 0;
}
