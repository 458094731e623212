/* edgeinfer/csrc/edgeinfer.h: the C interface that Python sees. Sizes are in elements unless a name ends in _bytes. */
#ifndef EDGEINFER_H
#define EDGEINFER_H

#include <stddef.h>
#include <stdint.h>

/* cdef begin */

/* What every fallible call returns. */
enum {
    EI_OK = 0,
    EI_CANCELLED = 1,
    EI_FORKED = 2,
    EI_NO_MEMORY = 3,
    EI_BAD_ARGUMENT = 4,
    EI_NON_FINITE = 5,
    EI_ALL_BANNED = 6
};

/* -- threads -------------------------------------------------------------------------------- */

/* CPUs this process may use by affinity and cgroup quota, at least 1. */
int32_t ei_default_threads(void);

/* -- mapped files --------------------------------------------------------------------------- */

/* From now on a page of [begin, begin + n_bytes), a map of a file, that cannot be read (the file was shortened, its
 * disk is gone) reads as zeros, as does all behind it, where else the process would end by SIGBUS; and is_lost is 1
 * from then on. Ask after each use, and throw away what was computed. Returns a number for is_lost and, before the map
 * goes, ei_unguard; -1, which both take: too many, or not on this system. */
int32_t ei_guard(const void *begin, size_t n_bytes);
int32_t ei_guard_is_lost(int32_t number);
void ei_unguard(int32_t number);

/* -- kernels -------------------------------------------------------------------------------- */

/* Levels this build and CPU can run, best last, separated by spaces: "scalar avx2". */
const char *ei_isa_levels(void);
/* Formats in the order of the C enum, separated by spaces: "F32 F16 ...". Index = the format numbers below. */
const char *ei_format_names(void);

/* -- executable ----------------------------------------------------------------------------- */

/* A compiled program: weights in X, buffers, KV pages, a thread pool. Build: new, add_*, finish; then run. */
typedef struct ei_exec ei_exec;

/* One row for each token of the step, for each wanted one, for each sequence in the order in which they stand. */
enum { EI_ROWS_TOKENS = 0, EI_ROWS_WANTED = 1, EI_ROWS_SEQUENCES = 2 };
enum { EI_POOL_MEAN, EI_POOL_CLS, EI_POOL_LAST };
enum { EI_UNLIMITED = 0x7fffffff };

