/* tests/csrc/test_experts.c: steps of a router and experts stay inside their buffers, whatever the logits, and a row's
 * result does not depend on the step it is in. */
#include "inputs.h"

#include "edgeinfer.h"
#include "repack.h"

enum { N_TOKENS = 75, N_BATCH = 40 };

typedef struct {
    int32_t format, n_embd, n_ff, n_experts, n_used, kind, n_threads;
} shape;

enum { TWO, JOINT, PLAIN, UNFUSED, N_KINDS };

enum { X, LOGITS, W, OUT, SLOTS, HIDDEN };
enum { SHARED, GATHERED, HIDDEN_ACTS };

/* The backend gives source pages back after it has copied them, so every source is a mapping of its own. */
typedef struct {
    guarded made[24];
    int32_t n;
    double *sums; /* of the observed inputs, n_sums of them: squares, then counts, of each */
    size_t n_sums;
} sources;

static uint8_t *source(sources *s, size_t bytes) { return (s->made[s->n++] = guarded_new(bytes)).data; }

static const uint8_t *random_rows(sources *s, int32_t format, int64_t n_rows, int32_t n_columns) {
    size_t bytes = (size_t)n_rows * ei_row_bytes(format, n_columns);
    uint8_t *at = source(s, bytes);
    for (size_t i = 0; i < bytes; i++) at[i] = (uint8_t)(random_u32() & 0x3f); /* f16 scales below 2 */
    return at;
}

static const float *random_floats(sources *s, size_t n) {
    float *at = (float *)source(s, n * sizeof *at);
    random_fill(at, n, 1.0f);
    return at;
}

static ei_op op_of(int32_t kind) {
    return (ei_op){.kind = kind,
                   .in = {-1, -1, -1},
                   .out = {-1, -1, -1},
                   .acts_in = -1,
                   .acts_out = -1,
                   .gathered = -1,
                   .weight = {-1, -1, -1},
                   .vec = {-1, -1, -1},
                   .kv = -1,
                   .rope = -1,
                   .routing = 0,
                   .scale = 1,
                   .alpha = 1};
}

static void add_values(ei_exec *e, const shape *s) {
    bool integers = ei_format_rows[s->format].block_len > 1;
    int32_t widths[] = {s->n_embd, s->n_experts, s->n_used, s->n_embd, s->n_used * s->n_embd, s->n_used * s->n_ff};
    for (int32_t i = 0; i < 6; i++) ei_exec_add_value(e, widths[i], EI_ROWS_TOKENS);
    ei_exec_add_acts(e, s->n_embd, EI_ROWS_TOKENS, 1, integers ? 2 : 0, 1);
    ei_exec_add_acts(e, s->n_embd, EI_ROWS_TOKENS, s->n_used, integers ? 2 : 0, !integers);
    ei_exec_add_acts(e, s->n_ff, EI_ROWS_TOKENS, s->n_used, integers ? 1 : 0, !integers);
    ei_routing how = {.n_experts = s->n_experts,
                      .n_used = s->n_used,
                      .score = s->n_experts % EI_N_SCORES,
                      .norm = 1,
                      .groups = 1,
                      .groups_used = 1,
                      .by = 1};
    if (s->n_experts % 3 == 0 && s->n_used <= s->n_experts / 3 * 2) how.groups = 3, how.groups_used = 2;
    EXPECT(ei_exec_add_routing(e, &how) == 0, "routing");
}

static void add_experts(ei_exec *e, const shape *s, sources *from) {
    int32_t rows = s->kind == JOINT ? 2 * s->n_ff : s->n_ff, n = s->n_experts, f = s->format;
    int32_t gate = ei_exec_add_experts(e, f, n, rows, s->n_embd, random_rows(from, f, n * rows, s->n_embd));
    int32_t up = ei_exec_add_experts(e, f, n, rows, s->n_embd, random_rows(from, f, n * rows, s->n_embd));
    int32_t down = ei_exec_add_experts(e, f, n, s->n_embd, s->n_ff, random_rows(from, f, n * s->n_embd, s->n_ff));
    int32_t bias = ei_exec_add_vector(e, random_floats(from, (size_t)(n * rows)), n * rows);
    int32_t scale = ei_exec_add_vector(e, random_floats(from, (size_t)n), n);
    ei_op op = op_of(s->kind == UNFUSED ? EI_OP_EXPERTS : EI_OP_EXPERTS_GATED);
    op.acts_in = SHARED, op.gathered = GATHERED, op.weight[0] = gate, op.vec[0] = bias;
    if (s->kind == UNFUSED) {
        op.out[0] = HIDDEN, op.vec[1] = scale;
        ei_exec_add_op(e, &op);
        op = op_of(EI_OP_EXPERT_ACTS), op.in[0] = HIDDEN;
    } else if (s->kind != PLAIN) {
        op.weight[1] = s->kind == JOINT ? gate : up, op.vec[1] = bias;
    }
    op.acts_out = HIDDEN_ACTS;
    ei_exec_add_op(e, &op);
    op = op_of(EI_OP_EXPERTS);
    op.acts_in = HIDDEN_ACTS, op.weight[0] = down, op.vec[1] = scale;
    op.in[0] = X, op.in[1] = W, op.out[0] = OUT, op.out[1] = SLOTS;
    ei_exec_add_op(e, &op);
}

