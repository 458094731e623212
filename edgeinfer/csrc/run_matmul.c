/* edgeinfer/csrc/run_matmul.c: the chunks of MATMUL and GATED: groups of rows by all the tokens of the step. */
#include "exec.h"

enum {
    CHUNKS_PER_THREAD = 8, /* so that a thread that lost its core leaves little behind */
    MOST_GROUPS = 16,
    UNIT = EI_BLOCK / EI_LANES /* groups of one block of activations */
};

/* The kernels of one format, by number of columns - 1. */
static const ei_matmul_fn *kernels_of(const ei_exec *e, const ei_weight *w, const ei_acts *acts) {
    return e->kernels->matmul[w->format][acts->fine];
}

static const uint8_t *group_at(const ei_weight *w, int32_t group) { return w->x + (size_t)group * w->group_bytes; }

/* Cut n things into chunks; the same for the plan and for the chunk, so it needs no storage. */
static int32_t per_chunk(const ei_exec *e, int32_t n) {
    return min_i32(MOST_GROUPS, max_i32(1, n / (e->n_threads * CHUNKS_PER_THREAD)));
}

/* One or two tokens take several groups at once. Those of a matrix stand a share of it apart: so many streams of
 * memory are read side by side, which together are faster than one. What is left over is taken group by group. */
static bool are_few(const ei_exec *e, int32_t n_tokens) {
    return n_tokens <= min_i32(EI_FEW_COLUMNS, e->kernels->max_columns);
}

typedef struct {
    int32_t wide;  /* groups of a bundle */
    int32_t share; /* bundle i: groups i, share + i, 2*share + i, ... */
    int32_t n;     /* bundles, those of one group included */
} bundles;

static bundles bundles_of(const ei_exec *e, const ei_op *op, const ei_weight *w) {
    int32_t n_tokens = e->acts.at[op->acts_in].acts.n_tokens;
    int32_t wide = are_few(e, n_tokens) ? min_i32(EI_MOST_GROUPS, w->n_groups) : 1, share = w->n_groups / wide;
    return (bundles){wide, share, share + w->n_groups % wide};
}

static int32_t n_bundles(const ei_exec *e, const ei_op *op) {
    int32_t n = 0;
    for (int i = 0; i < 3 && op->weight[i] >= 0; i++) n += bundles_of(e, op, &e->weights.at[op->weight[i]]).n;
    return n;
}

/* out: 16 rows of n tokens; a whole group without bias or residual is only copied */
static void store_rows(ei_exec *e, const ei_op *op, int part, int32_t group, int32_t token, int32_t n,
                       const float *out) {
    const ei_weight *w = &e->weights.at[op->weight[part]];
    const float *bias = vector_of(e, op->vec[part]);
    int32_t first = group * EI_LANES, lanes = min_i32(EI_LANES, w->n_rows - first);
    bool residual = part == 0 && op->in[0] >= 0;
    for (int32_t t = 0; t < n; t++, out += EI_LANES) {
        float *y = row_of(e, op->out[part], token + t) + first;
        const float *before = residual ? row_of(e, op->in[0], token + t) + first : NULL;
        if (!bias && !residual && lanes == EI_LANES)
            memcpy(y, out, EI_LANES * sizeof *out);
        else
            for (int32_t i = 0; i < lanes; i++) {
                float v = bias ? out[i] + bias[first + i] : out[i];
                y[i] = residual ? before[i] + v : v;
            }
    }
}

/* Bundle `index` of part `part` by all the tokens of the step, two at most when the bundle is wide. */
static void bundle(ei_exec *e, const ei_op *op, int part, int32_t index, int32_t tile) {
    const ei_weight *w = &e->weights.at[op->weight[part]];
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    const ei_matmul_fn *matmul = kernels_of(e, w, acts);
    bundles b = bundles_of(e, op, w);
    int32_t width = min_i32(EI_TILE, acts->n_tokens - tile * EI_TILE), most = e->kernels->max_columns;
    float out[EI_TILE * EI_LANES] __attribute__((aligned(64)));
    const void *groups[EI_MOST_GROUPS];
    if (b.wide > 1 && index < b.share) {
        for (int32_t g = 0; g < b.wide; g++) groups[g] = group_at(w, index + g * b.share);
        matmul[width - 1](groups, b.wide, acts, tile, 0, out);
        for (int32_t g = 0; g < b.wide; g++)
            store_rows(e, op, part, index + g * b.share, 0, width, out + g * width * EI_LANES);
        return;
    }
    int32_t group = b.wide > 1 ? b.share * (b.wide - 1) + index : index;
    groups[0] = group_at(w, group);
    for (int32_t c = 0; c < width; c += most) {
        int32_t n = min_i32(most, width - c);
        matmul[n - 1](groups, 1, acts, tile, c, out);
        store_rows(e, op, part, group, tile * EI_TILE + c, n, out);
    }
}