/* What one op does to every row r of its values (v = value, w = weight, c = vector; -1: absent).
 *   EMBED      v.out0 = scale * a row of w0: fn 0, of the token; 1, of its position; 2, dim[0] for all; 3, 0 up to
 *              the first token dim[0] of its sequence and with it, 1 behind
 *   GATHER     v.out0 = v.in0 at the wanted rows
 *   NORM       x = v.in0; if v.in1: x = x + (c0 ? rms(v.in1)*c0 : v.in1); v.out0 = x; h = c1 ? rms(x)*c1 : x;
 *              v.out1 = h; acts_out = quantized h
 *   MATMUL     for i: v.out[i] = w[i] * acts_in + bias c[i]; with v.in0: out0 = v.in0 + that
 *   GATED      h = fn(w0 * acts_in) * (w1 * acts_in); acts_out = quantized h
 *   HEADS      q, k, v = v.in0..2: rms per head with c0 (q), c1 (k), rope; q, k -> v.out0, v.out1; k, v -> kv
 *   ATTENTION  v.in0 = q -> v.out0 and acts_out; c0: sinks, c1: slopes, one of each per query head
 * ACT, GATE, ADD, MULTIPLY, SCALE: acts_out = quantized v.out0, too
 *   ACT        v.out0 = fn(v.in0)
 *   GATE       v.out0 = fn(v.in0) * v.in1; an element of a narrower v.in0 is for several neighbours of v.in1;
 *              fn 8: g = min(v.in0, limit), u = v.in1 within +-limit, g * sigmoid(alpha * g) * (u + 1)
 *   ADD        v.out0 = v.in0 + alpha * (v.in1 or c0)
 *   MULTIPLY   v.out0 = v.in0 * (v.in1 or c0)
 *   SCALE      v.out0 = scale * v.in0, with c0 times c0[position / dim[0]] (EI_UNLIMITED: c0 is one number),
 *              then softcapped
 *   SPLIT      v.out0..2 = the columns of each of the heads[0] groups of v.in0, in order from dim[0] on; of all groups
 *              together
 *   ROUTE      v.out0 = the weights of the experts chosen by the logits v.in0 (c0 bias, c1 scale); fills the routing.
 *              Without logits every row has every expert, in order, and no weights
 *   EXPERT_ACTS     acts_out = quantized v.in0, which has one row a slot
 *   EXPERTS_GATED   per slot: h = fn(w0 * x + c0) [* (w1 * x + c1)]; acts_out = quantized h. w1 = w0: one matrix holds
 *                   the rows of both
 *   EXPERTS         per slot: y = c1 * (w0 * x) + c0 -> v.out0; with v.in1 = the weights: v.out0 = their sum of y
 *                   [+ v.in0], v.out1 is room for y
 *   COMBINE    v.out0 = the sum of v.in0's slots by the weights v.in1
 *   OBSERVE    the sums grow by the squares of v.in0's columns, and their counts; with a routing those of each row's
 *              experts, by one row for all slots or one a slot
 *   CONV       v.out0 = the dim[0] taps c0 (taps, channels) over v.in0 and what stood there before, + c1; without a
 *              state over as many rows ahead as behind, zeros beyond the sequence
 *   SCAN       x, b, c, dt = v.in0..3; c0 = a, c1 = d, c2 = dt bias; heads: of x, groups of b and c
 *   DELTA      q, k, v, g, beta = v.in0..4; heads: of q and k, of v
 *   LAYER_NORM v.out0 = v.in0, of each of its heads[0] groups of columns the mean taken away, the rest rms, * c0, + c1;
 *              acts_out = quantized v.out0
 *   POOL       v.out0 = of the rows of each sequence in v.in0: fn 0, their sum in order, times 1 / their
 *              number; 1, the first; 2, the last
 *   SOFTMAX    v.out0 = the softmax of v.in0
 *   CONCAT     v.out0 = for each of heads[0] groups the next dim[i] columns of v.in0..2, one behind the other; an input
 *              of so many columns in all gives them to every group
 * In the ops of experts x is acts_in, already in the routing's order, or `gathered` from it, one row for all slots.
 * CONV, SCAN and DELTA go through the rows of each sequence in order and keep a state, whose sizes are those of a head;
 * ops/recurrence_template.h is their law.
 */
enum {
    EI_OP_EMBED,
    EI_OP_GATHER,
    EI_OP_NORM,
    EI_OP_MATMUL,
    EI_OP_GATED,
    EI_OP_HEADS,
    EI_OP_ATTENTION,
    EI_OP_ACT,
    EI_OP_GATE,
    EI_OP_ADD,
    EI_OP_MULTIPLY,
    EI_OP_SCALE,
    EI_OP_SPLIT,
    EI_OP_ROUTE,
    EI_OP_EXPERT_ACTS,
    EI_OP_EXPERTS_GATED,
    EI_OP_EXPERTS,
    EI_OP_COMBINE,
    EI_OP_OBSERVE,
    EI_OP_CONV,
    EI_OP_SCAN,
    EI_OP_DELTA,
    EI_OP_LAYER_NORM,
    EI_OP_POOL,
    EI_OP_SOFTMAX,
    EI_OP_CONCAT,
    EI_N_OPS
};

typedef struct {
    int32_t kind, rows; /* EI_OP_*, EI_ROWS_* */
    int32_t in[5], out[3];
    int32_t acts_in, acts_out;
    int32_t weight[3], vec[3];
    int32_t fn; /* silu, gelu_tanh, gelu_erf, relu, relu2, sigmoid, tanh, softplus = 0 .. 7 */
    int32_t kv, rope, state;
    int32_t routing, gathered; /* experts: a routing; the acts that hold acts_in in its order, -1: acts_in does */
    int32_t heads[3], dim[3];  /* HEADS: of q, k, v; ATTENTION: heads[0] query heads */
    int32_t tiled;             /* DELTA: head h of v takes head h % heads[0] of k, else h / (heads[1] / heads[0]) */
    int32_t interleaved;       /* rope pairs (2i, 2i+1), else (i, i + n_pairs) */
    int32_t behind, ahead;     /* ATTENTION: how far a token sees; EI_UNLIMITED: to its sequence's end */
    int32_t sums;              /* OBSERVE */
    float eps, scale, softcap, alpha, limit;
} ei_op;

