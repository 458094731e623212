/* tests/csrc/test_sample.c: filters and draws do what they say, and the same on every machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "philox.h"
#include "sample.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define EXPECTED 0xc885c65b9d108960ull

static const ei_sampling off = {.temperature = 1,
                                .dynatemp_exponent = 1,
                                .top_p = 1,
                                .typical_p = 1,
                                .top_n_sigma = -1,
                                .xtc_threshold = 0.1,
                                .repeat_penalty = 1,
                                .dry_base = 1.75,
                                .mirostat_tau = 5,
                                .mirostat_eta = 0.1,
                                .seed = 42,
                                .penalty_last_n = -1,
                                .dry_allowed_length = 2,
                                .dry_last_n = -1};

static void set(ei_sampler *s, const ei_sampling *p) {
    CHECK(ei_sampler_set(s, p, NULL, NULL, 0, NULL, NULL, 0) == EI_OK);
}

static int32_t choose(ei_sampler *s, const float *logits, int64_t position) {
    int32_t token = -1;
    CHECK(ei_sample(s, logits, NULL, 0, position, &token, -1, NULL, NULL, NULL) == EI_OK);
    CHECK(token >= 0 && token < s->n_vocab);
    return token;
}

/* How often each of n tokens is drawn in `n_draws` positions. */
static void draw_many(const ei_sampling *p, const float *logits, int32_t n, int n_draws, int32_t *counts) {
    ei_sampler *s = ei_sampler_new(n);
    set(s, p);
    memset(counts, 0, (size_t)n * sizeof *counts);
    for (int i = 0; i < n_draws; i++) counts[choose(s, logits, i)]++;
    ei_sampler_free(s);
}

static void test_philox_gives_the_published_words(void) {
    uint32_t zeros[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    static const uint32_t of_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    philox(zeros, 0);
    philox(ones, ~0ull);
    philox(pi, 0x299f31d0a4093822ull);
    CHECK(!memcmp(zeros, of_zeros, 16) && !memcmp(ones, of_ones, 16) && !memcmp(pi, of_pi, 16));
}

static void test_exp_and_log_are_accurate(void) {
    for (double x = 0.0; x > -699.0; x -= 0.0173) CHECK(fabs(exp_neg(x) / exp(x) - 1.0) < 1e-13);
    CHECK(exp_neg(0.0) == 1.0 && exp_neg(-701.0) == 0.0 && exp_neg(-INFINITY) == 0.0);
    for (double x = 1e-9; x < 1e9; x *= 1.0173) CHECK(fabs(log_of(x) - log(x)) <= 4e-15 * fabs(log(x)) + 1e-16);
}

static void test_greedy_takes_the_greatest_and_of_equals_the_lowest_id(void) {
    enum { N = 1000 };
    float *x = malloc(N * sizeof *x);
    ei_sampler *s = ei_sampler_new(N);
    ei_sampling p = off;
    p.temperature = 0;
    set(s, &p);
    for (int best = 0; best < N; best++) {
        for (int i = 0; i < N; i++) x[i] = -(float)((i * 7919) % 31);
        x[best] = 3;
        if (best + 1 < N) x[N - 1] = 3;
        CHECK(choose(s, x, 0) == best);
    }
    for (int i = 0; i < N; i++) x[i] = i == 0 ? -0.0f : i == 70 ? 0.0f : -1.0f;
    CHECK(choose(s, x, 0) == 0);
    ei_sampler_free(s);
    free(x);
}

static void test_bad_logits_and_ids_are_refused(void) {
    enum { N = 200 };
    static float x[N];
    int32_t token, out_of_range[2] = {0, N}, negative = -1, ids[65];
    double bias[2] = {0, 1}, logprob, logprobs[65];
    ei_sampler *s = ei_sampler_new(N);
    ei_sampling p = off;
    set(s, &p);
    static const float bad[] = {NAN, -NAN, INFINITY};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < N; i++) {
            x[i] = bad[k];
            CHECK(ei_sample(s, x, NULL, 0, 0, &token, -1, NULL, NULL, NULL) == EI_NON_FINITE);
            x[i] = 0;
        }
    for (int i = 0; i < N; i++) x[i] = -INFINITY;
    CHECK(ei_sample(s, x, NULL, 0, 0, &token, -1, NULL, NULL, NULL) == EI_ALL_BANNED);
    x[150] = -30;
    CHECK(choose(s, x, 0) == 150);
    CHECK(ei_sample(s, x, NULL, 0, 0, &token, 65, &logprob, ids, logprobs) == EI_BAD_ARGUMENT);
    CHECK(ei_sampler_set(s, &p, out_of_range, bias, 2, NULL, NULL, 0) == EI_BAD_ARGUMENT);
    p.presence_penalty = 1;
    set(s, &p);
    CHECK(ei_sample(s, x, out_of_range, 2, 2, &token, -1, 0, 0, 0) == EI_BAD_ARGUMENT);
    CHECK(ei_sample(s, x, &negative, 1, 1, &token, -1, 0, 0, 0) == EI_BAD_ARGUMENT);
    ei_sampler_free(s);
    CHECK(ei_sampler_new(0) == NULL && ei_sampler_new(-5) == NULL);
}

