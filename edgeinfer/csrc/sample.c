/* edgeinfer/csrc/sample.c: make a sampler, and choose one token from a row of logits. */
#include <math.h>
#include <stdlib.h>

#include "fp_state.h"
#include "sample.h"

ei_sampler *ei_sampler_new(int32_t n_vocab) {
    if (n_vocab < 1) return NULL;
    ei_sampler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    size_t n = (size_t)n_vocab;
    s->n_vocab = n_vocab;
    s->wide = ei_has_wide_loops();
    s->n_blocks = (int32_t)((n + EI_SCAN_LEN - 1) / EI_SCAN_LEN);
    /* memory the chosen filters never touch is never backed by a page */
    s->edited = malloc(n * sizeof *s->edited);
    s->block_max = malloc((size_t)s->n_blocks * sizeof *s->block_max);
    s->counts = calloc(n, sizeof *s->counts);
    s->keys = malloc((n + 1) * sizeof *s->keys);
    s->spare = malloc((n + 1) * sizeof *s->spare);
    s->order = malloc((n + 1) * sizeof *s->order);
    s->weights = malloc(n * sizeof *s->weights);
    if (!s->edited || !s->block_max || !s->counts || !s->keys || !s->spare || !s->order || !s->weights) {
        ei_sampler_free(s);
        return NULL;
    }
    return s;
}

static void forget_lists(ei_sampler *s) {
    free(s->bias_ids);
    free(s->bias_values);
    free(s->breaker_ids);
    free(s->breaker_starts);
    s->bias_ids = s->breaker_ids = s->breaker_starts = NULL;
    s->bias_values = NULL;
    s->n_bias = s->n_breakers = 0;
}

void ei_sampler_free(ei_sampler *s) {
    if (!s) return;
    forget_lists(s);
    free(s->edited);
    free(s->block_max);
    free(s->counts);
    free(s->keys);
    free(s->spare);
    free(s->order);
    free(s->weights);
    free(s->matches);
    free(s);
}

/* A copy of n items; the empty list is NULL and succeeds. */
static bool copy_list(void *copy, const void *list, int32_t n, size_t item_bytes) {
    void *made = NULL;
    if (n > 0) {
        made = malloc((size_t)n * item_bytes);
        if (!made) return false;
        memcpy(made, list, (size_t)n * item_bytes);
    }
    memcpy(copy, &made, sizeof made);
    return true;
}

int32_t ei_sampler_set(ei_sampler *s, const ei_sampling *params, const int32_t *bias_ids, const double *bias_values,
                       int32_t n_bias, const int32_t *breaker_ids, const int32_t *breaker_starts, int32_t n_breakers) {
    if (n_bias < 0 || n_breakers < 0) return EI_BAD_ARGUMENT;
    for (int32_t i = 0; i < n_bias; i++)
        if (bias_ids[i] < 0 || bias_ids[i] >= s->n_vocab || !(bias_values[i] < INFINITY)) return EI_BAD_ARGUMENT;
    if (n_breakers > 0 && breaker_starts[0] != 0) return EI_BAD_ARGUMENT;
    for (int32_t i = 0; i < n_breakers; i++)
        if (breaker_starts[i] >= breaker_starts[i + 1]) return EI_BAD_ARGUMENT;
    forget_lists(s);
    s->p = *params;
    s->mirostat_mu = 2.0 * params->mirostat_tau;
    int32_t n_ids = n_breakers > 0 ? breaker_starts[n_breakers] : 0;
    int32_t n_starts = n_breakers > 0 ? n_breakers + 1 : 0;
    if (!copy_list(&s->bias_ids, bias_ids, n_bias, sizeof *bias_ids) ||
        !copy_list(&s->bias_values, bias_values, n_bias, sizeof *bias_values) ||
        !copy_list(&s->breaker_ids, breaker_ids, n_ids, sizeof *breaker_ids) ||
        !copy_list(&s->breaker_starts, breaker_starts, n_starts, sizeof *breaker_starts))
        return forget_lists(s), EI_NO_MEMORY;
    s->n_bias = n_bias;
    s->n_breakers = n_breakers;
    return EI_OK;
}

static int32_t sample(ei_sampler *s, const float *logits, const int32_t *history, int32_t n_history, int64_t position,
                      int32_t *token, int32_t n_top, double *token_logprob, int32_t *top_ids, double *top_logprobs) {
    if (!ei_rank_scan(s, logits)) return EI_NON_FINITE;
    if (!ei_rank_open(s)) return EI_ALL_BANNED;
    double raw_top = s->top, log_mass = 0.0;
    if (n_top >= 0) log_mass = ei_report_top(s, n_top, top_ids, top_logprobs);
    int32_t code = ei_edit_logits(s, history, n_history);
    if (code != EI_OK) return code;
    if (!ei_rank_open(s)) return EI_ALL_BANNED;
    *token = ei_choose(s, position);
    if (n_top >= 0) *token_logprob = ((double)logits[*token] - raw_top) - log_mass;
    return EI_OK;
}

int32_t ei_sample(ei_sampler *s, const float *logits, const int32_t *history, int32_t n_history, int64_t position,
                  int32_t *token, int32_t n_top, double *token_logprob, int32_t *top_ids, double *top_logprobs) {
    if (n_history < 0 || position < 0 || n_top > EI_MOST_LOGPROBS || n_top > s->n_vocab) return EI_BAD_ARGUMENT;
    uint64_t fp_state = ei_fp_enter();
    int32_t code = sample(s, logits, history, n_history, position, token, n_top, token_logprob, top_ids, top_logprobs);
    ei_fp_leave(fp_state);
    return code;
}
