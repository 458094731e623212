/* edgeinfer/csrc/run.c: one step: every op becomes one or two jobs, and the pool runs the list. */
#include "exec.h"

#include <stdlib.h>

void ei_add_job(ei_exec *e, ei_chunk_fn run, const void *op, int32_t n_chunks) {
    e->jobs[e->n_jobs++] = (ei_job){run, op, n_chunks};
}

/* The angles of every token, once for all the layers that turn by the same table. */
static void rope_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_rope *r = op;
    (void)thread;
    int32_t last = min_i32((chunk + 1) * EI_TILE, e->batch->n_tokens);
    for (int32_t row = chunk * EI_TILE; row < last; row++) {
        size_t at = (size_t)row * (size_t)r->n_pairs;
        ei_rope_row(e->batch->positions[row], r->inv_freq, r->n_pairs, r->mscale, r->cosines + at, r->sines + at);
    }
}

static void plan_runs(ei_exec *e) {
    const ei_batch *b = e->batch;
    e->n_runs = 0;
    for (int32_t t = 0, save = 0; t < b->n_tokens;) {
        ei_run run = {.first = t, .sequence = b->sequences[t], .first_save = save};
        while (t < b->n_tokens && b->sequences[t] == run.sequence) t++;
        while (save < b->n_saves && b->saved_rows[save] < t) save++;
        run.count = t - run.first, run.last_save = save - 1;
        e->runs[e->n_runs++] = run;
    }
}

static bool plan(ei_exec *e) {
    e->n_jobs = 0;
    ei_plan_spans(e);
    plan_runs(e);
    for (int32_t i = 0; i < e->acts.n; i++)
        e->acts.at[i].acts.n_tokens = e->acts.at[i].slots * rows_of(e, e->acts.at[i].rows);
    for (int32_t i = 0; i < e->ropes.n; i++)
        ei_add_job(e, rope_chunk, &e->ropes.at[i], (e->batch->n_tokens + EI_TILE - 1) / EI_TILE);
    int32_t n_ops = e->batch->hidden_only && e->hidden >= 0 ? e->n_body : e->ops.n;
    for (int32_t i = 0; i < n_ops; i++) {
        const ei_op *op = &e->ops.at[i];
        if (op->kind == EI_OP_MATMUL || op->kind == EI_OP_GATED)
            ei_plan_matmul(e, op);
        else if (op->kind == EI_OP_ROUTE)
            ei_plan_route(e, op);
        else if (op->kind >= EI_OP_EXPERT_ACTS && op->kind <= EI_OP_COMBINE)
            ei_plan_experts(e, op);
        else if (op->kind == EI_OP_OBSERVE)
            ei_plan_observe(e, op);
        else if (op->kind >= EI_OP_CONV && op->kind <= EI_OP_DELTA)
            ei_plan_recurrence(e, op);
        else if (op->kind != EI_OP_ATTENTION)
            ei_plan_rows(e, op);
        else if (!ei_plan_attention(e, op))
            return false;
    }
    return true;
}

const float *ei_exec_logits(const ei_exec *e) { return e->values.at[e->logits].data; }
const float *ei_exec_hidden(const ei_exec *e) { return e->hidden < 0 ? NULL : e->values.at[e->hidden].data; }

int32_t ei_exec_run(ei_exec *e, const ei_batch *batch, const volatile int32_t *cancel) {
    if (batch->n_tokens < 1 || batch->n_tokens > e->n_batch || batch->n_wanted < 0 ||
        batch->n_wanted > batch->n_tokens || !e->weight_memory)
        return EI_BAD_ARGUMENT;
    e->batch = batch;
    /* up to a tile of tokens a step is bound by memory, as one token is */
    e->n_threads = batch->n_tokens <= EI_TILE ? e->n_threads_few : e->n_threads_many;
    ei_pool_use(e->pool, e->n_threads);
    if (!plan(e)) return EI_NO_MEMORY;
    return ei_pool_run(e->pool, e, e->jobs, e->n_jobs, cancel);
}
