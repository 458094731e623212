/* edgeinfer/csrc/run_attention.c: the chunks of ATTENTION: items of a few tokens by the query heads of one KV head.
 *
 * An item computes its chunks of 256 positions and merges them left to right. When a step has too few items to
 * keep the threads busy (one token, few KV heads, a long context), its (item, chunk) pairs become a first job and
 * the merges a second one. Both ways do the same arithmetic in the same order, so they give the same bits.
 */
#include "exec.h"

#include <math.h>
#include <stdlib.h>

/* Where an item's rows are: query heads first_head .. of one KV head, for the rows of one span. */
typedef struct {
    const ei_span *span;
    int32_t kv_head, first_head, n_heads, n_rows;
    int32_t first_chunk, last_chunk; /* that any row sees */
} item;

/* One thread's scratch, cut up. */
typedef struct {
    float *q, *m, *l, *o, *chunk_m, *chunk_l, *chunk_o, *kernel;
    int32_t first[EI_ATTENTION_ROWS], last[EI_ATTENTION_ROWS], position[EI_ATTENTION_ROWS];
    float slopes[EI_ATTENTION_ROWS];
} workspace;

static int32_t group_of(const ei_exec *e, const ei_op *op) { return op->heads[0] / e->kvs.at[op->kv].n_kv_heads; }

/* a group of more than EI_ATTENTION_ROWS query heads is cut into parts */
static int32_t parts_of(int32_t group) { return (group + EI_ATTENTION_ROWS - 1) / EI_ATTENTION_ROWS; }

void ei_size_attention(ei_exec *e) {
    size_t query_words = 0, value_dim = 0;
    e->span_len = EI_ATTENTION_ROWS;
    for (int32_t i = 0; i < e->ops.n; i++) {
        const ei_op *op = &e->ops.at[i];
        if (op->kind != EI_OP_ATTENTION) continue;
        const ei_kv *kv = &e->kvs.at[op->kv];
        query_words = query_words > ei_query_words(kv) ? query_words : ei_query_words(kv);
        value_dim = value_dim > (size_t)kv->value_dim ? value_dim : (size_t)kv->value_dim;
        e->span_len = min_i32(e->span_len, max_i32(1, EI_ATTENTION_ROWS / group_of(e, op)));
    }
    e->scratch_floats = EI_ATTENTION_ROWS * (query_words + 2 * value_dim + 4) + EI_ATTENTION_SCRATCH + 64;
}

static workspace workspace_of(const ei_exec *e, const ei_kv *kv, int32_t thread) {
    workspace s;
    float *at = e->scratch + (size_t)thread * e->scratch_floats;
    float **parts[] = {&s.m, &s.l, &s.chunk_m, &s.chunk_l};
    s.kernel = at, at += EI_ATTENTION_SCRATCH;
    s.q = at, at += EI_ATTENTION_ROWS * ei_query_words(kv);
    s.o = at, at += EI_ATTENTION_ROWS * (size_t)kv->value_dim;
    s.chunk_o = at, at += EI_ATTENTION_ROWS * (size_t)kv->value_dim;
    for (int i = 0; i < 4; i++, at += EI_ATTENTION_ROWS) *parts[i] = at;
    return s;
}

/* Rows first .. last - 1 of one sequence, cut into spans of equal length, but for one row. */
static void cut_spans(ei_exec *e, ei_spans *spans, int32_t first, int32_t last, int32_t sequence, int32_t end) {
    for (int32_t left = (last - first + e->span_len - 1) / e->span_len; left > 0; left--) {
        int32_t count = (last - first + left - 1) / left;
        spans->at[spans->n++] = (ei_span){first, count, sequence, end};
        first += count;
    }
}

void ei_plan_spans(ei_exec *e) {
    const ei_batch *b = e->batch;
    ei_spans *tokens = &e->spans[EI_ROWS_TOKENS], *wanted = &e->spans[EI_ROWS_WANTED];
    tokens->n = wanted->n = 0;
    for (int32_t t = 0, w = 0; t < b->n_tokens;) {
        int32_t next = t, next_wanted = w, sequence = b->sequences[t];
        while (next < b->n_tokens && b->sequences[next] == sequence) next++;
        while (next_wanted < b->n_wanted && b->wanted[next_wanted] < next) next_wanted++;
        cut_spans(e, tokens, t, next, sequence, b->positions[next - 1]);
        cut_spans(e, wanted, w, next_wanted, sequence, b->positions[next - 1]);
        t = next, w = next_wanted;
    }
}

