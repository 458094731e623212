/* edgeinfer/csrc/sample_score.c: log-probabilities of the logits as they are, of one token and of the best. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "fp_state.h"
#include "sample.h"

double ei_report_top(ei_sampler *s, int32_t n_top, int32_t *ids, double *logprobs) {
    double log_mass = log_of(ei_open_mass(s, 1.0).sum);
    if (n_top == 0) return log_mass;
    ei_rank_top(s, n_top);
    for (int32_t i = 0; i < n_top; i++) {
        bool listed = i < s->n_listed;
        ids[i] = listed ? key_id(s->keys[i]) : -1;
        logprobs[i] = listed ? (key_logit(s->keys[i]) - s->top) - log_mass : -INFINITY;
    }
    return log_mass;
}

static bool has_banned(const float *row, int32_t n) {
    bool found = false;
    for (int32_t i = 0; i < n; i++) found |= row[i] < -FLT_MAX;
    return found;
}

static int32_t score(ei_sampler *s, const float *logits, int32_t token, int32_t n_top, double *token_logprob,
                     int32_t *top_ids, double *top_logprobs) {
    if (!ei_rank_scan(s, logits) || has_banned(logits, s->n_vocab)) return EI_NON_FINITE;
    ei_rank_open(s);
    double log_mass = ei_report_top(s, n_top, top_ids, top_logprobs);
    *token_logprob = ((double)logits[token] - s->top) - log_mass;
    return EI_OK;
}

int32_t ei_score(const float *logits, int32_t n_vocab, int32_t token, int32_t n_top, double *token_logprob,
                 int32_t *top_ids, double *top_logprobs) {
    if (n_vocab < 1 || token < 0 || token >= n_vocab) return EI_BAD_ARGUMENT;
    if (n_top < 0 || n_top > EI_MOST_LOGPROBS || n_top > n_vocab) return EI_BAD_ARGUMENT;
    double heap[EI_MOST_LOGPROBS]; /* what ei_rank_top keeps in `weights` */
    int32_t n_blocks = (n_vocab + EI_SCAN_LEN - 1) / EI_SCAN_LEN;
    size_t n_keys = (size_t)n_vocab + 1;
    /* what no candidate is written to is never backed by a page */
    uint64_t *keys = malloc(2 * n_keys * sizeof *keys + (size_t)n_blocks * sizeof(float));
    if (!keys) return EI_NO_MEMORY;
    ei_sampler s = {.n_vocab = n_vocab,
                    .n_blocks = n_blocks,
                    .wide = ei_has_wide_loops(),
                    .block_max = (float *)(keys + 2 * n_keys),
                    .keys = keys,
                    .spare = keys + n_keys,
                    .weights = heap};
    uint64_t fp_state = ei_fp_enter();
    int32_t code = score(&s, logits, token, n_top, token_logprob, top_ids, top_logprobs);
    ei_fp_leave(fp_state);
    free(keys);
    return code;
}
