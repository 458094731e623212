/* edgeinfer/csrc/run_experts.c: the chunks of the ops of experts: each expert's matrices by the rows that chose it. */
#include "exec.h"

enum {
    UNIT = EI_BLOCK / EI_LANES, /* groups of one activation block */
    FEW_PAIRS = 128,            /* pairs whose answers one chunk may hold until they are summed */
    FEW_VALUES = 160000,        /* values of those pairs' activations: each chunk reads all of them, from L2 */
    SUM_GROUPS = 4,             /* groups of every chosen expert that are summed together */
    CHUNKS_PER_THREAD = 8,
    GATHER_PAIRS = 32
};

static const ei_routed *routed_of(const ei_exec *e, const ei_op *op) { return &e->routings.at[op->routing]; }

static int32_t pairs_of(const ei_exec *e, const ei_op *op) {
    return rows_of(e, op->rows) * routed_of(e, op)->how.n_used;
}

static int32_t count_of(const ei_routed *r, int32_t expert) { return r->starts[expert + 1] - r->starts[expert]; }

/* The n tokens from `first` on, as a set of their own; first is where such a set was laid out. */
static ei_acts part_of(const ei_acts *all, int32_t first, int32_t n) {
    size_t at = (size_t)first * (size_t)all->width;
    ei_acts part = {.n_tokens = n, .width = all->width};
    part.fine = all->fine;
    if (all->q) part.q = all->q + at;
    if (all->low) part.low = all->low + at;
    if (all->words) part.words = all->words + at;
    if (all->d) {
        part.d = all->d + at / EI_RUN_LEN, part.sums = all->sums + at / EI_RUN_LEN, part.ds = all->ds + at / EI_BLOCK;
    }
    if (all->x) part.x = all->x + at;
    return part;
}

static ei_acts experts_part(const ei_exec *e, const ei_routed *r, int32_t acts, int32_t expert) {
    return part_of(&e->acts.at[acts].acts, r->starts[expert], count_of(r, expert));
}

/* A lone row needs no gathering: every expert has just it. */
static bool is_gathered(const ei_exec *e, const ei_op *op) { return op->gathered >= 0 && rows_of(e, op->rows) > 1; }

static ei_acts input_of(const ei_exec *e, const ei_op *op, int32_t expert) {
    if (op->gathered >= 0 && !is_gathered(e, op)) return e->acts.at[op->acts_in].acts;
    return experts_part(e, routed_of(e, op), op->gathered >= 0 ? op->gathered : op->acts_in, expert);
}

/* -- activations in the routing's order ------------------------------------------------------ */

static void copy_dwords(void *to, size_t to_stride, const void *from, size_t from_stride, int32_t n) {
    uint8_t *y = to;
    const uint8_t *x = from;
    for (int32_t i = 0; i < n; i++) store_u32(y + 4 * to_stride * (size_t)i, load_u32(x + 4 * from_stride * (size_t)i));
}

static void copy_qwords(int16_t *to, size_t to_stride, const int16_t *from, size_t from_stride, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        memcpy(to + 4 * to_stride * (size_t)i, from + 4 * from_stride * (size_t)i, 4 * sizeof *to);
}

static void copy_column(const ei_column *to, const ei_column *from, int32_t width) {
    size_t y = (size_t)to->w, x = (size_t)from->w;
    if (to->q) copy_dwords(to->q, y, from->q, x, width / 4);
    if (to->low) copy_dwords(to->low, y, from->low, x, width / 4);
    if (to->words) copy_qwords(to->words, y, from->words, x, width / 4);
    if (to->d) {
        copy_dwords(to->d, y, from->d, x, width / EI_RUN_LEN);
        copy_dwords(to->sums, y, from->sums, x, width / EI_RUN_LEN);
        copy_dwords(to->ds, y, from->ds, x, width / EI_BLOCK);
    }
    if (to->x) copy_dwords(to->x, y, from->x, x, width);
}

static void gather_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    const ei_routed *r = routed_of(e, op);
    (void)thread;
    const ei_acts *all = &e->acts.at[op->acts_in].acts;
    int32_t last = min_i32((chunk + 1) * GATHER_PAIRS, pairs_of(e, op));
    for (int32_t place = chunk * GATHER_PAIRS; place < last; place++) {
        int32_t pair = r->pairs[place], expert = r->ids[pair];
        ei_acts part = experts_part(e, r, op->gathered, expert);
        ei_column to = column_of(&part, place - r->starts[expert]), from = column_of(all, pair / r->how.n_used);
        copy_column(&to, &from, all->width);
    }
}

