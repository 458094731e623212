/* tests/csrc/test_sequences.c: a step of several sequences: rows of token, position and type are added, normed in
 * groups, pooled to a row of each sequence, whose softmax is what the law says, to the bit. */
#include "inputs.h"
#include "law.h"

#include "edgeinfer.h"

enum { N_IDS = 19, N_POSITIONS = 11, N_TYPES = 3, TYPE = 2, N_SEQUENCES = 5, N_BATCH = 40 };
enum { TOKENS, PLACES, TYPES, SUM, NORMED, POOLED, SHARES, N_VALUES };
static const int32_t lengths[N_SEQUENCES] = {7, 1, 11, 9, 2};
static const float eps = 1e-5f;

typedef struct {
    guarded tables[3], weight, bias;
    int32_t width, groups, kind;
} model;

static float *floats(guarded g) { return g.data; }

static guarded random_guarded(size_t n) {
    guarded g = guarded_new(n * sizeof(float));
    random_fill(g.data, n, 1.0f);
    return g;
}

static model model_of(int32_t width, int32_t groups, int32_t kind) {
    const int32_t n_rows[] = {N_IDS, N_POSITIONS, N_TYPES};
    model m = {.width = width, .groups = groups, .kind = kind};
    for (int i = 0; i < 3; i++) m.tables[i] = random_guarded((size_t)(n_rows[i] * width));
    m.weight = random_guarded((size_t)width), m.bias = random_guarded((size_t)width);
    return m;
}

static void model_free(model *m) {
    for (int i = 0; i < 3; i++) guarded_free(m->tables[i]);
    guarded_free(m->weight), guarded_free(m->bias);
}

static void add_op(ei_exec *e, int32_t kind, int32_t rows, int32_t in0, int32_t in1, int32_t out, ei_op with) {
    with.kind = kind, with.rows = rows;
    for (int i = 0; i < 5; i++) with.in[i] = -1;
    for (int i = 0; i < 3; i++) with.out[i] = -1;
    with.in[0] = in0, with.in[1] = in1, with.out[0] = out;
    with.acts_in = with.acts_out = with.gathered = with.routing = with.kv = with.rope = -1;
    with.scale = with.alpha = 1;
    EXPECT(ei_exec_add_op(e, &with) >= 0, "op %d", kind);
}

static ei_exec *build(const char *isa, const model *m) {
    static const int32_t n_rows[] = {N_IDS, N_POSITIONS, N_TYPES};
    ei_exec *e = ei_exec_new(isa, 2, 2, N_BATCH, 1);
    for (int i = 0; i < N_VALUES; i++) ei_exec_add_value(e, m->width, EI_ROWS_TOKENS);
    for (int32_t i = 0; i < 3; i++) {
        int32_t table = ei_exec_add_table(e, EI_F32, n_rows[i], m->width, m->tables[i].data);
        add_op(e, EI_OP_EMBED, EI_ROWS_TOKENS, -1, -1, TOKENS + i,
               (ei_op){.fn = i, .weight = {table, -1, -1}, .vec = {-1, -1, -1}, .dim = {TYPE}});
    }
    int32_t weight = ei_exec_add_vector(e, floats(m->weight), m->width);
    int32_t bias = ei_exec_add_vector(e, floats(m->bias), m->width);
    ei_op none = {.fn = m->kind, .weight = {-1, -1, -1}, .vec = {-1, -1, -1}};
    add_op(e, EI_OP_ADD, EI_ROWS_TOKENS, TOKENS, PLACES, SUM, none);
    add_op(e, EI_OP_ADD, EI_ROWS_TOKENS, SUM, TYPES, SUM, none);
    add_op(e, EI_OP_LAYER_NORM, EI_ROWS_TOKENS, SUM, -1, NORMED,
           (ei_op){.heads = {m->groups}, .eps = eps, .weight = {-1, -1, -1}, .vec = {weight, bias, -1}});
    add_op(e, EI_OP_POOL, EI_ROWS_SEQUENCES, NORMED, -1, POOLED, none);
    add_op(e, EI_OP_SOFTMAX, EI_ROWS_SEQUENCES, POOLED, -1, SHARES, none);
    EXPECT(ei_exec_finish(e, SHARES, NULL, NULL) == EI_OK, "finish");
    return e;
}