static void test_draws_follow_the_probabilities(void) {
    enum { N = 5, DRAWS = 50000 };
    static const float x[N] = {0, 1, 2, 3, -INFINITY};
    int32_t counts[N];
    ei_sampling p = off;
    for (int listed = 0; listed < 2; listed++) {
        p.top_k = listed ? N : 0;
        draw_many(&p, x, N, DRAWS, counts);
        double mass = 1 + exp(1) + exp(2) + exp(3);
        for (int i = 0; i < 4; i++) {
            double share = exp(i) / mass, sigma = sqrt(share * (1 - share) / DRAWS);
            CHECK(fabs(counts[i] / (double)DRAWS - share) < 5 * sigma);
        }
        CHECK(counts[4] == 0);
    }
}

/* Which of the tokens can be drawn at all, one bit each. */
static unsigned drawn(const ei_sampling *p, const float *logits, int32_t n) {
    int32_t counts[32];
    unsigned mask = 0;
    draw_many(p, logits, n, 4000, counts);
    for (int32_t i = 0; i < n; i++) mask |= counts[i] ? 1u << i : 0u;
    return mask;
}

static void test_each_filter_keeps_what_it_says(void) {
    /* probabilities .5 .25 .125 .0625 .0625 */
    static float x[5];
    for (int i = 0; i < 5; i++) x[i] = (float)(-log(2.0) * (i < 4 ? i : 3));
    ei_sampling p = off;
    CHECK(drawn(&p, x, 5) == 0x1f);
    p = off, p.top_k = 2;
    CHECK(drawn(&p, x, 5) == 0x03);
    p = off, p.top_k = 4; /* of equals the lower id */
    CHECK(drawn(&p, x, 5) == 0x0f);
    p = off, p.top_p = 0.8;
    CHECK(drawn(&p, x, 5) == 0x07);
    p.min_keep = 4;
    CHECK(drawn(&p, x, 5) == 0x0f);
    p = off, p.top_p = 0;
    CHECK(drawn(&p, x, 5) == 0x01);
    p = off, p.min_p = 0.2;
    CHECK(drawn(&p, x, 5) == 0x07);
    p = off, p.top_n_sigma = 1; /* standard deviation 0.79, logits 0 -.69 -1.39 -2.08 -2.08 */
    CHECK(drawn(&p, x, 5) == 0x03);
    p = off, p.typical_p = 0.2; /* entropy 1.30; surprises .69 1.39 2.08 2.77 2.77 */
    CHECK(drawn(&p, x, 5) == 0x02);
    p = off, p.xtc_probability = 1, p.xtc_threshold = 0.12; /* of the three above it the least stays */
    CHECK(drawn(&p, x, 5) == 0x1c);
    p.min_keep = 4;
    CHECK(drawn(&p, x, 5) == 0x1f);
    p = off, p.temperature = 1e-30;
    CHECK(drawn(&p, x, 5) == 0x01);
    p = off, p.mirostat = 2, p.mirostat_tau = 0.55, p.mirostat_eta = 0; /* surprise up to 1.1 bits */
    CHECK(drawn(&p, x, 5) == 0x01);
}

