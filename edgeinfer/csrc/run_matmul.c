/* edgeinfer/csrc/run_matmul.c: the chunks of MATMUL and GATED: groups of rows by all the tokens of the step. */
#include "exec.h"

enum {
    CHUNKS_PER_THREAD = 8, /* so that a thread that lost its core leaves little behind */
    MOST_GROUPS = 16,
    UNIT = EI_BLOCK / EI_LANES /* groups of one block of activations */
};

static ei_matmul_fn kernel_of(const ei_exec *e, const ei_weight *w, const ei_acts *acts) {
    return e->kernels->matmul[w->format][acts->fine];
}

static const uint8_t *group_at(const ei_weight *w, int32_t group) { return w->x + (size_t)group * w->group_bytes; }

/* Cut n things into chunks; the same for the plan and for the chunk, so it needs no storage. */
static int32_t per_chunk(const ei_exec *e, int32_t n) {
    return min_i32(MOST_GROUPS, max_i32(1, n / (e->n_threads * CHUNKS_PER_THREAD)));
}

/* One or two tokens wait for memory, and several streams of it side by side are faster than one (csrc/roofs.c measures
 * both). So the groups of a matrix are taken in bundles of groups that stand a share of the matrix apart, and while one
 * bundle is computed the next is fetched, all its groups at once. What is left over is taken group by group. */
enum { BUNDLE_BYTES = 200 << 10 }; /* two bundles fit in L2 */

static bool are_few(const ei_exec *e, const ei_op *op) {
    return e->acts.at[op->acts_in].acts.n_tokens <= EI_FEW_COLUMNS;
}

typedef struct {
    const ei_weight *w;
    int32_t part;
    int32_t wide;  /* groups of a bundle */
    int32_t share; /* bundle i: groups i, share + i, 2*share + i, ... */
    int32_t n;     /* bundles, those of one group included */
    int32_t index; /* the bundle in question */
} bundle;

static bundle bundles_of(const ei_exec *e, const ei_op *op, int32_t part) {
    const ei_weight *w = &e->weights.at[op->weight[part]];
    int32_t wide = are_few(e, op) ? EI_STREAMS : 1;
    while (wide > 1 && ((size_t)wide * w->group_bytes > BUNDLE_BYTES || wide > w->n_groups)) wide /= 2;
    int32_t share = w->n_groups / wide;
    return (bundle){.w = w, .part = part, .wide = wide, .share = share, .n = share + w->n_groups % wide};
}

static int32_t n_bundles(const ei_exec *e, const ei_op *op) {
    int32_t n = 0;
    for (int i = 0; i < 3 && op->weight[i] >= 0; i++) n += bundles_of(e, op, i).n;
    return n;
}

/* Bundle i of all the parts. */
static bundle bundle_at(const ei_exec *e, const ei_op *op, int32_t i) {
    bundle b = bundles_of(e, op, 0);
    while (i >= b.n) {
        i -= b.n;
        b = bundles_of(e, op, b.part + 1);
    }
    b.index = i;
    return b;
}

static int32_t groups_in(const bundle *b) { return b->index < b->share ? b->wide : 1; }

static int32_t group_of(const bundle *b, int32_t g) {
    return b->index < b->share ? b->index + g * b->share : b->share * (b->wide - 1) + b->index;
}

/* Where to read ahead from while group g of a bundle is computed, so that `next` is there at its end. */
static void fetch_bundle(const bundle *next, int32_t g, const char *fetch[EI_STREAMS]) {
    int32_t n = groups_in(next);
    size_t piece = next->w->group_bytes / EI_STREAMS;
    for (int32_t s = 0; s < EI_STREAMS; s++)
        fetch[s] = (const char *)group_at(next->w, group_of(next, s % n)) + piece * (size_t)(s / n * n + g % n);
}