static void matmul_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t n_tokens = e->acts.at[op->acts_in].acts.n_tokens, total = n_bundles(e, op), per = per_chunk(e, total);
    int32_t first = chunk * per, last = min_i32(first + per, total);
    for (int32_t tile = 0; tile * EI_TILE < n_tokens; tile++) {
        int32_t part = 0, before = 0, n = bundles_of(e, op, &e->weights.at[op->weight[0]]).n;
        for (int32_t i = first; i < last; i++) {
            while (i - before >= n) {
                before += n;
                n = bundles_of(e, op, &e->weights.at[op->weight[++part]]).n;
            }
            bundle(e, op, part, i - before, tile);
        }
    }
}

/* The 32 rows of gate (h[0]) and of up (h[1]) of a unit, by n tokens. */
static void gate_and_up(ei_exec *e, const ei_op *op, int32_t unit, int32_t tile, int32_t column, int32_t n,
                        float h[2][EI_TILE][EI_BLOCK]) {
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    const ei_weight *w[2] = {&e->weights.at[op->weight[0]], &e->weights.at[op->weight[1]]};
    float out[EI_TILE * EI_LANES] __attribute__((aligned(64)));
    const void *groups[2 * UNIT];
    for (int32_t g = 0; g < 2 * UNIT; g++) groups[g] = group_at(w[g / UNIT], unit * UNIT + g % UNIT);
    int32_t wide = are_few(e, acts->n_tokens) && w[0]->format == w[1]->format ? 2 * UNIT : 1;
    for (int32_t first = 0; first < 2 * UNIT; first += wide) {
        kernels_of(e, w[first / UNIT], acts)[n - 1](groups + first, wide, acts, tile, column, out);
        for (int32_t i = 0; i < wide * n; i++) {
            int32_t g = first + i / n;
            memcpy(h[g / UNIT][i % n] + g % UNIT * EI_LANES, out + i * EI_LANES, EI_LANES * sizeof *out);
        }
    }
}

/* 32 rows of gate and up make one block of the next activations, so it is quantized where it was computed. */
static void gated_unit(ei_exec *e, const ei_op *op, int32_t unit, int32_t tile, int32_t column, int32_t n) {
    float h[2][EI_TILE][EI_BLOCK] __attribute__((aligned(64)));
    gate_and_up(e, op, unit, tile, column, n, h);
    for (int32_t t = 0; t < n; t++) {
        e->kernels->gated(op->fn, h[0][t], h[1][t], h[0][t], EI_BLOCK);
        e->kernels->quantize_part(h[0][t], tile * EI_TILE + column + t, unit * EI_BLOCK, 1,
                                  &e->acts.at[op->acts_out].acts);
    }
}

static void gated_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t n_tokens = e->acts.at[op->acts_in].acts.n_tokens, most = e->kernels->max_columns;
    int32_t total = e->weights.at[op->weight[0]].n_rows / EI_BLOCK, per = per_chunk(e, total);
    int32_t first = chunk * per, last = min_i32(first + per, total);
    for (int32_t tile = 0; tile * EI_TILE < n_tokens; tile++) {
        int32_t width = min_i32(EI_TILE, n_tokens - tile * EI_TILE);
        for (int32_t unit = first; unit < last; unit++)
            for (int32_t c = 0; c < width; c += most) gated_unit(e, op, unit, tile, c, min_i32(most, width - c));
    }
}

void ei_plan_matmul(ei_exec *e, const ei_op *op) {
    if (!rows_of(e, op->rows)) return;
    bool gated = op->kind == EI_OP_GATED;
    int32_t n = gated ? e->weights.at[op->weight[0]].n_rows / EI_BLOCK : n_bundles(e, op), per = per_chunk(e, n);
    ei_add_job(e, gated ? gated_chunk : matmul_chunk, op, (n + per - 1) / per);
}
