/* edgeinfer/csrc/exec.h: what an executable is made of, shared by exec.c (build) and run*.c (step). */
#ifndef EI_EXEC_H
#define EI_EXEC_H

#include "edgeinfer.h"
#include "kernels.h"
#include "threads.h"

typedef struct {
    int32_t format, n_matrices, n_rows, n_columns, n_groups; /* rows and groups of each matrix: one, or an expert */
    const uint8_t *file;                                     /* rows as in the file */
    const uint8_t *x; /* groups, matrix after matrix; NULL for a table, whose rows are only looked up */
    uint8_t *own;     /* the same where repacking fills them; NULL where they came ready */
    size_t group_bytes;
    bool mapped; /* file lies in the map of a file, which brings pages back that are given up */
} ei_weight;

typedef struct {
    float *data; /* (rows, width) */
    int32_t width, rows;
} ei_value;

typedef struct {
    ei_acts acts; /* n_tokens is set by every step */
    int32_t rows, slots;
    bool integers, fine, floats;
} ei_acts_set;

typedef struct {
    const float *inv_freq;
    int32_t n_pairs;
    float mscale;
    float *cosines, *sines; /* (n_batch, n_pairs) of the step */
} ei_rope;

/* Sums of the squares of what a matrix, or each of the experts, multiplied; the memory is the caller's. */
typedef struct {
    double *squares; /* (n_matrices, n_columns) */
    double *counts;  /* (n_matrices,) */
    int32_t n_matrices, n_columns;
} ei_sums;

/* A routing, and which experts the rows of this step have. A pair is one slot of one row: row*n_used + slot. Pairs
 * stand in the order of expert, then row; the place of a pair is its number in that order. */
typedef struct {
    ei_routing how;
    int32_t *ids;         /* (pairs,) the expert of each pair */
    int32_t *pairs;       /* (pairs,) the pair at each place */
    int32_t *places;      /* (pairs,) the place of each pair */
    int32_t *starts;      /* (n_experts + 1,) the first place of each expert */
    int32_t *active;      /* (n_active,) experts that have pairs, roughly the busiest first */
    int32_t *first_items; /* (n_active + 1,) the first work item of each of them */
    int32_t n_active, unfinished;
    float *scratch; /* (n_threads, EI_ROUTE_SCRATCH*n_experts) */
} ei_routed;
enum { EI_ROUTE_SCRATCH = 5 };

/* Consecutive rows of one sequence whose attention is computed together; end: the sequence's last position so far. */
typedef struct {
    int32_t first, count, sequence, end;
} ei_span;
typedef struct {
    ei_span *at;
    int32_t n;
} ei_spans;

/* The recurrent state of one op: heads of rows of columns, at a place of every snapshot. */
typedef struct {
    int32_t n_heads, n_rows, n_columns;
    size_t at; /* floats from the start of a snapshot */
} ei_state;

/* The rows of one sequence, and which of the step's saves are theirs. */
typedef struct {
    int32_t first, count, sequence, first_save, last_save;
} ei_run;

/* A list that grows while the executable is built. */
#define EI_LIST(type)                                                                                                  \
    struct {                                                                                                           \
        type *at;                                                                                                      \
        int32_t n, room;                                                                                               \
    }

struct ei_exec {
    const ei_kernels *kernels;
    ei_pool *pool;
    int32_t n_batch, n_pages, logits;
    int32_t hidden, n_body;                /* the value of the hidden rows, -1 for none, and the ops up to them */
    int32_t n_threads_few, n_threads_many; /* for steps of at most a tile of tokens, for longer ones */
    int32_t n_threads;                     /* of the step in progress; while memory is laid out, of the pool */
    EI_LIST(ei_weight) weights;
    EI_LIST(const float *) vectors;
    EI_LIST(ei_value) values;
    EI_LIST(ei_acts_set) acts;
    EI_LIST(ei_kv) kvs;
    EI_LIST(ei_state) states;
    EI_LIST(ei_rope) ropes;
    EI_LIST(ei_routed) routings;
    EI_LIST(ei_sums) sums;
    EI_LIST(ei_op) ops;

    uint8_t *weight_memory, *state_memory, *work_memory;
    size_t weight_bytes, state_bytes, work_bytes;
    bool work_taken; /* by the caller, who frees it */
    uint8_t *snapshot_memory;
    size_t snapshot_bytes; /* of one */
    int32_t n_snapshots;
    size_t packed_bytes; /* of the matrices that came ready */

    /* attention: most tokens of a span, and the scratch of each thread */
    int32_t span_len;
    float *scratch;
    size_t scratch_floats;

    /* the step in progress */
    const ei_batch *batch;
    ei_job *jobs;
    int32_t n_jobs;
    ei_spans spans[2]; /* of the tokens' rows and of the wanted ones */
    ei_run *runs;
    int32_t n_runs;
    float *partials; /* attention split by chunk (run_attention.c) */
    size_t partial_floats;
};

EI_INLINE int32_t rows_of(const ei_exec *e, int32_t rows) {
    if (rows == EI_ROWS_SEQUENCES) return e->n_runs;
    return rows == EI_ROWS_WANTED ? e->batch->n_wanted : e->batch->n_tokens;
}

/* which token a row of an op is */
EI_INLINE int32_t token_of(const ei_exec *e, const ei_op *op, int32_t row) {
    return op->rows == EI_ROWS_WANTED ? e->batch->wanted[row] : row;
}

EI_INLINE float *row_of(const ei_exec *e, int32_t value, int32_t row) {
    const ei_value *v = &e->values.at[value];
    return v->data + (size_t)row * (size_t)v->width;
}

EI_INLINE const float *vector_of(const ei_exec *e, int32_t vec) { return vec < 0 ? NULL : e->vectors.at[vec]; }

/* What GATE and the gated ops of experts do with a pair of rows. */
EI_INLINE void apply_gate(const ei_exec *e, const ei_op *op, const float *gate, const float *up, float *y, int32_t n) {
    if (op->fn == EI_SWIGLU_OAI)
        e->kernels->swiglu_oai(gate, up, op->alpha, op->limit, y, n);
    else
        e->kernels->gated(op->fn, gate, up, y, n);
}

/* Append the jobs of one op (run_*.c). */
void ei_plan_rows(ei_exec *e, const ei_op *op);
void ei_plan_matmul(ei_exec *e, const ei_op *op);
void ei_plan_route(ei_exec *e, const ei_op *op);
void ei_plan_observe(ei_exec *e, const ei_op *op);
void ei_plan_experts(ei_exec *e, const ei_op *op);
bool ei_plan_attention(ei_exec *e, const ei_op *op);
void ei_size_attention(ei_exec *e); /* span_len and scratch_floats, from the ops */
void ei_plan_spans(ei_exec *e);
void ei_plan_recurrence(ei_exec *e, const ei_op *op);
void ei_add_job(ei_exec *e, ei_chunk_fn run, const void *op, int32_t n_chunks);

/* Work items of the experts of a routing: at most this many for each thread, and one for each expert. */
enum { EI_ITEMS_PER_THREAD = 32 };

/* Most jobs one op may add. */
enum { EI_JOBS_PER_OP = 3 };

#endif