static void acts_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    const ei_routed *r = routed_of(e, op);
    (void)thread;
    int32_t last = min_i32((chunk + 1) * EI_TILE, pairs_of(e, op)), width = e->acts.at[op->acts_out].acts.width;
    for (int32_t place = chunk * EI_TILE; place < last; place++) {
        int32_t pair = r->pairs[place], expert = r->ids[pair], k = r->how.n_used;
        ei_acts part = experts_part(e, r, op->acts_out, expert);
        const float *x = row_of(e, op->in[0], pair / k) + (size_t)(pair % k) * (size_t)width;
        e->kernels->quantize(x, place - r->starts[expert], &part);
    }
}

/* -- work items ------------------------------------------------------------------------------ */

/* Things first .. last of an expert's n_things, for the tiles of its rows. */
typedef struct {
    int32_t expert, first, last;
} item;

static bool find_item(const ei_routed *r, int32_t chunk, int32_t n_things, item *found) {
    int32_t low = 0, high = r->n_active;
    if (chunk >= r->first_items[high]) return false;
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (r->first_items[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    int64_t part = chunk - r->first_items[low], parts = r->first_items[low + 1] - r->first_items[low];
    *found = (item){r->active[low], (int32_t)(part * n_things / parts), (int32_t)((part + 1) * n_things / parts)};
    return true;
}

/* out[t*16 + lane] = 16 rows of an expert's matrix by n of its tokens */
static void products(const ei_exec *e, const ei_weight *w, int32_t expert, int32_t group, const ei_acts *acts,
                     int32_t token, int32_t n, float *out) {
    const uint8_t *x = w->x + ((size_t)expert * (size_t)w->n_groups + (size_t)group) * w->group_bytes;
    const char *fetch[EI_STREAMS];
    ei_fetch_group(x + w->group_bytes, w->group_bytes, fetch);
    e->kernels->matmul[w->format][acts->fine](x, fetch, acts, token, n, out);
}

static void finish_products(const float *bias, const float *scale, const ei_weight *w, int32_t expert, int32_t group,
                            int32_t n, float *out) {
    if (!bias && !scale) return;
    int32_t first = group * EI_LANES, lanes = min_i32(EI_LANES, w->n_rows - first);
    const float *b = bias ? bias + (size_t)expert * (size_t)w->n_rows + first : NULL;
    for (int32_t t = 0; t < n; t++)
        for (int32_t i = 0; i < lanes; i++) {
            float v = out[t * EI_LANES + i];
            v = scale ? v * scale[expert] : v;
            out[t * EI_LANES + i] = b ? v + b[i] : v;
        }
}

/* 32 rows of gate and up make one block of the next activations, so it is quantized where it was computed. */
static void gated_unit(const ei_exec *e, const ei_op *op, int32_t expert, int32_t unit, const ei_acts *in, ei_acts *out,
                       int32_t token, int32_t n) {
    float h[2][EI_WIDE][EI_BLOCK] __attribute__((aligned(64)));
    float block[EI_WIDE * EI_LANES] __attribute__((aligned(64)));
    bool joint = op->weight[1] == op->weight[0];
    int32_t parts = op->weight[1] < 0 ? 1 : 2;
    for (int part = 0; part < parts; part++) {
        const ei_weight *w = &e->weights.at[op->weight[part]];
        int32_t first = unit * UNIT + (joint && part ? w->n_groups / 2 : 0);
        for (int32_t g = 0; g < UNIT; g++) {
            products(e, w, expert, first + g, in, token, n, block);
            finish_products(vector_of(e, op->vec[part]), NULL, w, expert, first + g, n, block);
            for (int32_t t = 0; t < n; t++)
                memcpy(h[part][t] + g * EI_LANES, block + t * EI_LANES, EI_LANES * sizeof *block);
        }
    }
    for (int32_t t = 0; t < n; t++) {
        if (parts == 2)
            apply_gate(e, op, h[0][t], h[1][t], h[0][t], EI_BLOCK);
        else
            e->kernels->act(op->fn, h[0][t], h[0][t], EI_BLOCK);
        e->kernels->quantize_part(h[0][t], token + t, unit * EI_BLOCK, 1, out);
    }
}

static void gated_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    item it;
    if (!find_item(routed_of(e, op), chunk, e->acts.at[op->acts_out].acts.width / EI_BLOCK, &it)) return;
    ei_acts in = input_of(e, op, it.expert), out = experts_part(e, routed_of(e, op), op->acts_out, it.expert);
    for (int32_t token = 0; token < in.n_tokens; token += EI_WIDE)
        for (int32_t unit = it.first; unit < it.last; unit++)
            gated_unit(e, op, it.expert, unit, &in, &out, token, min_i32(EI_WIDE, in.n_tokens - token));
}

/* -- results of the slots, and their sums ----------------------------------------------------- */

/* 16 rows of one expert's answers, each to its pair's place in y (pairs, n_rows). */
static void store_pairs(const ei_routed *r, const ei_weight *w, int32_t expert, int32_t group, int32_t token, int32_t n,
                        const float *out, float *y) {
    const int32_t *pairs = r->pairs + r->starts[expert] + token;
    int32_t first = group * EI_LANES;
    size_t n_bytes = (size_t)min_i32(EI_LANES, w->n_rows - first) * sizeof *y;
    for (int32_t t = 0; t < n; t++)
        memcpy(y + (size_t)pairs[t] * (size_t)w->n_rows + first, out + t * EI_LANES, n_bytes);
}

static void slots_group(const ei_exec *e, const ei_op *op, int32_t expert, int32_t group, const ei_acts *in,
                        int32_t token, int32_t n, float *y) {
    const ei_weight *w = &e->weights.at[op->weight[0]];
    float block[EI_WIDE * EI_LANES] __attribute__((aligned(64)));
    products(e, w, expert, group, in, token, n, block);
    finish_products(vector_of(e, op->vec[0]), vector_of(e, op->vec[1]), w, expert, group, n, block);
    store_pairs(routed_of(e, op), w, expert, group, token, n, block, y);
}

static void slots_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    item it;
    if (!find_item(routed_of(e, op), chunk, e->weights.at[op->weight[0]].n_groups, &it)) return;
    ei_acts in = input_of(e, op, it.expert);
    float *y = e->values.at[op->in[1] < 0 ? op->out[0] : op->out[1]].data;
    for (int32_t token = 0; token < in.n_tokens; token += EI_WIDE)
        for (int32_t group = it.first; group < it.last; group++)
            slots_group(e, op, it.expert, group, &in, token, min_i32(EI_WIDE, in.n_tokens - token), y);
}

