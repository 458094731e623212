/* edgeinfer/csrc/run_matmul.c: the chunks of MATMUL and GATED: groups of rows by all the tokens of the step. */
#include "exec.h"

enum {
    CHUNKS_PER_THREAD = 8, /* so that a thread that lost its core leaves little behind */
    MOST_GROUPS = 16,
    UNIT = EI_BLOCK / EI_LANES /* groups of one activation block */
};

/* Cut n things into chunks; the same for the plan and for the chunk, so it needs no storage. */
static int32_t per_chunk(const ei_exec *e, int32_t n) {
    return min_i32(MOST_GROUPS, max_i32(1, n / (e->n_threads * CHUNKS_PER_THREAD)));
}

static int32_t groups_of(const ei_exec *e, const ei_op *op) {
    int32_t n = 0;
    for (int i = 0; i < 3 && op->weight[i] >= 0; i++) n += e->weights.at[op->weight[i]].n_groups;
    return n;
}

static void store_rows(ei_exec *e, const ei_op *op, int part, int32_t group, int32_t token, int32_t n,
                       const float *out) {
    const ei_weight *w = &e->weights.at[op->weight[part]];
    const float *bias = vector_of(e, op->vec[part]);
    int32_t first = group * EI_LANES, lanes = min_i32(EI_LANES, w->n_rows - first);
    for (int32_t t = 0; t < n; t++) {
        float *y = row_of(e, op->out[part], token + t) + first;
        const float *residual = part == 0 && op->in[0] >= 0 ? row_of(e, op->in[0], token + t) + first : NULL;
        for (int32_t i = 0; i < lanes; i++) {
            float v = out[EI_LANES * t + i];
            v = bias ? v + bias[first + i] : v;
            y[i] = residual ? residual[i] + v : v;
        }
    }
}

static void matmul_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    int32_t total = groups_of(e, op), per = per_chunk(e, total);
    int32_t first = chunk * per, last = min_i32(first + per, total), most = e->kernels->max_columns;
    float out[EI_TILE * EI_LANES] __attribute__((aligned(64)));
    for (int32_t tile = 0; tile * EI_TILE < acts->n_tokens; tile++) {
        int32_t width = min_i32(EI_TILE, acts->n_tokens - tile * EI_TILE);
        int32_t part = 0, before = 0;
        for (int32_t g = first; g < last; g++) {
            while (g - before >= e->weights.at[op->weight[part]].n_groups)
                before += e->weights.at[op->weight[part++]].n_groups;
            const ei_weight *w = &e->weights.at[op->weight[part]];
            const uint8_t *x = w->x + (size_t)(g - before) * w->group_bytes;
            for (int32_t c = 0; c < width; c += most) {
                int32_t n = min_i32(most, width - c);
                e->kernels->matmul[w->format][acts->low != NULL][n - 1](x, acts, tile, c, out);
                store_rows(e, op, part, g - before, tile * EI_TILE + c, n, out);
            }
        }
    }
}

/* 32 rows of gate and up make one block of the next activations, so it is quantized where it was computed. */
static void gated_unit(ei_exec *e, const ei_op *op, int32_t unit, int32_t tile, int32_t column, int32_t n) {
    const ei_acts *acts = &e->acts.at[op->acts_in].acts;
    float h[2][EI_TILE][EI_BLOCK] __attribute__((aligned(64)));
    float out[EI_TILE * EI_LANES] __attribute__((aligned(64)));
    for (int part = 0; part < 2; part++) {
        const ei_weight *w = &e->weights.at[op->weight[part]];
        for (int32_t g = 0; g < UNIT; g++) {
            const uint8_t *x = w->x + (size_t)(unit * UNIT + g) * w->group_bytes;
            e->kernels->matmul[w->format][acts->low != NULL][n - 1](x, acts, tile, column, out);
            for (int32_t t = 0; t < n; t++)
                memcpy(h[part][t] + g * EI_LANES, out + t * EI_LANES, EI_LANES * sizeof *out);
        }
    }
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
    bool gated = op->kind == EI_OP_GATED;
    int32_t n = gated ? e->weights.at[op->weight[0]].n_rows / EI_BLOCK : groups_of(e, op), per = per_chunk(e, n);
    if (rows_of(e, op->rows)) ei_add_job(e, gated ? gated_chunk : matmul_chunk, op, (n + per - 1) / per);
}