static const ei_spans *spans_of(const ei_exec *e, const ei_op *op) { return &e->spans[op->rows]; }

static int32_t position_of(const ei_exec *e, const ei_op *op, int32_t row) {
    return e->batch->positions[token_of(e, op, row)];
}

static int32_t n_items(const ei_exec *e, const ei_op *op) {
    return spans_of(e, op)->n * e->kvs.at[op->kv].n_kv_heads * parts_of(group_of(e, op));
}

/* The first and the last position that a token sees. */
static int32_t first_of(const ei_op *op, int32_t position) { return position > op->behind ? position - op->behind : 0; }
static int32_t last_of(const ei_op *op, const ei_span *span, int32_t position) {
    return op->ahead < span->end - position ? position + op->ahead : span->end;
}

static item item_at(const ei_exec *e, const ei_op *op, int32_t index) {
    int32_t group = group_of(e, op), parts = parts_of(group), n_kv = e->kvs.at[op->kv].n_kv_heads;
    /* the last spans see the most positions: they come first, so that no long item is left for the end */
    const ei_spans *spans = spans_of(e, op);
    const ei_span *span = &spans->at[spans->n - 1 - index / (parts * n_kv)];
    item it = {.span = span, .kv_head = index / parts % n_kv};
    int32_t first = index % parts * EI_ATTENTION_ROWS;
    it.first_head = it.kv_head * group + first;
    it.n_heads = min_i32(EI_ATTENTION_ROWS, group - first);
    it.n_rows = it.n_heads * span->count;
    int32_t low = position_of(e, op, span->first), high = position_of(e, op, span->first + span->count - 1);
    it.first_chunk = first_of(op, low) / EI_CHUNK_LEN;
    it.last_chunk = last_of(op, span, high) / EI_CHUNK_LEN;
    return it;
}

/* Row r: head r % n_heads of row r / n_heads of the span. */
static ei_attention_rows rows_at(const ei_exec *e, const ei_op *op, const item *it, workspace *s) {
    const ei_batch *b = e->batch;
    const ei_kv *kv = &e->kvs.at[op->kv];
    const float *slopes = vector_of(e, op->vec[1]);
    for (int32_t r = 0; r < it->n_rows; r++) {
        int32_t row = it->span->first + r / it->n_heads, head = it->first_head + r % it->n_heads;
        const float *q = row_of(e, op->in[0], row) + (size_t)head * (size_t)kv->key_dim;
        e->kernels->attention_query(kv, q, op->scale, s->q + (size_t)r * ei_query_words(kv));
        s->position[r] = position_of(e, op, row);
        s->first[r] = first_of(op, s->position[r]);
        s->last[r] = last_of(op, it->span, s->position[r]);
        s->slopes[r] = slopes ? slopes[head] : 0.0f;
    }
    return (ei_attention_rows){
        .kv = kv,
        .pages = b->page_tables + (size_t)it->span->sequence * (size_t)b->pages_per_sequence,
        .kv_head = it->kv_head,
        .n_rows = it->n_rows,
        .q = s->q,
        .first = s->first,
        .last = s->last,
        .position = s->position,
        .softcap = op->softcap,
        .slopes = slopes ? s->slopes : NULL,
    };
}

static void merge_rows(const ei_exec *e, int32_t n_rows, int32_t dim, float *m, float *l, float *o,
                       const float *chunk_m, const float *chunk_l, const float *chunk_o) {
    for (int32_t r = 0; r < n_rows; r++) {
        size_t at = (size_t)r * (size_t)dim;
        if (chunk_m[r] != -INFINITY)
            e->kernels->attention_merge(dim, m + r, l + r, o + at, chunk_m[r], chunk_l[r], chunk_o + at);
    }
}