static float edited_logit(const ei_sampling *p, float logit, int32_t id, const int32_t *history, int32_t n_history) {
    static float x[100];
    for (int i = 0; i < 100; i++) x[i] = -50;
    x[id] = logit;
    ei_sampler *s = ei_sampler_new(100);
    set(s, p);
    CHECK(ei_rank_scan(s, x) && ei_rank_open(s));
    CHECK(ei_edit_logits(s, history, n_history) == EI_OK);
    float result = s->row[id];
    for (int i = 0; i < 100; i++) CHECK(s->counts[i] == 0);
    ei_sampler_free(s);
    return result;
}

static void test_penalties_count_the_window(void) {
    static const int32_t history[6] = {7, 7, 3, 7, 4, 5};
    ei_sampling p = off;
    p.repeat_penalty = 2;
    CHECK(edited_logit(&p, 4, 7, history, 6) == 2 && edited_logit(&p, -4, 7, history, 6) == -8);
    p.frequency_penalty = 0.5;
    p.presence_penalty = 0.25;
    CHECK(edited_logit(&p, 4, 7, history, 6) == 2 - 1.75f);
    p.penalty_last_n = 3;
    CHECK(edited_logit(&p, 4, 7, history, 6) == 2 - 0.75f);
    p.penalty_last_n = 2;
    CHECK(edited_logit(&p, 4, 7, history, 6) == 4);
    p.penalty_last_n = 0;
    CHECK(edited_logit(&p, 4, 5, history, 6) == 4);
}

static void test_dry_grows_with_the_repetition_and_stops_at_breakers(void) {
    /* 1 2 3 9 1 2 3 | 9 would make it four in a row */
    static const int32_t history[7] = {1, 2, 3, 9, 1, 2, 3};
    ei_sampling p = off;
    p.dry_multiplier = 1;
    p.dry_base = 2;
    CHECK(edited_logit(&p, 0, 9, history, 7) == -2); /* 2^(3 - 2) */
    CHECK(edited_logit(&p, 0, 8, history, 7) == 0);
    p.dry_last_n = 5; /* 3 9 1 2 3: only one matches */
    CHECK(edited_logit(&p, 0, 9, history, 7) == 0);
    p.dry_last_n = -1;
    p.dry_allowed_length = 4;
    CHECK(edited_logit(&p, 0, 9, history, 7) == 0);

    p.dry_allowed_length = 1;
    static const int32_t breaker[2] = {1, 2}, starts[2] = {0, 2};
    float x[100] = {0};
    ei_sampler *s = ei_sampler_new(100);
    CHECK(ei_sampler_set(s, &p, NULL, NULL, 0, breaker, starts, 1) == EI_OK);
    CHECK(ei_rank_scan(s, x) && ei_rank_open(s) && ei_edit_logits(s, history, 7) == EI_OK);
    CHECK(s->row[9] == -1); /* one token stands after the breaker */
    ei_sampler_free(s);
}

static void test_bias_bans_and_forces(void) {
    enum { N = 70 };
    static float x[N];
    static const int32_t ids[2] = {69, 3};
    x[69] = 20;
    double bias[2] = {-100, 100};
    ei_sampler *s = ei_sampler_new(N);
    CHECK(ei_sampler_set(s, &off, ids, bias, 2, NULL, NULL, 0) == EI_OK);
    for (int i = 0; i < 200; i++) CHECK(choose(s, x, i) == 3);
    bias[1] = 0;
    CHECK(ei_sampler_set(s, &off, ids, bias, 2, NULL, NULL, 0) == EI_OK);
    for (int i = 0; i < 2000; i++) CHECK(choose(s, x, i) != 69);
    ei_sampler_free(s);
}