/* Sum the inputs of both kinds: one row for all slots, and a row of each. */
static void add_observers(ei_exec *e, const shape *s, sources *from) {
    size_t n_experts = (size_t)s->n_experts, widths[] = {(size_t)s->n_embd, (size_t)s->n_ff};
    from->n_sums = n_experts * (widths[0] + widths[1] + 2);
    double *at = from->sums = (double *)source(from, from->n_sums * sizeof *at);
    memset(at, 0, from->n_sums * sizeof *at);
    for (int i = 0; i < 2; i++) {
        ei_op op = op_of(EI_OP_OBSERVE);
        double *counts = at + n_experts * widths[i];
        op.in[0] = i ? HIDDEN : X;
        op.sums = ei_exec_add_sums(e, at, counts, s->n_experts, (int32_t)widths[i]);
        ei_exec_add_op(e, &op);
        at = counts + n_experts;
    }
}

static ei_exec *build(const char *isa, const shape *s, sources *from) {
    static const float special[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0};
    ei_exec *e = ei_exec_new(isa, s->n_threads, s->n_threads, N_BATCH, 1);
    add_values(e, s);
    float *table = (float *)source(from, N_TOKENS * (size_t)s->n_embd * sizeof *table);
    random_fill(table, N_TOKENS * (size_t)s->n_embd, 1.0f);
    for (int32_t t = 0; t < N_TOKENS; t += 5)
        for (int32_t i = 0; i < t % 3; i++) table[t * s->n_embd + random_below(s->n_embd)] = special[random_below(6)];
    float *router = (float *)source(from, (size_t)s->n_experts * (size_t)s->n_embd * sizeof *router);
    random_fill(router, (size_t)s->n_experts * (size_t)s->n_embd, 0.2f);
    ei_op op = op_of(EI_OP_EMBED);
    op.out[0] = X, op.weight[0] = ei_exec_add_table(e, EI_F32, N_TOKENS, s->n_embd, (uint8_t *)table);
    ei_exec_add_op(e, &op);
    op = op_of(EI_OP_NORM), op.in[0] = X, op.acts_out = SHARED;
    ei_exec_add_op(e, &op);
    op = op_of(EI_OP_MATMUL), op.acts_in = SHARED, op.out[0] = LOGITS;
    op.weight[0] = ei_exec_add_matrix(e, EI_F32, s->n_experts, s->n_embd, (uint8_t *)router);
    ei_exec_add_op(e, &op);
    op = op_of(EI_OP_ROUTE), op.in[0] = LOGITS, op.out[0] = W;
    ei_exec_add_op(e, &op);
    add_experts(e, s, from);
    if (s->kind == UNFUSED) add_observers(e, s, from);
    EXPECT(ei_exec_finish(e, OUT, NULL, NULL) == EI_OK, "finish");
    return e;
}

static void step(ei_exec *e, int32_t first, int32_t n, float *rows, int32_t width) {
    int32_t tokens[N_BATCH], positions[N_BATCH], sequences[N_BATCH] = {0}, page = 0;
    for (int32_t i = 0; i < n; i++) tokens[i] = first + i, positions[i] = i;
    ei_batch batch = {n, 1, 0, 1, tokens, positions, sequences, &page, NULL};
    EXPECT(ei_exec_run(e, &batch, NULL) == EI_OK, "run");
    memcpy(rows, ei_exec_logits(e), (size_t)n * (size_t)width * sizeof *rows);
}

static void test_shape(const char *isa, shape s) {
    size_t n = N_TOKENS * (size_t)s.n_embd;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    double *sums = NULL;
    uint64_t seed = random_state;
    for (int32_t round = 0; round < 3; round++) {
        static const int32_t lengths[] = {N_BATCH, 7, 1};
        sources from = {.n = 0};
        random_state = seed;
        s.n_threads = 1 + round;
        ei_exec *e = build(isa, &s, &from);
        for (int32_t first = 0; first < N_TOKENS; first += lengths[round])
            step(e, first, min_i32(lengths[round], N_TOKENS - first), got + (size_t)first * (size_t)s.n_embd, s.n_embd);
        if (round == 0) memcpy(want, got, n * sizeof *want);
        for (size_t i = 0; i < n; i++)
            EXPECT(got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]),
                   "%s kind %d of %s: token %d of steps of %d: %a, %a", isa, s.kind, ei_format_rows[s.format].name,
                   (int)(i / (size_t)s.n_embd), lengths[round], got[i], want[i]);
        if (!sums && from.n_sums) {
            sums = malloc(from.n_sums * sizeof *sums);
            memcpy(sums, from.sums, from.n_sums * sizeof *sums);
        }
        for (size_t i = 0; i < from.n_sums; i++)
            EXPECT(from.sums[i] == sums[i] || (from.sums[i] != from.sums[i] && sums[i] != sums[i]),
                   "%s: sum %d of steps of %d: %a, %a", isa, (int)i, lengths[round], from.sums[i], sums[i]);
        ei_exec_free(e);
        for (int32_t i = 0; i < from.n; i++) guarded_free(from.made[i]);
    }
    free(want), free(got), free(sums);
}

static void test_isa(const char *isa) {
    for (int32_t kind = 0; kind < N_KINDS; kind++) {
        test_shape(isa, (shape){EI_Q4_0, 64, 32, 5, 2, kind, 1});
        test_shape(isa, (shape){EI_Q8_0, 96, 64, 12, 7, kind, 1});
        test_shape(isa, (shape){EI_F16, 40, 32, 3, 3, kind, 1});
        test_shape(isa, (shape){EI_Q4_K, 256, 256, 70, 1, kind, 1});
    }
    test_shape(isa, (shape){EI_F32, 20, 12, 6, 4, UNFUSED, 1});
    test_shape(isa, (shape){EI_F32, 8, 32, 1, 1, TWO, 1});
}

int main(void) {
    for (int i = 0; i < N_ISA_NAMES; i++) {
        const ei_kernels *k = kernels_to_test(i);
        if (k) test_isa(k->isa);
    }
    if (n_failures) printf("%d failures\n", n_failures);
    return n_failures != 0;
}