static void finish_rows(ei_exec *e, const ei_op *op, const item *it, const workspace *s) {
    const ei_kv *kv = &e->kvs.at[op->kv];
    const float *sinks = vector_of(e, op->vec[0]);
    int32_t dim = kv->value_dim;
    for (int32_t r = 0; r < it->n_rows; r++) {
        int32_t row = it->span->first + r / it->n_heads, head = it->first_head + r % it->n_heads;
        e->kernels->attention_finish(dim, s->m[r], s->l[r], s->o + (size_t)r * (size_t)dim, sinks ? sinks + head : NULL,
                                     row_of(e, op->out[0], row) + (size_t)head * (size_t)dim);
    }
    if (op->acts_out < 0) return;
    int32_t first = it->first_head * dim, n_blocks = it->n_heads * dim / EI_BLOCK;
    for (int32_t t = it->span->first; t < it->span->first + it->span->count; t++)
        e->kernels->quantize_part(row_of(e, op->out[0], t) + first, t, first, n_blocks, &e->acts.at[op->acts_out].acts);
}

static void start_rows(const item *it, workspace *s) {
    for (int32_t r = 0; r < it->n_rows; r++) s->m[r] = -INFINITY;
}

static void item_chunk(void *context, const void *op_, int32_t index, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    item it = item_at(e, op, index);
    workspace s = workspace_of(e, &e->kvs.at[op->kv], thread);
    ei_attention_rows rows = rows_at(e, op, &it, &s);
    start_rows(&it, &s);
    for (int32_t c = it.first_chunk; c <= it.last_chunk; c++) {
        e->kernels->attention_chunk(&rows, c, s.chunk_m, s.chunk_l, s.chunk_o, s.kernel);
        merge_rows(e, it.n_rows, rows.kv->value_dim, s.m, s.l, s.o, s.chunk_m, s.chunk_l, s.chunk_o);
    }
    finish_rows(e, op, &it, &s);
}

/* ---- the same, split by chunk ---- */

/* chunks of the item that sees the most */
static int32_t most_chunks(const ei_exec *e, const ei_op *op) {
    int32_t most = 0;
    for (int32_t i = 0; i < spans_of(e, op)->n; i++) {
        item it = item_at(e, op, i * e->kvs.at[op->kv].n_kv_heads * parts_of(group_of(e, op)));
        most = max_i32(most, it.last_chunk - it.first_chunk + 1);
    }
    return most;
}

/* m, l, o of one (item, chunk) */
static size_t partial_size(const ei_kv *kv) { return EI_ATTENTION_ROWS * ((size_t)kv->value_dim + 2); }

static void split_chunk(void *context, const void *op_, int32_t index, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    const ei_kv *kv = &e->kvs.at[op->kv];
    int32_t items = n_items(e, op);
    item it = item_at(e, op, index % items);
    int32_t chunk = it.first_chunk + index / items;
    if (chunk > it.last_chunk) return;
    workspace s = workspace_of(e, kv, thread);
    ei_attention_rows rows = rows_at(e, op, &it, &s);
    float *m = e->partials + (size_t)index * partial_size(kv), *l = m + EI_ATTENTION_ROWS, *o = l + EI_ATTENTION_ROWS;
    e->kernels->attention_chunk(&rows, chunk, m, l, o, s.kernel);
}

static void merge_chunk(void *context, const void *op_, int32_t index, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    const ei_kv *kv = &e->kvs.at[op->kv];
    int32_t items = n_items(e, op);
    item it = item_at(e, op, index);
    workspace s = workspace_of(e, kv, thread);
    start_rows(&it, &s);
    for (int32_t c = it.first_chunk; c <= it.last_chunk; c++) {
        size_t at = (size_t)((c - it.first_chunk) * items + index);
        const float *m = e->partials + at * partial_size(kv), *l = m + EI_ATTENTION_ROWS, *o = l + EI_ATTENTION_ROWS;
        merge_rows(e, it.n_rows, kv->value_dim, s.m, s.l, s.o, m, l, o);
    }
    finish_rows(e, op, &it, &s);
}

bool ei_plan_attention(ei_exec *e, const ei_op *op) {
    int32_t items = n_items(e, op), chunks = most_chunks(e, op);
    if (chunks < 2 || items >= 2 * e->n_threads) {
        ei_add_job(e, item_chunk, op, items);
        return true;
    }
    size_t needed = (size_t)items * (size_t)chunks * partial_size(&e->kvs.at[op->kv]);
    if (needed > e->partial_floats) {
        /* twice what is needed now: a growing context asks for this rarely */
        float *moved = realloc(e->partials, 2 * needed * sizeof *moved);
        if (!moved) return false;
        e->partials = moved, e->partial_floats = 2 * needed;
    }
    ei_add_job(e, split_chunk, op, items * chunks);
    ei_add_job(e, merge_chunk, op, items);
    return true;
}