/* The first n of 16 lanes, nearly always all of them. */
static void copy_lanes(float *to, const float *from, int32_t n) {
    if (n == EI_LANES)
        memcpy(to, from, EI_LANES * sizeof *to);
    else
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* out: 16 rows of n tokens, which get bias and residual; all 16 lanes are computed, so that no loop has a tail */
static void store_rows(ei_exec *e, const ei_op *op, int part, int32_t group, int32_t token, int32_t n, float *out) {
    const ei_weight *w = &e->weights.at[op->weight[part]];
    const float *bias = vector_of(e, op->vec[part]);
    int32_t first = group * EI_LANES, lanes = min_i32(EI_LANES, w->n_rows - first);
    float added[EI_LANES] = {0};
    if (bias) copy_lanes(added, bias + first, lanes);
    for (int32_t t = 0; t < n; t++, out += EI_LANES) {
        if (bias)
            for (int32_t i = 0; i < EI_LANES; i++) out[i] += added[i];
        if (part == 0 && op->in[0] >= 0) {
            float before[EI_LANES] = {0};
            copy_lanes(before, row_of(e, op->in[0], token + t) + first, lanes);
            for (int32_t i = 0; i < EI_LANES; i++) out[i] = before[i] + out[i];
        }
        copy_lanes(row_of(e, op->out[part], token + t) + first, out, lanes);
    }
}

/* A bundle by one or two tokens. */
static void few_tokens(ei_exec *e, const ei_op *op, const bundle *b, const bundle *next) {
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    const char *fetch[EI_STREAMS];
    float out[EI_FEW_COLUMNS * EI_LANES] __attribute__((aligned(64)));
    for (int32_t g = 0; g < groups_in(b); g++) {
        int32_t group = group_of(b, g);
        fetch_bundle(next, g, fetch);
        kernel_of(e, b->w, acts)(group_at(b->w, group), fetch, acts, 0, acts->n_tokens, out);
        store_rows(e, op, b->part, group, 0, acts->n_tokens, out);
    }
}

/* A group by up to EI_WIDE tokens. */
static void many_tokens(ei_exec *e, const ei_op *op, const bundle *b, int32_t token) {
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    int32_t n = min_i32(EI_WIDE, acts->n_tokens - token);
    const uint8_t *x = group_at(b->w, b->index);
    const char *fetch[EI_STREAMS];
    float out[EI_WIDE * EI_LANES] __attribute__((aligned(64)));
    ei_fetch_group(x + b->w->group_bytes, b->w->group_bytes, fetch);
    kernel_of(e, b->w, acts)(x, fetch, acts, token, n, out);
    store_rows(e, op, b->part, b->index, token, n, out);
}

/* The bundle after i in a chunk's range; at its end the first of the chunk that this thread will likely get next. */
static int32_t after(const ei_exec *e, int32_t i, int32_t last, int32_t per, int32_t total) {
    int32_t next = i + 1 < last ? i + 1 : i + 1 + per * (e->n_threads - 1);
    return next < total ? next : i;
}

static void matmul_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t n_tokens = e->acts.at[op->acts_in].acts.n_tokens, total = n_bundles(e, op), per = per_chunk(e, total);
    int32_t first = chunk * per, last = min_i32(first + per, total);
    if (are_few(e, op)) {
        for (int32_t i = first; i < last; i++) {
            bundle b = bundle_at(e, op, i), next = bundle_at(e, op, after(e, i, last, per, total));
            few_tokens(e, op, &b, &next);
        }
        return;
    }
    for (int32_t token = 0; token < n_tokens; token += EI_WIDE)
        for (int32_t i = first; i < last; i++) {
            bundle b = bundle_at(e, op, i);
            many_tokens(e, op, &b, token);
        }
}

static const uint8_t *unit_group(const ei_exec *e, const ei_op *op, int32_t unit, int32_t g) {
    return group_at(&e->weights.at[op->weight[g / UNIT]], unit * UNIT + g % UNIT);
}

/* The 32 rows of gate (h[0]) and of up (h[1]) of a unit, by n tokens; `next` is the unit to come. */
static void gate_and_up(ei_exec *e, const ei_op *op, int32_t unit, int32_t next, int32_t token, int32_t n,
                        float h[2][EI_WIDE][EI_BLOCK]) {
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    const char *fetch[EI_STREAMS];
    float out[EI_WIDE * EI_LANES] __attribute__((aligned(64)));
    _Static_assert(2 * UNIT == EI_STREAMS, "each group of the next unit is a stream");
    for (int32_t g = 0; g < 2 * UNIT; g++) {
        const ei_weight *w = &e->weights.at[op->weight[g / UNIT]];
        for (int32_t s = 0; s < EI_STREAMS; s++)
            fetch[s] = (const char *)unit_group(e, op, next, s) + w->group_bytes / EI_STREAMS * (size_t)g;
        kernel_of(e, w, acts)(unit_group(e, op, unit, g), fetch, acts, token, n, out);
        for (int32_t t = 0; t < n; t++)
            memcpy(h[g / UNIT][t] + g % UNIT * EI_LANES, out + t * EI_LANES, EI_LANES * sizeof *out);
    }
}

/* 32 rows of gate and up make one block of the next activations, so it is quantized where it was computed. */
static void gated_unit(ei_exec *e, const ei_op *op, int32_t unit, int32_t next, int32_t token, int32_t n) {
    float h[2][EI_WIDE][EI_BLOCK] __attribute__((aligned(64)));
    gate_and_up(e, op, unit, next, token, n, h);
    for (int32_t t = 0; t < n; t++) {
        e->kernels->gated(op->fn, h[0][t], h[1][t], h[0][t], EI_BLOCK);
        e->kernels->quantize_part(h[0][t], token + t, unit * EI_BLOCK, 1, &e->acts.at[op->acts_out].acts);
    }
}

static void gated_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t n_tokens = e->acts.at[op->acts_in].acts.n_tokens;
    int32_t total = e->weights.at[op->weight[0]].n_rows / EI_BLOCK, per = per_chunk(e, total);
    int32_t first = chunk * per, last = min_i32(first + per, total);
    for (int32_t token = 0; token < n_tokens; token += EI_WIDE)
        for (int32_t unit = first; unit < last; unit++) {
            int32_t next = after(e, unit, last, per, total);
            gated_unit(e, op, unit, next, token, min_i32(EI_WIDE, n_tokens - token));
        }
}

void ei_plan_matmul(ei_exec *e, const ei_op *op) {
    if (!rows_of(e, op->rows)) return;
    bool gated = op->kind == EI_OP_GATED;
    int32_t n = gated ? e->weights.at[op->weight[0]].n_rows / EI_BLOCK : n_bundles(e, op), per = per_chunk(e, n);
    ei_add_job(e, gated ? gated_chunk : matmul_chunk, op, (n + per - 1) / per);
}
