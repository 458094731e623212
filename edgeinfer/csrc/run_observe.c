/* edgeinfer/csrc/run_observe.c: the chunks of the op that sums the squares of what a matrix multiplies. */
#include "exec.h"

enum { COLUMNS = 128 }; /* of one chunk: their sums, 1 KB, stay in L1 while all rows pass */

/* The product is exact in double, so a sum depends on nothing but the order of its rows, which is that of the text. */
static void add_squares(const float *x, double *sums, int32_t n) {
    for (int32_t i = 0; i < n; i++) sums[i] += (double)x[i] * (double)x[i];
}

/* A row each of the step, or of each of its slots, whose experts the routing names. */
static void observe_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    const ei_sums *s = &e->sums.at[op->sums];
    const ei_routed *r = op->routing >= 0 ? &e->routings.at[op->routing] : NULL;
    int32_t slots = r ? r->how.n_used : 1, first = chunk * COLUMNS, n = min_i32(COLUMNS, s->n_columns - first);
    bool shared = e->values.at[op->in[0]].width == s->n_columns; /* one row for all slots */
    for (int32_t row = 0, n_rows = rows_of(e, op->rows); row < n_rows; row++)
        for (int32_t slot = 0; slot < slots; slot++) {
            size_t matrix = r ? (size_t)r->ids[(size_t)row * (size_t)slots + (size_t)slot] : 0;
            size_t at = shared ? 0 : (size_t)slot * (size_t)s->n_columns;
            add_squares(row_of(e, op->in[0], row) + at + first,
                        s->squares + matrix * (size_t)s->n_columns + (size_t)first, n);
            if (chunk == 0) s->counts[matrix] += 1.0;
        }
}

void ei_plan_observe(ei_exec *e, const ei_op *op) {
    ei_add_job(e, observe_chunk, op, (e->sums.at[op->sums].n_columns + COLUMNS - 1) / COLUMNS);
}