static void law_row(const model *m, int32_t token, int32_t position, float *y) {
    int32_t width = m->width, n = width / m->groups;
    const float *rows[] = {floats(m->tables[0]) + token * width, floats(m->tables[1]) + position * width,
                           floats(m->tables[2]) + TYPE * width};
    for (int32_t i = 0; i < width; i++) y[i] = (rows[0][i] + rows[1][i]) + rows[2][i];
    for (int32_t at = 0; at < width; at += n) {
        law_center(y + at, y + at, n);
        law_rms_norm(y + at, NULL, y + at, n, eps);
    }
    for (int32_t i = 0; i < width; i++) y[i] = y[i] * floats(m->weight)[i] + floats(m->bias)[i];
}

static void law_sequence(const model *m, const int32_t *tokens, int32_t n, float *y) {
    float *row = malloc((size_t)m->width * sizeof *row), *pooled = calloc((size_t)m->width, sizeof *pooled);
    for (int32_t t = 0; t < n; t++) {
        law_row(m, tokens[t], t, row);
        bool taken = m->kind == EI_POOL_CLS ? t == 0 : m->kind == EI_POOL_LAST ? t == n - 1 : true;
        for (int32_t i = 0; taken && i < m->width; i++) pooled[i] += row[i];
    }
    float by = 1.0f / (float)n;
    for (int32_t i = 0; m->kind == EI_POOL_MEAN && i < m->width; i++) pooled[i] *= by;
    law_softmax(pooled, y, m->width);
    free(row), free(pooled);
}

static void test_model(const char *isa, const model *m) {
    int32_t tokens[N_BATCH], positions[N_BATCH], sequences[N_BATCH], wanted[N_SEQUENCES], n = 0;
    int32_t pages[N_SEQUENCES] = {0};
    for (int32_t s = 0; s < N_SEQUENCES; s++)
        for (int32_t t = 0; t < lengths[s]; t++, n++) /* their numbers are not in the order in which they stand */
            tokens[n] = random_below(N_IDS), positions[n] = t, sequences[n] = N_SEQUENCES - 1 - s, wanted[s] = n;
    ei_batch batch = {.n_tokens = n,
                      .n_sequences = N_SEQUENCES,
                      .n_wanted = N_SEQUENCES,
                      .pages_per_sequence = 1,
                      .tokens = tokens,
                      .positions = positions,
                      .sequences = sequences,
                      .page_tables = pages,
                      .wanted = wanted};
    ei_exec *e = build(isa, m);
    EXPECT(ei_exec_run(e, &batch, NULL) == EI_OK, "run");
    float *want = malloc((size_t)m->width * sizeof *want);
    for (int32_t s = 0; s < N_SEQUENCES; s++) {
        law_sequence(m, tokens + wanted[s] - lengths[s] + 1, lengths[s], want);
        const float *got = ei_exec_logits(e) + s * m->width;
        for (int32_t i = 0; i < m->width; i++)
            EXPECT(got[i] == want[i], "%s pool %d, width %d: sequence %d, %d: %a, %a", isa, m->kind, m->width, s, i,
                   got[i], want[i]);
    }
    free(want);
    ei_exec_free(e);
}

static void test_isa(const char *isa) {
    static const int32_t shapes[][2] = {{1, 1}, {16, 1}, {37, 1}, {48, 3}, {60, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int32_t kind = EI_POOL_MEAN; kind <= EI_POOL_LAST; kind++) {
            model m = model_of(shapes[i][0], shapes[i][1], kind);
            test_model(isa, &m);
            model_free(&m);
        }
}

int main(void) {
    for (int i = 0; i < N_ISA_NAMES; i++) {
        const ei_kernels *k = kernels_to_test(i);
        if (k) test_isa(k->isa);
    }
    if (n_failures) printf("%d failures\n", n_failures);
    return n_failures != 0;
}
