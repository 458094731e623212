/* tests/csrc/test_recurrence.c: every ISA's recurrences equal their law bit for bit, and touch nothing but their
 * columns.
 */
#include "inputs.h"
#include "law.h"

enum { MOST_ROWS = 9, MOST_COLUMNS = 150 };

/* A guarded row of floats; by turns gentle, wild, and with NaN, infinities and zeros among them. */
static float *floats_of(guarded *g, int n, int round) {
    static const float special[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1e-42f, 3e38f};
    *g = guarded_new((size_t)n * 4);
    float *x = g->data;
    random_fill(x, (size_t)n, round % 3 ? 1.0f : 30.0f);
    if (round % 4 == 3)
        for (int i = 0; i < n; i++)
            if (random_below(9) == 0) x[i] = special[random_below(7)];
    return x;
}

static void expect_floats(const char *isa, const char *what, int n, const float *got, const float *want) {
    for (int i = 0; i < n; i++) EXPECT(same(got[i], want[i]), "%s %s [%d]: %a, law %a", isa, what, i, got[i], want[i]);
}

static void test_convolve(const ei_kernels *k, int n, int n_taps, int round) {
    guarded gt[MOST_ROWS], gw, gb, gy;
    const float *taps[MOST_ROWS];
    float *weight = floats_of(&gw, n * n_taps, round), *bias = floats_of(&gb, n, round), *y = floats_of(&gy, n, 0);
    float want[MOST_COLUMNS] = {0};
    for (int j = 0; j < n_taps; j++) taps[j] = floats_of(&gt[j], n, round);
    for (int i = 0; i < n; i++) {
        want[i] = taps[0][i] * weight[i];
        for (int j = 1; j < n_taps; j++) want[i] = fmaf(taps[j][i], weight[j * n + i], want[i]);
    }
    k->convolve(taps, n_taps, weight, n, NULL, y, n);
    expect_floats(k->isa, "convolve", n, y, want);
    for (int i = 0; i < n; i++) want[i] += bias[i];
    k->convolve(taps, n_taps, weight, n, bias, y, n);
    expect_floats(k->isa, "convolve with bias", n, y, want);
    for (int j = 0; j < n_taps; j++) guarded_free(gt[j]);
    guarded_free(gw), guarded_free(gb), guarded_free(gy);
}

/* A state of n_rows of `stride`, of which n columns are worked on, and what the law makes of it. */
typedef struct {
    guarded own, kept, in_x, in_p, in_q, out;
    float *from, *state, *want, *x, *p, *q, *y, want_y[MOST_COLUMNS];
    int32_t n_rows, n, stride;
} scene;

static scene scene_new(int32_t n_rows, int32_t n, int round) {
    scene s = {.n_rows = n_rows, .n = n, .stride = n + 16 * (round % 2)};
    size_t size = (size_t)((n_rows - 1) * s.stride + n);
    s.from = s.state = floats_of(&s.own, (int)size, round);
    s.want = malloc(size * 4);
    memcpy(s.want, s.state, size * 4);
    s.kept = guarded_new(size * 4);
    if (round % 3 == 1) { /* read from one place, left in another */
        s.state = s.kept.data;
        memcpy(s.state, s.from, size * 4);
        for (int32_t i = 0; i < n_rows; i++) memset(s.state + i * s.stride, 7, (size_t)n * 4);
    }
    s.x = floats_of(&s.in_x, n, round), s.y = floats_of(&s.out, n, 0);
    s.p = floats_of(&s.in_p, n_rows, round), s.q = floats_of(&s.in_q, n_rows, round);
    return s;
}

static void scene_end(const char *isa, const char *what, scene *s) {
    expect_floats(isa, what, (s->n_rows - 1) * s->stride + s->n, s->state, s->want);
    expect_floats(isa, what, s->n, s->y, s->want_y);
    free(s->want);
    guarded_free(s->own), guarded_free(s->kept), guarded_free(s->in_x), guarded_free(s->in_p), guarded_free(s->in_q);
    guarded_free(s->out);
}

static void test_scan(const ei_kernels *k, int32_t n_rows, int32_t n, int round) {
    scene s = scene_new(n_rows, n, round);
    ei_scan in = {.x = s.x, .b = s.p, .c = s.q, .dt = 4 * random_unit(), .dt_bias = random_unit()};
    in.a = -4 * fabsf(random_unit()), in.d = random_unit();
    float t = law_softplus(in.dt + in.dt_bias), keep = law_exp(in.a * t);
    for (int32_t c = 0; c < n; c++) {
        float u = t * in.x[c], y = 0.0f;
        for (int32_t i = 0; i < n_rows; i++) {
            float *at = &s.want[i * s.stride + c];
            *at = fmaf(u, in.b[i], *at * keep);
            y = fmaf(*at, in.c[i], y);
        }
        s.want_y[c] = fmaf(in.d, in.x[c], y);
    }
    k->scan(s.from, s.state, s.stride, n_rows, n, &in, s.y);
    scene_end(k->isa, "scan", &s);
}

static void test_delta(const ei_kernels *k, int32_t n_rows, int32_t n, int round) {
    scene s = scene_new(n_rows, n, round);
    ei_delta in = {.v = s.x, .k = s.p, .q = s.q, .scale = 0.3f, .g = -3 * fabsf(random_unit()), .beta = random_unit()};
    float keep = law_exp(in.g);
    for (int32_t c = 0; c < n; c++) {
        float held = 0.0f, y = 0.0f;
        for (int32_t i = 0; i < n_rows; i++) {
            float *at = &s.want[i * s.stride + c];
            *at = *at * keep;
            held = fmaf(*at, in.k[i], held);
        }
        float r = (in.v[c] - held) * in.beta;
        for (int32_t i = 0; i < n_rows; i++) {
            float *at = &s.want[i * s.stride + c];
            *at = fmaf(in.k[i], r, *at);
            y = fmaf(in.q[i] * in.scale, *at, y);
        }
        s.want_y[c] = y;
    }
    k->delta(s.from, s.state, s.stride, n_rows, n, &in, s.y);
    scene_end(k->isa, "delta", &s);
}

int main(void) {
    for (int isa = 0; isa < N_ISA_NAMES; isa++) {
        const ei_kernels *k = kernels_to_test(isa);
        if (!k) continue;
        for (int n = 1; n <= MOST_COLUMNS; n += n < 70 ? 1 : 7)
            for (int round = 0; round < 8; round++) {
                test_convolve(k, n, 2 + round % (MOST_ROWS - 1), round);
                test_scan(k, 1 + round % MOST_ROWS, n, round);
                test_delta(k, 1 + (round + 3) % MOST_ROWS, n, round);
            }
    }
    if (n_failures) printf("%d failures\n", n_failures);
    return n_failures != 0;
}
