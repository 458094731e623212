/* edgeinfer/csrc/run_route.c: choose the experts of every row, and list the rows of every expert. */
#include "exec.h"

/* The best candidates so far, best first; of equal ones the earlier offered stands first. */
typedef struct {
    int32_t *ids;
    float *keys;
    int32_t n, most;
} ranking;

/* A NaN ranks below every number, so a ranking is full once `most` candidates were offered. */
static void offer(ranking *r, int32_t id, float value) {
    float key = value == value ? value : -INFINITY;
    if (r->n == r->most && !(key > r->keys[r->n - 1])) return;
    int32_t at = r->n < r->most ? r->n++ : r->n - 1;
    for (; at > 0 && key > r->keys[at - 1]; at--) r->ids[at] = r->ids[at - 1], r->keys[at] = r->keys[at - 1];
    r->ids[at] = id, r->keys[at] = key;
}

/* The largest value, or the sum of the two largest. */
static float group_score(const float *values, int32_t n, bool top2) {
    float first = -INFINITY, second = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (values[i] > first)
            second = first, first = values[i];
        else if (values[i] > second)
            second = values[i];
    }
    return top2 ? first + second : first;
}

/* What one thread works with; each of n_experts. */
typedef struct {
    float *p, *choice, *keys;
    int32_t *groups, *kept; /* the best groups; whether a group is one of them */
} route_scratch;

static route_scratch scratch_of(const ei_routed *r, int32_t thread) {
    size_t n = (size_t)r->how.n_experts;
    float *at = r->scratch + (size_t)thread * EI_ROUTE_SCRATCH * n;
    return (route_scratch){at, at + n, at + 2 * n, (int32_t *)(at + 3 * n), (int32_t *)(at + 4 * n)};
}

static void score_experts(const ei_exec *e, const ei_routing *how, const float *logits, float *p) {
    switch (how->score) {
    case EI_SCORE_SOFTMAX: e->kernels->softmax(logits, p, how->n_experts); break;
    case EI_SCORE_SIGMOID: e->kernels->act(EI_SIGMOID, logits, p, how->n_experts); break;
    case EI_SCORE_SQRT_SOFTPLUS:
        e->kernels->act(EI_SOFTPLUS, logits, p, how->n_experts);
        for (int32_t i = 0; i < how->n_experts; i++) p[i] = sqrtf(p[i]);
        break;
    default: memcpy(p, logits, (size_t)how->n_experts * sizeof *p);
    }
}

static void choose(const ei_routing *how, const float *choice, const route_scratch *s, int32_t *ids) {
    int32_t each = how->n_experts / how->groups;
    ranking groups = {s->groups, s->keys, 0, how->groups_used};
    for (int32_t g = 0; g < how->groups; g++) {
        s->kept[g] = how->groups == 1;
        if (how->groups > 1) offer(&groups, g, group_score(choice + g * each, each, how->top2));
    }
    for (int32_t i = 0; i < groups.n; i++) s->kept[s->groups[i]] = 1;
    ranking best = {ids, s->keys, 0, how->n_used};
    for (int32_t id = 0; id < how->n_experts; id++)
        if (s->kept[id / each]) offer(&best, id, choice[id]);
}

/* Every sum in rank order. */
static void weigh(const ei_exec *e, const ei_op *op, const ei_routing *how, const float *p, const int32_t *ids,
                  float *w) {
    const float *scale = vector_of(e, op->vec[1]);
    for (int32_t j = 0; j < how->n_used; j++) w[j] = p[ids[j]];
    if (how->score == EI_SCORE_SOFTMAX_TOPK) e->kernels->softmax(w, w, how->n_used);
    if (how->norm) {
        float total = w[0];
        for (int32_t j = 1; j < how->n_used; j++) total += w[j];
        total += how->norm_eps;
        total = total < how->norm_min ? how->norm_min : total;
        for (int32_t j = 0; j < how->n_used; j++) w[j] /= total;
    }
    for (int32_t j = 0; j < how->n_used; j++) {
        w[j] *= how->by;
        if (scale) w[j] *= scale[ids[j]];
    }
}

