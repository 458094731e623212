/* edgeinfer/csrc/run_recurrence.c: the chunks of CONV, SCAN and DELTA: the rows of one sequence, by columns of a head.
 *
 * A chunk goes through the rows in order and writes the states that are to be saved; columns know nothing of each
 * other, so any thread may take any. What a step reads is never what it writes: a step that was cancelled can run
 * again.
 */
#include "exec.h"

#include <math.h>

/* Columns of one chunk: of a convolution, whose rows are short work, and of a state, which then stays in L1. */
enum { CONV_COLUMNS = 128, STATE_COLUMNS = 64, OWN_FLOATS = 8192 };

static const float zeros[CONV_COLUMNS];

/* Columns `first` .. of one head of a state. */
typedef struct {
    int32_t head, first, n;
    size_t at; /* floats from the start of a snapshot */
} part;

static int32_t columns_of(const ei_op *op) { return op->kind == EI_OP_CONV ? CONV_COLUMNS : STATE_COLUMNS; }

static int32_t parts_of(const ei_exec *e, const ei_op *op) {
    return (e->states.at[op->state].n_columns + columns_of(op) - 1) / columns_of(op);
}

static part part_at(const ei_exec *e, const ei_op *op, int32_t index) {
    const ei_state *s = &e->states.at[op->state];
    int32_t parts = parts_of(e, op), head = index / parts, first = index % parts * columns_of(op);
    size_t at = s->at + (size_t)head * (size_t)s->n_rows * (size_t)s->n_columns + (size_t)first;
    return (part){head, first, min_i32(columns_of(op), s->n_columns - first), at};
}

static float *state_in(const ei_exec *e, int32_t snapshot, const part *p) {
    return (float *)(e->snapshot_memory + (size_t)snapshot * e->snapshot_bytes) + p->at;
}

/* Where the sequence stood before the step; NULL: at its beginning. */
static const float *state_before(const ei_exec *e, const ei_run *run, const part *p) {
    return e->batch->positions[run->first] ? state_in(e, e->batch->snapshots[run->sequence], p) : NULL;
}

/* The columns of a part, which may stand among others or alone: `stride` floats from row to row. */
typedef struct {
    float *at;
    size_t stride;
} columns;

static void copy_part(const ei_state *s, const part *p, const columns *from, const columns *to) {
    for (size_t row = 0; row < (size_t)s->n_rows; row++) {
        float *x = to->at + row * to->stride;
        size_t n_bytes = (size_t)p->n * sizeof *x;
        from->at ? memcpy(x, from->at + row * from->stride, n_bytes) : memset(x, 0, n_bytes);
    }
}

/* Input `index` of a run, counted from its first row; those below 0 are its past, a row of the state each. */
static const float *input_at(const ei_exec *e, const ei_op *op, const ei_run *run, const part *p, const float *past,
                             int32_t index) {
    const ei_state *s = &e->states.at[op->state];
    if (index >= 0) return row_of(e, op->in[0], run->first + index) + p->first;
    return past ? past + (size_t)(s->n_rows + index) * (size_t)s->n_columns : zeros;
}

static void conv_run(ei_exec *e, const ei_op *op, const ei_run *run, const part *p) {
    const ei_batch *b = e->batch;
    const ei_state *s = &e->states.at[op->state];
    const float *past = state_before(e, run, p), *bias = vector_of(e, op->vec[1]), *taps[EI_MOST_TAPS];
    int32_t save = run->first_save, n_taps = s->n_rows + 1;
    for (int32_t t = 0; t < run->count; t++) {
        for (int32_t j = 0; j < n_taps; j++) taps[j] = input_at(e, op, run, p, past, t - s->n_rows + j);
        e->kernels->convolve(taps, n_taps, vector_of(e, op->vec[0]) + p->first, s->n_columns,
                             bias ? bias + p->first : NULL, row_of(e, op->out[0], run->first + t) + p->first, p->n);
        for (; save <= run->last_save && b->saved_rows[save] == run->first + t; save++)
            for (int32_t j = 1; j < n_taps; j++)
                memcpy(state_in(e, b->saved_snapshots[save], p) + (size_t)(j - 1) * (size_t)s->n_columns, taps[j],
                       (size_t)p->n * sizeof(float));
    }
}