/* sum = w_0 * y_0, then one fma for each further slot in rank order. The slots' answers are rows of y, n_y apart: those
 * that places lists, or, without it, the first k. */
static void combine(const ei_exec *e, const ei_op *op, int32_t row, const float *y, size_t n_y, const int32_t *places,
                    int32_t first, int32_t n) {
    const float *w = row_of(e, op->in[1], row);
    float *sum = row_of(e, op->out[0], row) + first;
    for (int32_t j = 0; j < e->values.at[op->in[1]].width; j++) {
        const float *slot = y + n_y * (size_t)(places ? places[j] : j);
        if (j == 0)
            e->kernels->scale(slot, w[0], 0.0f, sum, n);
        else
            e->kernels->accumulate(slot, w[j], sum, n);
    }
    if (op->kind == EI_OP_EXPERTS && op->in[0] >= 0)
        e->kernels->add(row_of(e, op->in[0], row) + first, sum, 1.0f, sum, n);
}

static void combine_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t y = op->kind == EI_OP_COMBINE ? op->in[0] : op->out[1], n = e->values.at[op->out[0]].width;
    int32_t last = min_i32((chunk + 1) * EI_TILE, rows_of(e, op->rows));
    for (int32_t row = chunk * EI_TILE; row < last; row++)
        combine(e, op, row, row_of(e, y, row), (size_t)n, NULL, 0, n);
}

/* With few pairs, 16 rows of every chosen expert are one chunk, so their sum is at hand without another job. */
static bool are_few(const ei_exec *e, const ei_op *op) {
    int32_t n = pairs_of(e, op), width = e->weights.at[op->weight[0]].n_columns;
    return n <= FEW_PAIRS && (int64_t)n * width <= FEW_VALUES;
}

