/* edgeinfer/csrc/run_rows.c: the chunks of the ops that treat each row of floats alone. */
#include "exec.h"
#include "repack.h"

/* 0 up to the first separator of the row's sequence and with it, 1 behind. */
static int32_t segment_of(const ei_batch *batch, int32_t row, int32_t separator) {
    for (int32_t i = row - 1; i >= 0 && batch->sequences[i] == batch->sequences[row]; i--)
        if (batch->tokens[i] == separator) return 1;
    return 0;
}

static void embed_row(ei_exec *e, const ei_op *op, int32_t row) {
    const ei_weight *w = &e->weights.at[op->weight[0]];
    float *y = row_of(e, op->out[0], row);
    int32_t segment = op->fn == 3 ? segment_of(e->batch, row, op->dim[0]) : 0;
    const int32_t ids[] = {e->batch->tokens[row], e->batch->positions[row], op->dim[0], segment};
    size_t row_bytes = ei_row_bytes(w->format, w->n_columns);
    ei_decode_row(w->format, w->file + (size_t)ids[op->fn] * row_bytes, w->n_columns, y);
    if (op->scale != 1.0f) e->kernels->scale(y, op->scale, 0.0f, y, w->n_columns);
}

static void gather_row(ei_exec *e, const ei_op *op, int32_t row) {
    size_t width = (size_t)e->values.at[op->out[0]].width;
    memcpy(row_of(e, op->out[0], row), row_of(e, op->in[0], e->batch->wanted[row]), width * sizeof(float));
}

static void split_row(ei_exec *e, const ei_op *op, int32_t row) {
    size_t n_groups = (size_t)op->heads[0], n = (size_t)e->values.at[op->in[0]].width / n_groups;
    for (size_t group = 0; group < n_groups; group++) {
        const float *x = row_of(e, op->in[0], row) + group * n + op->dim[0];
        for (int i = 0; i < 3 && op->out[i] >= 0; i++) {
            size_t width = (size_t)e->values.at[op->out[i]].width / n_groups;
            memcpy(row_of(e, op->out[i], row) + group * width, x, width * sizeof *x);
            x += width;
        }
    }
}

static void concat_row(ei_exec *e, const ei_op *op, int32_t row) {
    float *y = row_of(e, op->out[0], row);
    for (int32_t group = 0; group < op->heads[0]; group++)
        for (int i = 0; i < 3 && op->in[i] >= 0; i++) {
            int32_t n = op->dim[i], at = e->values.at[op->in[i]].width == n ? 0 : group * n;
            memcpy(y, row_of(e, op->in[i], row) + at, (size_t)n * sizeof *y);
            y += n;
        }
}

static void leave_acts(ei_exec *e, const ei_op *op, int32_t row, const float *x) {
    if (op->acts_out >= 0) e->kernels->quantize(x, row, &e->acts.at[op->acts_out].acts);
}

/* in1 is a branch of in0's width; a branch is normed in place, it has no other reader. */
static void norm_row(ei_exec *e, const ei_op *op, int32_t row) {
    const ei_kernels *k = e->kernels;
    const float *x = row_of(e, op->in[0], row);
    int32_t n = e->values.at[op->in[0]].width;
    if (op->in[1] >= 0) {
        float *branch = row_of(e, op->in[1], row), *sum = row_of(e, op->out[0], row);
        if (op->vec[0] >= 0) k->rms_norm(branch, vector_of(e, op->vec[0]), branch, n, op->eps);
        k->add(x, branch, 1.0f, sum, n);
        x = sum;
    }
    if (op->out[1] >= 0) {
        float *h = row_of(e, op->out[1], row);
        if (op->vec[1] >= 0)
            k->rms_norm(x, vector_of(e, op->vec[1]), h, n, op->eps);
        else
            memcpy(h, x, (size_t)n * sizeof *h);
        x = h;
    }
    leave_acts(e, op, row, x);
}

static void layer_norm_row(ei_exec *e, const ei_op *op, int32_t row) {
    const ei_kernels *k = e->kernels;
    const float *x = row_of(e, op->in[0], row), *weight = vector_of(e, op->vec[0]), *bias = vector_of(e, op->vec[1]);
    float *y = row_of(e, op->out[0], row);
    int32_t width = e->values.at[op->out[0]].width, n = width / op->heads[0];
    for (int32_t at = 0; at < width; at += n) {
        k->center(x + at, y + at, n);
        k->rms_norm(y + at, NULL, y + at, n, op->eps);
    }
    if (weight) k->multiply(y, weight, y, width);
    if (bias) k->add(y, bias, 1.0f, y, width);
    leave_acts(e, op, row, y);
}

/* The q (0) or k (1) of HEADS: copied to its own value, normed per head, turned. */
static float *heads_of(ei_exec *e, const ei_op *op, int which, int32_t row) {
    const ei_kernels *k = e->kernels;
    int32_t heads = op->heads[which], dim = op->dim[which];
    const float *x = row_of(e, op->in[which], row), *weight = vector_of(e, op->vec[which]);
    float *y = row_of(e, op->out[which], row);
    if (y != x) memcpy(y, x, (size_t)heads * (size_t)dim * sizeof *y);
    if (weight)
        for (int32_t h = 0; h < heads; h++)
            k->rms_norm(y + (size_t)h * (size_t)dim, weight, y + (size_t)h * (size_t)dim, dim, op->eps);
    if (op->rope >= 0) {
        const ei_rope *r = &e->ropes.at[op->rope];
        size_t at = (size_t)token_of(e, op, row) * (size_t)r->n_pairs;
        k->rope(y, heads, dim, r->n_pairs, op->interleaved, r->cosines + at, r->sines + at);
    }
    return y;
}