static void test_logprobs_are_of_the_logits_as_given(void) {
    static const float x[4] = {1, 3, 2, -INFINITY};
    static const int32_t ban = 1;
    double bias = -100, logprob, logprobs[4], mass = exp(1) + exp(2) + exp(3);
    int32_t token, ids[4];
    ei_sampling p = off;
    p.temperature = 0;
    ei_sampler *s = ei_sampler_new(4);
    CHECK(ei_sampler_set(s, &p, &ban, &bias, 1, NULL, NULL, 0) == EI_OK);
    CHECK(ei_sample(s, x, NULL, 0, 0, &token, 4, &logprob, ids, logprobs) == EI_OK);
    CHECK(token == 2 && ids[0] == 1 && ids[1] == 2 && ids[2] == 0 && ids[3] == -1);
    CHECK(fabs(logprob - (2 - log(mass))) < 1e-12 && logprob == logprobs[1]);
    CHECK(fabs(logprobs[0] - (3 - log(mass))) < 1e-12 && logprobs[3] == -INFINITY);
    ei_sampler_free(s);
}

/* The tokens of 600 parameter sets as one number: it is the same for every compiler, CPU and ISA. */
static void test_tokens_are_the_same_on_every_machine(void) {
    enum { N = 3001 };
    float *x = malloc(N * sizeof *x);
    int32_t history[40], token;
    ei_sampler *s = ei_sampler_new(N);
    uint64_t digest = 14695981039346656037ull;
    for (int set_no = 0; set_no < 600; set_no++) {
        double u[40];
        for (int i = 0; i < 40; i++) u[i] = philox_uniform(99, (uint64_t)set_no, (uint32_t)i, 0);
        for (int i = 0; i < N; i++) {
            double v = philox_uniform(7, (uint64_t)(set_no * N + i), 0, 0);
            x[i] = (float)((v - 0.5) * v * v * 40);
        }
        for (int i = 0; i < 40; i++) history[i] = (int32_t)(u[i] * 5);
        ei_sampling p = off;
        p.temperature = 0.1 + 2 * u[0];
        p.dynatemp_range = u[1] < 0.3 ? u[2] : 0;
        p.top_k = u[3] < 0.5 ? (int32_t)(u[4] * 300) : 0;
        p.top_p = u[5] < 0.5 ? u[6] : 1;
        p.min_p = u[7] < 0.3 ? u[8] * 0.1 : 0;
        p.typical_p = u[9] < 0.2 ? u[10] : 1;
        p.top_n_sigma = u[11] < 0.2 ? u[12] * 3 : -1;
        p.xtc_probability = u[13] < 0.3 ? 0.5 : 0;
        p.repeat_penalty = u[14] < 0.5 ? 1.1 : 1;
        p.frequency_penalty = u[15] < 0.3 ? u[16] : 0;
        p.dry_multiplier = u[17] < 0.3 ? 0.8 : 0;
        p.mirostat = u[18] < 0.2 ? 2 : 0;
        p.seed = (uint64_t)(u[19] * 0x1p53);
        set(s, &p);
        for (int64_t position = 40; position < 44; position++) {
            CHECK(ei_sample(s, x, history, 40, position, &token, -1, NULL, NULL, NULL) == EI_OK);
            digest = (digest ^ (uint64_t)token) * 1099511628211ull;
        }
    }
    if (digest != EXPECTED) fprintf(stderr, "digest 0x%016llx\n", (unsigned long long)digest);
    CHECK(digest == EXPECTED);
    ei_sampler_free(s);
    free(x);
}