static void scan_row(ei_exec *e, const ei_op *op, const part *p, int32_t row, const float *from, const columns *to) {
    const ei_state *s = &e->states.at[op->state];
    size_t group = (size_t)(p->head / (op->heads[0] / op->heads[1])) * (size_t)s->n_rows;
    size_t column = (size_t)p->head * (size_t)s->n_columns + (size_t)p->first;
    ei_scan in = {
        .x = row_of(e, op->in[0], row) + column,
        .b = row_of(e, op->in[1], row) + group,
        .c = row_of(e, op->in[2], row) + group,
        .dt = row_of(e, op->in[3], row)[p->head],
        .a = vector_of(e, op->vec[0])[p->head],
        .d = vector_of(e, op->vec[1])[p->head],
        .dt_bias = vector_of(e, op->vec[2])[p->head],
    };
    e->kernels->scan(from, to->at, (int32_t)to->stride, s->n_rows, p->n, &in, row_of(e, op->out[0], row) + column);
}

static void delta_row(ei_exec *e, const ei_op *op, const part *p, int32_t row, const float *from, const columns *to) {
    const ei_state *s = &e->states.at[op->state];
    int32_t k_heads = op->heads[0], k_head = op->tiled ? p->head % k_heads : p->head / (op->heads[1] / k_heads);
    size_t key = (size_t)k_head * (size_t)s->n_rows;
    size_t column = (size_t)p->head * (size_t)s->n_columns + (size_t)p->first;
    ei_delta in = {
        .q = row_of(e, op->in[0], row) + key,
        .k = row_of(e, op->in[1], row) + key,
        .v = row_of(e, op->in[2], row) + column,
        .scale = 1.0f / sqrtf((float)s->n_rows),
        .g = row_of(e, op->in[3], row)[p->head],
        .beta = row_of(e, op->in[4], row)[p->head],
    };
    e->kernels->delta(from, to->at, (int32_t)to->stride, s->n_rows, p->n, &in, row_of(e, op->out[0], row) + column);
}

/* The state is worked on where it is to stand at the end, read by the first row where it stood; over many rows in a
 * place of its own, where its columns lie together. It is copied wherever it is wanted on the way. */
static void state_run(ei_exec *e, const ei_op *op, const ei_run *run, const part *p) {
    const ei_batch *b = e->batch;
    const ei_state *s = &e->states.at[op->state];
    float own[OWN_FLOATS];
    size_t stride = (size_t)s->n_columns;
    bool apart = run->count > 1 && p->n < s->n_columns && p->n * s->n_rows <= OWN_FLOATS;
    columns before = {(float *)state_before(e, run, p), stride};
    columns last = {state_in(e, b->saved_snapshots[run->last_save], p), stride};
    columns work = apart ? (columns){own, (size_t)p->n} : last;
    if (apart || !before.at) copy_part(s, p, &before, &work), before = work;
    int32_t save = run->first_save;
    for (int32_t row = run->first; row < run->first + run->count; row++, before = work) {
        (op->kind == EI_OP_SCAN ? scan_row : delta_row)(e, op, p, row, before.at, &work);
        for (; save < run->last_save && b->saved_rows[save] == row; save++) {
            columns wanted = {state_in(e, b->saved_snapshots[save], p), stride};
            copy_part(s, p, &work, &wanted);
        }
    }
    if (apart) copy_part(s, p, &work, &last);
}

static void recurrence_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t n = e->states.at[op->state].n_heads * parts_of(e, op);
    part p = part_at(e, op, chunk % n);
    (op->kind == EI_OP_CONV ? conv_run : state_run)(e, op, &e->runs[chunk / n], &p);
}

/* A convolution that looks ahead: columns of one sequence. */
static void centered_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t width = e->values.at[op->out[0]].width, parts = (width + CONV_COLUMNS - 1) / CONV_COLUMNS;
    int32_t first = chunk % parts * CONV_COLUMNS, n = min_i32(CONV_COLUMNS, width - first), n_taps = op->dim[0];
    const ei_run *run = &e->runs[chunk / parts];
    const float *weight = vector_of(e, op->vec[0]) + first, *bias = vector_of(e, op->vec[1]), *taps[EI_MOST_TAPS];
    for (int32_t t = 0; t < run->count; t++) {
        for (int32_t j = 0; j < n_taps; j++) {
            int32_t at = t + j - n_taps / 2;
            taps[j] = at < 0 || at >= run->count ? zeros : row_of(e, op->in[0], run->first + at) + first;
        }
        e->kernels->convolve(taps, n_taps, weight, width, bias ? bias + first : NULL,
                             row_of(e, op->out[0], run->first + t) + first, n);
    }
}

void ei_plan_recurrence(ei_exec *e, const ei_op *op) {
    if (op->state < 0) {
        int32_t parts = (e->values.at[op->out[0]].width + CONV_COLUMNS - 1) / CONV_COLUMNS;
        ei_add_job(e, centered_chunk, op, e->n_runs * parts);
        return;
    }
    ei_add_job(e, recurrence_chunk, op, e->n_runs * e->states.at[op->state].n_heads * parts_of(e, op));
}