static int32_t groups_per_chunk(const ei_exec *e, const ei_op *op) {
    return max_i32(1, e->weights.at[op->weight[0]].n_groups / (e->n_threads * CHUNKS_PER_THREAD));
}

/* One expert's rows of these groups for its tokens: y[g][place]. */
static void sum_expert(const ei_exec *e, const ei_op *op, int32_t expert, int32_t first, int32_t n_groups,
                       float (*y)[FEW_PAIRS][EI_LANES]) {
    const ei_weight *w = &e->weights.at[op->weight[0]];
    int32_t start = routed_of(e, op)->starts[expert];
    ei_acts in = input_of(e, op, expert);
    for (int32_t g = 0; g < n_groups; g++)
        for (int32_t token = 0; token < in.n_tokens; token += EI_WIDE) {
            int32_t n = min_i32(EI_WIDE, in.n_tokens - token);
            float *out = y[g][start + token];
            products(e, w, expert, first + g, &in, token, n, out);
            finish_products(vector_of(e, op->vec[0]), vector_of(e, op->vec[1]), w, expert, first + g, n, out);
        }
}

/* Groups of one expert stand together in memory: several at once are read as one stream. */
static void sum_groups(const ei_exec *e, const ei_op *op, int32_t first, int32_t n_groups) {
    const ei_routed *r = routed_of(e, op);
    int32_t n_rows = e->weights.at[op->weight[0]].n_rows;
    float y[SUM_GROUPS][FEW_PAIRS][EI_LANES] __attribute__((aligned(64)));
    for (int32_t i = 0; i < r->n_active; i++) sum_expert(e, op, r->active[i], first, n_groups, y);
    for (int32_t g = 0; g < n_groups; g++) {
        int32_t start = (first + g) * EI_LANES, lanes = min_i32(EI_LANES, n_rows - start);
        for (int32_t row = 0; row < rows_of(e, op->rows); row++)
            combine(e, op, row, y[g][0], EI_LANES, r->places + row * r->how.n_used, start, lanes);
    }
}

static void sum_chunk(void *context, const void *op_, int32_t chunk, int32_t thread) {
    ei_exec *e = context;
    const ei_op *op = op_;
    (void)thread;
    int32_t per = groups_per_chunk(e, op), first = chunk * per;
    int32_t last = min_i32(first + per, e->weights.at[op->weight[0]].n_groups);
    for (int32_t group = first; group < last; group += SUM_GROUPS)
        sum_groups(e, op, group, min_i32(SUM_GROUPS, last - group));
}

/* -- plan ------------------------------------------------------------------------------------ */

/* Who has which expert is known only after the route has run: items beyond the last find nothing to do. */
static int32_t most_items(const ei_exec *e, const ei_op *op) {
    return e->n_threads * EI_ITEMS_PER_THREAD + min_i32(routed_of(e, op)->how.n_experts, pairs_of(e, op));
}

void ei_plan_experts(ei_exec *e, const ei_op *op) {
    int32_t n = rows_of(e, op->rows), n_row_chunks = (n + EI_TILE - 1) / EI_TILE;
    if (!n) return;
    if (op->kind == EI_OP_COMBINE) {
        ei_add_job(e, combine_chunk, op, n_row_chunks);
        return;
    }
    if (op->kind == EI_OP_EXPERT_ACTS) {
        ei_add_job(e, acts_chunk, op, (pairs_of(e, op) + EI_TILE - 1) / EI_TILE);
        return;
    }
    if (is_gathered(e, op)) ei_add_job(e, gather_chunk, op, (pairs_of(e, op) + GATHER_PAIRS - 1) / GATHER_PAIRS);
    if (op->kind == EI_OP_EXPERTS_GATED) {
        ei_add_job(e, gated_chunk, op, most_items(e, op));
    } else if (op->in[1] >= 0 && are_few(e, op)) {
        int32_t per = groups_per_chunk(e, op);
        ei_add_job(e, sum_chunk, op, (e->weights.at[op->weight[0]].n_groups + per - 1) / per);
    } else {
        ei_add_job(e, slots_chunk, op, most_items(e, op));
        if (op->in[1] >= 0) ei_add_job(e, combine_chunk, op, n_row_chunks);
    }
}