static void test_wide_loops_give_the_same_bits(void) {
    enum { N = 4096 };
    static float x[N], narrow[N / EI_SCAN_LEN], wide[N / EI_SCAN_LEN];
    double sums[2][EI_SUM_LANES] = {{0}}, dots[2][EI_SUM_LANES] = {{0}};
    if (!ei_has_wide_loops()) return;
    for (int i = 0; i < N; i++) x[i] = (float)(40 * philox_uniform(3, (uint64_t)i, 0, 0) - 40);
    x[5] = -INFINITY;
    CHECK(ei_scan(x, N / EI_SCAN_LEN, narrow) && ei_scan_wide(x, N / EI_SCAN_LEN, wide));
    CHECK(!memcmp(narrow, wide, sizeof wide));
    ei_mass_lanes(x, N / EI_SUM_LANES, 0.5, 0.3, sums[0], dots[0]);
    ei_mass_wide(x, N / EI_SUM_LANES, 0.5, 0.3, sums[1], dots[1]);
    CHECK(!memcmp(sums[0], sums[1], sizeof sums[0]) && !memcmp(dots[0], dots[1], sizeof dots[0]));
}

static void test_scores_are_those_that_come_with_a_choice(void) {
    enum { N = 1003 };
    float x[N];
    ei_sampler *s = ei_sampler_new(N);
    ei_sampling p = off;
    p.temperature = 0;
    set(s, &p);
    for (int32_t n_top = 0; n_top <= EI_MOST_LOGPROBS; n_top += 16) {
        int32_t token, ids[2][EI_MOST_LOGPROBS];
        double logprob[2], logprobs[2][EI_MOST_LOGPROBS];
        for (int i = 0; i < N; i++) x[i] = (float)((i * 7919 + n_top) % 101) / 8;
        CHECK(ei_sample(s, x, NULL, 0, 0, &token, n_top, &logprob[0], ids[0], logprobs[0]) == EI_OK);
        CHECK(ei_score(x, N, token, n_top, &logprob[1], ids[1], logprobs[1]) == EI_OK);
        CHECK(logprob[0] == logprob[1]);
        CHECK(!memcmp(ids[0], ids[1], (size_t)n_top * sizeof **ids));
        CHECK(!memcmp(logprobs[0], logprobs[1], (size_t)n_top * sizeof **logprobs));
    }
    ei_sampler_free(s);
    double logprob;
    for (int i = 0; i < 3; i++) {
        x[500] = (float[]){NAN, INFINITY, -INFINITY}[i];
        CHECK(ei_score(x, N, 0, 0, &logprob, NULL, NULL) == EI_NON_FINITE);
    }
    CHECK(ei_score(x, N, N, 0, &logprob, NULL, NULL) == EI_BAD_ARGUMENT);
    CHECK(ei_score(x, N, -1, 0, &logprob, NULL, NULL) == EI_BAD_ARGUMENT);
    CHECK(ei_score(x, N, 0, 65, &logprob, NULL, NULL) == EI_BAD_ARGUMENT);
    CHECK(ei_score(x, 2, 0, 3, &logprob, NULL, NULL) == EI_BAD_ARGUMENT);
}

int main(void) {
    test_wide_loops_give_the_same_bits();
    test_philox_gives_the_published_words();
    test_exp_and_log_are_accurate();
    test_greedy_takes_the_greatest_and_of_equals_the_lowest_id();
    test_bad_logits_and_ids_are_refused();
    test_draws_follow_the_probabilities();
    test_each_filter_keeps_what_it_says();
    test_penalties_count_the_window();
    test_dry_grows_with_the_repetition_and_stops_at_breakers();
    test_bias_bans_and_forces();
    test_logprobs_are_of_the_logits_as_given();
    test_scores_are_those_that_come_with_a_choice();
    test_tokens_are_the_same_on_every_machine();
    puts("sample: ok");
    return 0;
}
