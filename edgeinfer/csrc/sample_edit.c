/* edgeinfer/csrc/sample_edit.c: change single logits by bias, penalties and DRY, before any filter. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "sample.h"

/* A DRY penalty grows exponentially with the repetition; this already bans. */
#define MOST_PENALTY 1e30

static void edit(ei_sampler *s, int32_t id, double value) {
    if (s->row != s->edited) {
        memcpy(s->edited, s->row, (size_t)s->n_vocab * sizeof *s->edited);
        s->row = s->edited;
    }
    if (value > (double)FLT_MAX) value = (double)FLT_MAX;
    if (value < -(double)FLT_MAX && value > -INFINITY) value = -(double)FLT_MAX;
    s->edited[id] = (float)value;
    /* rescanning one block for each edit would cost more than one pass over all */
    if (++s->n_touched <= s->n_blocks) ei_rank_rescan(s, id);
}

static void add_bias(ei_sampler *s) {
    for (int32_t i = 0; i < s->n_bias; i++) {
        int32_t id = s->bias_ids[i];
        double bias = s->bias_values[i];
        edit(s, id, bias <= -100.0 ? -INFINITY : (double)s->row[id] + bias);
    }
}

/* The last `wanted` tokens of the history, all for -1. */
static int32_t window_len(int32_t wanted, int32_t n_history) {
    return wanted < 0 || wanted > n_history ? n_history : wanted;
}

/* Divide or multiply what occurred towards less likely, then subtract for how often and whether. */
static void penalise(ei_sampler *s, const int32_t *window, int32_t n) {
    const ei_sampling *p = &s->p;
    if (p->repeat_penalty == 1.0 && p->frequency_penalty == 0.0 && p->presence_penalty == 0.0) return;
    for (int32_t i = 0; i < n; i++) s->counts[window[i]]++;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = window[i], count = s->counts[id];
        if (count == 0) continue; /* done at an earlier occurrence */
        s->counts[id] = 0;
        double x = (double)s->row[id];
        x = x <= 0.0 ? x * p->repeat_penalty : x / p->repeat_penalty;
        edit(s, id, x - ((double)count * p->frequency_penalty + p->presence_penalty));
    }
}

/* How many tokens stand after the last sequence breaker of the window. */
static int32_t len_after_breaker(const ei_sampler *s, const int32_t *window, int32_t n) {
    for (int32_t end = n; end > 0; end--) {
        int32_t longest = 0;
        for (int32_t b = 0; b < s->n_breakers; b++) {
            const int32_t *ids = s->breaker_ids + s->breaker_starts[b];
            int32_t len = s->breaker_starts[b + 1] - s->breaker_starts[b];
            /* the breaker begins at end - 1 and must fit into the window */
            if (len <= longest || len > n - end + 1) continue;
            if (!memcmp(window + end - 1, ids, (size_t)len * sizeof *ids)) longest = len;
        }
        if (longest > 0) return n - end + 1 - longest;
    }
    return n;
}

static bool grow_matches(ei_sampler *s, int32_t n) {
    if (n <= s->n_matches) return true;
    int32_t room = n < INT32_MAX / 2 ? 2 * n : n;
    int32_t *grown = realloc(s->matches, (size_t)room * sizeof *grown);
    if (!grown) return false;
    s->matches = grown;
    s->n_matches = room;
    return true;
}

/* matches[k] = how many tokens before the last k equal the last tokens of all: the Z algorithm on
   the window read backwards, linear in n. */
static void match_suffix(int32_t *matches, const int32_t *window, int32_t n) {
    const int32_t *last = window + n - 1;
    for (int32_t k = 1, left = 0, right = 0; k < n; k++) {
        int32_t len = 0;
        if (k < right) len = matches[k - left] < right - k ? matches[k - left] : right - k;
        while (k + len < n && last[-len] == last[-(k + len)]) len++;
        matches[k] = len;
        if (k + len > right) {
            left = k;
            right = k + len;
        }
    }
}

static double dry_penalty(const ei_sampling *p, int32_t len) {
    double penalty = p->dry_multiplier;
    for (int32_t i = p->dry_allowed_length; i < len && penalty < MOST_PENALTY; i++) {
        if (p->dry_base == 1.0) break;
        penalty *= p->dry_base;
    }
    return penalty < MOST_PENALTY ? penalty : MOST_PENALTY;
}

/* Penalise the tokens that would prolong a repetition of what stands at the end ("don't repeat
   yourself"), by the length of the repetition. */
static int32_t punish_repetition(ei_sampler *s, const int32_t *window, int32_t n) {
    const ei_sampling *p = &s->p;
    if (p->dry_multiplier == 0.0 || n <= p->dry_allowed_length) return EI_OK;
    int32_t limit = len_after_breaker(s, window, n);
    if (limit < p->dry_allowed_length) return EI_OK;
    if (!grow_matches(s, n)) return EI_NO_MEMORY;
    match_suffix(s->matches, window, n);
    for (int32_t k = 1; k < n; k++) {
        int32_t len = s->matches[k] < limit ? s->matches[k] : limit;
        int32_t *most = &s->counts[window[n - k]];
        if (len >= p->dry_allowed_length && len > *most) *most = len;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t id = window[i], len = s->counts[id];
        if (len == 0) continue;
        s->counts[id] = 0;
        edit(s, id, (double)s->row[id] - dry_penalty(p, len));
    }
    return EI_OK;
}

int32_t ei_edit_logits(ei_sampler *s, const int32_t *history, int32_t n_history) {
    int32_t n_penalty = window_len(s->p.penalty_last_n, n_history);
    int32_t n_dry = window_len(s->p.dry_last_n, n_history);
    int32_t n_read = n_penalty > n_dry ? n_penalty : n_dry;
    for (int32_t i = n_history - n_read; i < n_history; i++)
        if (history[i] < 0 || history[i] >= s->n_vocab) return EI_BAD_ARGUMENT;
    s->n_touched = 0;
    add_bias(s);
    penalise(s, history + n_history - n_penalty, n_penalty);
    int32_t code = punish_repetition(s, history + n_history - n_dry, n_dry);
    if (s->n_touched > s->n_blocks) ei_rank_scan(s, s->row);
    return code;
}
