/* edgeinfer/csrc/sample.h: the state of a sampler, shared by the sample_*.c files.

   The candidates of a step are "open" (every token of the vocabulary that is not banned, unsorted)
   until a filter lists them; then keys[0 .. n_listed) hold them by logit descending, id ascending.
   A key is (order-preserving bits of the logit) << 32 | ~id, so that comparing keys compares both.

   Which sums are taken how is part of the result and equal on every machine: over the open set by
   16 lanes in id order and one tree, over a list one by one in its order, always in double. */
#ifndef EI_SAMPLE_H
#define EI_SAMPLE_H

#include <stdbool.h>

#include "edgeinfer.h"
#include "sample_math.h"

enum {
    EI_SCAN_LEN = 64, /* logits that share one maximum: 1/64 of a row is read where one pass is done */
    EI_SUM_LANES = 16,
    EI_OPEN = -1
};

struct ei_sampler {
    int32_t n_vocab, n_blocks;
    bool wide; /* this CPU runs the *_wide loops */
    ei_sampling p;
    int32_t n_bias, n_breakers;
    int32_t *bias_ids, *breaker_ids, *breaker_starts;
    double *bias_values;
    double mirostat_mu;

    const float *row;  /* the logits of this step, or `edited` once one was changed */
    double top;        /* the greatest of them */
    int32_t n_listed;  /* or EI_OPEN */
    int32_t n_touched; /* logits edited in this step */

    float *edited;                  /* n_vocab */
    float *block_max;               /* n_blocks */
    int32_t *counts;                /* n_vocab, all 0 between uses */
    uint64_t *keys, *spare, *order; /* n_vocab + 1 each */
    double *weights;                /* n_vocab */
    int32_t *matches;               /* n_matches: grows with the history, for DRY alone */
    int32_t n_matches;
};

/* -- sample_loops.c: the loops over the whole row, also as AVX2 code; the bits are the same --------- */

bool ei_has_wide_loops(void);
/* Take the maximum of each block of EI_SCAN_LEN; false: NaN or +inf among them. */
bool ei_scan(const float *row, int32_t n_blocks, float *block_max);
bool ei_scan_wide(const float *row, int32_t n_blocks, float *block_max);
/* Add w = exp(d) and w * d, d = (logit - top) / temperature, to the lanes. */
void ei_mass_lanes(const float *row, int32_t n_groups, double top, double temperature, double *sum, double *dot);
void ei_mass_wide(const float *row, int32_t n_groups, double top, double temperature, double *sum, double *dot);

/* -- sample_rank.c: order ---------------------------------------------------------------------- */

/* Take the maximum of each block; false: NaN or +inf among the logits. */
bool ei_rank_scan(ei_sampler *s, const float *row);
void ei_rank_rescan(ei_sampler *s, int32_t id);
/* Set top from the block maxima and open the set; false: every token is banned. */
bool ei_rank_open(ei_sampler *s);
int32_t ei_rank_first(const ei_sampler *s);
/* List the tokens whose logit is at least top + bound; an open set stays what the row holds. */
void ei_rank_from(ei_sampler *s, double bound);
void ei_rank_top(ei_sampler *s, int32_t k);
void ei_rank_all(ei_sampler *s);
void ei_rank_sort(uint64_t *keys, uint64_t *spare, int32_t n);

static inline int32_t key_id(uint64_t key) { return (int32_t)~(uint32_t)key; }

static inline double key_logit(uint64_t key) {
    uint32_t u = (uint32_t)(key >> 32);
    u = u & 0x80000000u ? u ^ 0x80000000u : ~u;
    float x;
    memcpy(&x, &u, 4);
    return (double)x;
}

/* -- sample_score.c: how likely the model finds tokens ------------------------------------------ */

/* The most probable tokens of the logits as given; returns ln of the mass relative to the top.
   Where fewer are not banned, the rest is id -1 with -infinity. */
double ei_report_top(ei_sampler *s, int32_t n_top, int32_t *ids, double *logprobs);

/* -- sample_edit.c: logits changed before the filters ------------------------------------------ */

int32_t ei_edit_logits(ei_sampler *s, const int32_t *history, int32_t n_history);

/* -- sample_filters.c: which candidates stay, and the draw ------------------------------------- */

typedef struct {
    double sum; /* of w = exp((logit - top) / temperature) */
    double dot; /* of w * (logit - top) / temperature, when asked for */
} ei_mass;

ei_mass ei_open_mass(const ei_sampler *s, double temperature);
int32_t ei_choose(ei_sampler *s, int64_t position);

#endif