enum { EI_SCORE_SOFTMAX, EI_SCORE_SIGMOID, EI_SCORE_SOFTMAX_TOPK, EI_SCORE_SQRT_SOFTPLUS, EI_N_SCORES };

/* How the experts of a row are chosen: p = score(logits), c = p + bias; of the groups_used best groups (by their
 * largest c, or their two largest), the n_used largest c, ties to the lower id. Weights: p of the chosen (softmax_topk:
 * softmax over them); norm: divided by max(sum + norm_eps, norm_min); times by, times the expert's scale. */
typedef struct {
    int32_t n_experts, n_used;
    int32_t score, norm;
    int32_t groups, groups_used, top2;
    float norm_eps, norm_min, by;
} ei_routing;

/* One step. Rows of one sequence stand together, positions ascending by 1; from 0 on, if attention looks ahead. */
typedef struct {
    int32_t n_tokens, n_sequences, n_wanted, pages_per_sequence;
    const int32_t *tokens, *positions, *sequences; /* (n_tokens,) */
    const int32_t *page_tables;                    /* (n_sequences, pages_per_sequence) */
    const int32_t *wanted;                         /* (n_wanted,) ascending rows */
    int32_t hidden_only;                           /* not 0: run no op behind the hidden rows */
    /* recurrent state: where that of each sequence is, and after which rows, ascending, it goes where. A sequence
     * that begins at position 0 has none; the last row of each is among them; what is read is not written. */
    int32_t n_saves;
    const int32_t *snapshots;                    /* (n_sequences,) */
    const int32_t *saved_rows, *saved_snapshots; /* (n_saves,) */
} ei_batch;

/* isa: a name of ei_isa_levels. n_threads: for steps of up to 8 tokens; n_threads_batch: for longer ones. n_batch: most
 * tokens of a step. NULL: unknown isa or out of memory. */
ei_exec *ei_exec_new(const char *isa, int32_t n_threads, int32_t n_threads_batch, int32_t n_batch, int32_t n_pages);
void ei_exec_free(ei_exec *exec);
int32_t ei_exec_threads(const ei_exec *exec);
int32_t ei_exec_threads_batch(const ei_exec *exec);
size_t ei_exec_weight_bytes(const ei_exec *exec);
size_t ei_exec_state_bytes(const ei_exec *exec);
size_t ei_exec_work_bytes(const ei_exec *exec);
size_t ei_exec_snapshot_bytes(const ei_exec *exec); /* of one; 0 without states */

/* Each returns the new thing's number, or -1 (out of memory or a bad argument). Sources must outlive the exec. */
int32_t ei_exec_add_matrix(ei_exec *exec, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file);
/* n_experts matrices of that shape, one after another in the file */
int32_t ei_exec_add_experts(ei_exec *exec, int32_t format, int32_t n_experts, int32_t n_rows, int32_t n_columns,
                            const uint8_t *file);
/* n_matrices of that shape (1, or the experts) whose groups lie ready at x, aligned to 64 bytes, as ei_repack makes
 * them. */
int32_t ei_exec_add_packed(ei_exec *exec, int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns,
                           const uint8_t *x);
int32_t ei_exec_add_table(ei_exec *exec, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file);
int32_t ei_exec_add_vector(ei_exec *exec, const float *values, int32_t n);
int32_t ei_exec_add_value(ei_exec *exec, int32_t width, int32_t rows);
/* slots: rows for each row of the step; integers: 0 none, 1 of 8 bits, 2 fine, of 15 bits */
int32_t ei_exec_add_acts(ei_exec *exec, int32_t width, int32_t rows, int32_t slots, int32_t integers, int32_t floats);
/* type: f32 0, f16 1, q8_0 2, q4_0 3; place: -1, or an earlier kv of the same sizes, dead by then, where it lies */
int32_t ei_exec_add_kv(ei_exec *exec, int32_t type, int32_t n_kv_heads, int32_t key_dim, int32_t value_dim,
                       int32_t place);