static void heads_row(ei_exec *e, const ei_op *op, int32_t row) {
    const ei_batch *b = e->batch;
    if (op->in[0] >= 0) heads_of(e, op, 0, row);
    const float *keys = op->in[1] >= 0 ? heads_of(e, op, 1, row) : NULL;
    if (op->kv < 0) return;
    int32_t position = b->positions[row];
    size_t table = (size_t)b->sequences[row] * (size_t)b->pages_per_sequence;
    int32_t page = b->page_tables[table + (size_t)(position / EI_PAGE_LEN)];
    /* without values of its own, the values are the first dims of the keys */
    const float *values = op->in[2] >= 0 ? row_of(e, op->in[2], row) : keys;
    e->kernels->kv_store(&e->kvs.at[op->kv], page, position % EI_PAGE_LEN, keys, values);
}

/* Each element of a narrow gate is for so many neighbours of the rest. */
static void narrow_gate_row(ei_exec *e, const ei_op *op, int32_t row) {
    int32_t n_gates = e->values.at[op->in[0]].width, each = e->values.at[op->out[0]].width / n_gates;
    const float *gate = row_of(e, op->in[0], row), *x = row_of(e, op->in[1], row);
    float *y = row_of(e, op->out[0], row), by;
    for (int32_t i = 0; i < n_gates; i++, x += each, y += each) {
        e->kernels->act(op->fn, gate + i, &by, 1);
        e->kernels->scale(x, by, 0.0f, y, each);
    }
}

/* what a row is multiplied by, which may depend on its position */
static float factor_of(const ei_exec *e, const ei_op *op, int32_t row) {
    const float *factors = vector_of(e, op->vec[0]);
    return factors ? op->scale * factors[e->batch->positions[token_of(e, op, row)] / op->dim[0]] : op->scale;
}

static void elementwise_row(ei_exec *e, const ei_op *op, int32_t row) {
    const ei_kernels *k = e->kernels;
    float *y = row_of(e, op->out[0], row);
    const float *x = row_of(e, op->in[0], row);
    const float *other = op->in[1] >= 0 ? row_of(e, op->in[1], row) : vector_of(e, op->vec[0]);
    int32_t n = e->values.at[op->out[0]].width;
    switch (op->kind) {
    case EI_OP_ACT: k->act(op->fn, x, y, n); break;
    case EI_OP_GATE:
        if (e->values.at[op->in[0]].width < n)
            narrow_gate_row(e, op, row);
        else
            apply_gate(e, op, x, other, y, n);
        break;
    case EI_OP_ADD: k->add(x, other, op->alpha, y, n); break;
    case EI_OP_MULTIPLY: k->multiply(x, other, y, n); break;
    case EI_OP_SOFTMAX: k->softmax(x, y, n); break;
    default: k->scale(x, factor_of(e, op, row), op->softcap, y, n);
    }
    leave_acts(e, op, row, y);
}

/* The rows of one sequence become one. */
static void pool_row(ei_exec *e, const ei_op *op, int32_t row) {
    const ei_run *run = &e->runs[row];
    int32_t n = e->values.at[op->out[0]].width, first = run->first + (op->fn == EI_POOL_LAST ? run->count - 1 : 0);
    float *y = row_of(e, op->out[0], row);
    memcpy(y, row_of(e, op->in[0], first), (size_t)n * sizeof *y);
    if (op->fn != EI_POOL_MEAN) return;
    for (int32_t t = 1; t < run->count; t++) e->kernels->add(y, row_of(e, op->in[0], first + t), 1.0f, y, n);
    e->kernels->scale(y, 1.0f / (float)run->count, 0.0f, y, n);
}

static void rows_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    void (*row_fn)(ei_exec *, const ei_op *, int32_t) = op->kind == EI_OP_EMBED        ? embed_row
                                                        : op->kind == EI_OP_GATHER     ? gather_row
                                                        : op->kind == EI_OP_SPLIT      ? split_row
                                                        : op->kind == EI_OP_NORM       ? norm_row
                                                        : op->kind == EI_OP_HEADS      ? heads_row
                                                        : op->kind == EI_OP_LAYER_NORM ? layer_norm_row
                                                        : op->kind == EI_OP_CONCAT     ? concat_row
                                                        : op->kind == EI_OP_POOL       ? pool_row
                                                                                       : elementwise_row;
    int32_t last = min_i32((chunk + 1) * EI_TILE, rows_of(e, op->rows));
    for (int32_t row = chunk * EI_TILE; row < last; row++) row_fn(e, op, row);
}

void ei_plan_rows(ei_exec *e, const ei_op *op) {
    ei_add_job(e, rows_chunk, op, (rows_of(e, op->rows) + EI_TILE - 1) / EI_TILE);
}