static void route_row(const ei_exec *e, const ei_op *op, ei_routed *r, int32_t row, int32_t thread) {
    const ei_routing *how = &r->how;
    const float *bias = vector_of(e, op->vec[0]);
    route_scratch s = scratch_of(r, thread);
    int32_t *ids = r->ids + (size_t)row * (size_t)how->n_used;
    if (op->in[0] < 0) {
        for (int32_t i = 0; i < how->n_used; i++) ids[i] = i;
        return;
    }
    score_experts(e, how, row_of(e, op->in[0], row), s.p);
    for (int32_t i = 0; i < how->n_experts; i++) s.choice[i] = bias ? s.p[i] + bias[i] : s.p[i];
    choose(how, s.choice, &s, ids);
    weigh(e, op, how, s.p, ids, row_of(e, op->out[0], row));
}

/* Sort the pairs by expert, rows ascending. */
static void list_pairs(ei_routed *r, int32_t n_pairs) {
    int32_t *starts = r->starts, n = r->how.n_experts;
    memset(starts, 0, ((size_t)n + 1) * sizeof *starts);
    for (int32_t i = 0; i < n_pairs; i++) starts[r->ids[i] + 1]++;
    for (int32_t x = 0; x < n; x++) starts[x + 1] += starts[x];
    for (int32_t i = 0; i < n_pairs; i++) {
        int32_t place = starts[r->ids[i]]++;
        r->pairs[place] = i, r->places[i] = place;
    }
    memmove(starts + 1, starts, (size_t)n * sizeof *starts);
    starts[0] = 0;
}

/* What an expert costs is its rows, and something for bringing its weights from memory. */
enum { WEIGHTS_COST = 4 };

static int32_t bit_length(int32_t n) { return 32 - __builtin_clz((uint32_t)n); }

/* Cut the experts into work items of about equal cost, roughly the largest first. */
static void cut_items(const ei_exec *e, ei_routed *r) {
    int64_t total = 0;
    int32_t longest = 0, n_items = 0, n_active = 0;
    for (int32_t x = 0; x < r->how.n_experts; x++) {
        int32_t n = r->starts[x + 1] - r->starts[x];
        if (n) total += n + WEIGHTS_COST;
        longest = max_i32(longest, n);
    }
    for (int32_t bits = longest ? bit_length(longest) : 0; bits > 0; bits--)
        for (int32_t x = 0; x < r->how.n_experts; x++) {
            int32_t n = r->starts[x + 1] - r->starts[x];
            if (!n || bit_length(n) != bits) continue;
            r->active[n_active] = x, r->first_items[n_active++] = n_items;
            n_items +=
                max_i32(1, (int32_t)((n + WEIGHTS_COST) * (int64_t)(e->n_threads * EI_ITEMS_PER_THREAD) / total));
        }
    r->first_items[n_active] = n_items, r->n_active = n_active;
}

/* Whoever finishes the last chunk makes the lists: a job of their own would cost a barrier more. */
static void route_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    ei_routed *r = &e->routings.at[op->routing];
    int32_t n = rows_of(e, op->rows), last = min_i32((chunk + 1) * EI_TILE, n);
    for (int32_t row = chunk * EI_TILE; row < last; row++) route_row(e, op, r, row, thread);
    if (__atomic_sub_fetch(&r->unfinished, 1, __ATOMIC_ACQ_REL)) return;
    list_pairs(r, n * r->how.n_used);
    cut_items(e, r);
}

void ei_plan_route(ei_exec *e, const ei_op *op) {
    int32_t n_chunks = (rows_of(e, op->rows) + EI_TILE - 1) / EI_TILE;
    e->routings.at[op->routing].unfinished = n_chunks;
    ei_add_job(e, route_chunk, op, n_chunks);
}