/* a part of each snapshot: n_rows of n_columns floats for each of n_heads */
int32_t ei_exec_add_state(ei_exec *exec, int32_t n_heads, int32_t n_rows, int32_t n_columns);
int32_t ei_exec_add_rope(ei_exec *exec, const float *inv_freq, int32_t n_pairs, float mscale);
int32_t ei_exec_add_routing(ei_exec *exec, const ei_routing *routing);
/* squares (n_matrices, n_columns) and counts (n_matrices,), which steps add to: of one matrix, or of experts */
int32_t ei_exec_add_sums(ei_exec *exec, double *squares, double *counts, int32_t n_matrices, int32_t n_columns);
int32_t ei_exec_add_op(ei_exec *exec, const ei_op *op);

/* The value of the hidden rows, which the last op added has made; ops added later lead from there to the logits. */
void ei_exec_set_hidden(ei_exec *exec, int32_t value);

/* The source of this matrix lies in the map of a file: its pages may be given up, and come back when they are read. */
void ei_exec_set_mapped(ei_exec *exec, int32_t weight);

/* How many snapshots of the states there may be; before ei_exec_finish. */
void ei_exec_set_snapshots(ei_exec *exec, int32_t n_snapshots);

/* Allocate, and lay the matrices out; *done counts source bytes as they are finished, and the pages behind them that
 * are mapped are given back. logits: the value that ei_exec_logits shows (rows: wanted). A non-zero *cancel ends it
 * soon with EI_CANCELLED; the executable can then only be freed. */
int32_t ei_exec_finish(ei_exec *exec, int32_t logits, volatile int64_t *done, const volatile int32_t *cancel);

/* Tell the bytes that ei_exec_finish would allocate for weights, state and work; before it, and reading no source. */
int32_t ei_exec_measure(ei_exec *exec, size_t *weights, size_t *state, size_t *work);

/* Make page `to` hold what page `from` holds, in every layer. Not while a step runs. */
int32_t ei_exec_copy_page(ei_exec *exec, int32_t from, int32_t to);
/* The first n_positions of a page to out, zeros behind them; and a page from what that gave. A page has state bytes /
 * n_pages; out and in are aligned to 64. Not while a step runs. */
int32_t ei_exec_read_page(const ei_exec *exec, int32_t page, int32_t n_positions, uint8_t *out);
int32_t ei_exec_write_page(ei_exec *exec, int32_t page, const uint8_t *in);

/* A snapshot to out, or from in, which have its bytes. Not while a step runs. */
int32_t ei_exec_read_snapshot(const ei_exec *exec, int32_t snapshot, uint8_t *out);
int32_t ei_exec_write_snapshot(ei_exec *exec, int32_t snapshot, const uint8_t *in);

/* Run every op over the batch. cancel may be NULL; ids and pages are checked by the caller. */
int32_t ei_exec_run(ei_exec *exec, const ei_batch *batch, const volatile int32_t *cancel);
/* The last run's logits, (n_wanted, n_vocab); the same memory after every run. */
const float *ei_exec_logits(const ei_exec *exec);
/* The last run's hidden rows, (n_wanted, width); NULL where no value was named so. */
const float *ei_exec_hidden(const ei_exec *exec);

/* The memory of the steps' values, logits and hidden rows among them: from here on the caller's, who frees it with
 * ei_work_free(work, ei_exec_work_bytes), after the exec. */
uint8_t *ei_exec_take_work(ei_exec *exec);
void ei_work_free(uint8_t *work, size_t n_bytes);

/* -- the X layout by itself ------------------------------------------------------------------ */

/* Bytes in X of n_matrices of one shape (1, or the experts); 0: no such format, or no whole blocks in a row. */
size_t ei_x_bytes(int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns);
/* Names how a format is laid out: a hash of the group that a fixed block becomes, so it cannot be forgotten when the
 * layout changes. */
uint64_t ei_x_layout(int32_t format);
/* Groups first .. first + n - 1 (16 rows each, counted through the matrices), to out. EI_BAD_ARGUMENT: unknown isa,
 * groups out of range. */
int32_t ei_repack(const char *isa, int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns,
                  const uint8_t *file, int32_t first, int32_t n, uint8_t *out);

/* -- encoding ------------------------------------------------------------------------------- */

/* Rows of floats (n_rows, n_columns) as file rows of a format, on n_threads. importance: how much a squared error in
 * each column counts, NULL: alike. for_logits: the rows are of what logits are made of. EI_BAD_ARGUMENT: unknown isa,
 * no encoder of that format, or no whole blocks in a row; EI_NON_FINITE: NaN, infinity or a value too large for the
 * format is among them. */
int32_t ei_encode(const char *isa, int32_t format, int32_t n_rows, int32_t n_columns, const float *x,
                  const float *importance, int32_t for_logits, int32_t n_threads, uint8_t *out);

/* -- single kernels, for tests and benchmarks ----------------------------------------------- */

/* y (n_tokens, n_rows) = W x^T for x (n_tokens, n_columns), by the law, on one thread; fine: 15-bit activations. */
int32_t ei_matmul(const char *isa, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file,
                  int32_t n_tokens, const float *x, int32_t fine, float *y);
/* File rows as floats: the same bits on every level. */
int32_t ei_decode(const char *isa, int32_t format, const uint8_t *rows, int64_t n_rows, int64_t n_columns, float *out);

/* -- the machine's roofs -------------------------------------------------------------------- */

/* Bytes per second at which n_threads together read n_bytes of memory: the best of a few passes and of a few ways to
 * walk it. 0: no memory. */
double ei_stream_rate(int32_t n_threads, size_t n_bytes);

enum { EI_PEAK_INT8, EI_PEAK_F32 };
/* Multiply-adds per second of n_threads together, in registers alone, by the instructions that a level's kernels
 * multiply with: the best of a few passes. 0: unknown level or kind, or no memory. */
double ei_peak_rate(const char *isa, int32_t n_threads, int32_t kind);

/* -- sampling ------------------------------------------------------------------------------- */

enum { EI_MOST_LOGPROBS = 64 };

typedef struct ei_sampler ei_sampler;

/* Ranges are checked by engine/sampling.py, which also says what each field means. */
typedef struct {
    double temperature; /* 0 or less: greedy */
    double dynatemp_range, dynatemp_exponent;
    double top_p, min_p, typical_p, top_n_sigma;
    double xtc_probability, xtc_threshold;
    double repeat_penalty, frequency_penalty, presence_penalty;
    double dry_multiplier, dry_base;
    double mirostat_tau, mirostat_eta;
    uint64_t seed;
    int32_t top_k, min_keep, penalty_last_n, dry_allowed_length, dry_last_n;
    int32_t mirostat; /* 0 or 2 */
    int32_t choice;   /* which of several answers to one prompt: each draws its own numbers */
} ei_sampling;

/* A sampler for one sequence; NULL: out of memory. It must be set before its first use. */
ei_sampler *ei_sampler_new(int32_t n_vocab);
void ei_sampler_free(ei_sampler *sampler);

/* Copy the parameters and start again. A bias of -100 or less bans its token. Breaker i is the
   tokens breaker_ids[breaker_starts[i] .. breaker_starts[i + 1]), none of them empty. */
int32_t ei_sampler_set(ei_sampler *sampler, const ei_sampling *params, const int32_t *bias_ids,
                       const double *bias_values, int32_t n_bias, const int32_t *breaker_ids,
                       const int32_t *breaker_starts, int32_t n_breakers);

/* Choose the token at `position` from its n_vocab logits; `history` is the sequence so far.
   With n_top >= 0, also the log-probability of the token and the n_top most probable tokens, from
   the logits as given, before any penalty, bias or temperature (n_top <= EI_MOST_LOGPROBS and
   n_vocab). EI_BAD_ARGUMENT: an id out of range; EI_NON_FINITE: NaN or +inf among the logits;
   EI_ALL_BANNED: every logit is -inf. */
int32_t ei_sample(ei_sampler *sampler, const float *logits, const int32_t *history, int32_t n_history, int64_t position,
                  int32_t *token, int32_t n_top, double *token_logprob, int32_t *top_ids, double *top_logprobs);

/* The log-probability of a given token, and the n_top most probable ones with theirs, by a row of n_vocab logits and
   to the bits of ei_sample. EI_BAD_ARGUMENT: an id or n_top out of range; EI_NON_FINITE: NaN or infinity among the
   logits; EI_NO_MEMORY. */
int32_t ei_score(const float *logits, int32_t n_vocab, int32_t token, int32_t n_top, double *token_logprob,
                 int32_t *top_ids, double *top_logprobs);

/* cdef end */

#endif
