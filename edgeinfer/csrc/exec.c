/* edgeinfer/csrc/exec.c: build an executable: lists of parts, memory for them, matrices laid out in X. */
#include "exec.h"
#include "memory.h"
#include "repack.h"

#include <stdlib.h>

/* Room for one more element; the lists only grow while the executable is built. */
static bool grow(void **at, int32_t *room, int32_t n, size_t size) {
    if (n < *room) return true;
    int32_t wanted = *room ? *room * 2 : 16;
    void *moved = realloc(*at, (size_t)wanted * size);
    if (!moved) return false;
    *at = moved, *room = wanted;
    return true;
}

#define APPEND(list, item)                                                                                             \
    (grow((void **)&(list).at, &(list).room, (list).n, sizeof *(list).at) ? ((list).at[(list).n] = (item), (list).n++) \
                                                                          : -1)

ei_exec *ei_exec_new(const char *isa, int32_t n_threads, int32_t n_threads_batch, int32_t n_batch, int32_t n_pages) {
    const ei_kernels *kernels = ei_kernels_of(isa);
    if (!kernels || n_threads < 1 || n_threads_batch < 1 || n_batch < 1 || n_pages < 1) return NULL;
    ei_exec *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->kernels = kernels, e->n_batch = n_batch, e->n_pages = n_pages, e->logits = -1, e->hidden = -1;
    e->pool = ei_pool_new(max_i32(n_threads, n_threads_batch));
    if (!e->pool) {
        free(e);
        return NULL;
    }
    e->n_threads = ei_pool_size(e->pool);
    e->n_threads_few = min_i32(n_threads, e->n_threads);
    e->n_threads_many = min_i32(n_threads_batch, e->n_threads);
    return e;
}

void ei_exec_free(ei_exec *e) {
    if (!e) return;
    ei_pool_free(e->pool);
    ei_big_free(e->weight_memory, e->weight_bytes);
    ei_big_free(e->state_memory, e->state_bytes);
    if (!e->work_taken) ei_big_free(e->work_memory, e->work_bytes);
    ei_big_free(e->snapshot_memory, e->snapshot_bytes * (size_t)e->n_snapshots);
    void *owned[] = {e->weights.at, e->vectors.at, e->values.at,   e->acts.at,     e->kvs.at,
                     e->ropes.at,   e->states.at,  e->routings.at, e->sums.at,     e->ops.at,
                     e->jobs,       e->partials,   e->runs,        e->spans[0].at, e->spans[1].at};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(e);
    ei_return_freed();
}

int32_t ei_exec_threads(const ei_exec *e) { return e->n_threads_few; }
int32_t ei_exec_threads_batch(const ei_exec *e) { return e->n_threads_many; }
size_t ei_exec_weight_bytes(const ei_exec *e) { return e->weight_bytes + e->packed_bytes; }
size_t ei_exec_state_bytes(const ei_exec *e) { return e->state_bytes; }
size_t ei_exec_work_bytes(const ei_exec *e) { return e->work_bytes; }
size_t ei_exec_snapshot_bytes(const ei_exec *e) { return e->snapshot_bytes; }
uint8_t *ei_exec_take_work(ei_exec *e) {
    e->work_taken = true;
    return e->work_memory;
}
void ei_work_free(uint8_t *work, size_t n_bytes) { ei_big_free(work, n_bytes); }
void ei_exec_set_hidden(ei_exec *e, int32_t value) { e->hidden = value, e->n_body = e->ops.n; }
void ei_exec_set_mapped(ei_exec *e, int32_t weight) { e->weights.at[weight].mapped = true; }
void ei_exec_set_snapshots(ei_exec *e, int32_t n_snapshots) { e->n_snapshots = n_snapshots; }

static int32_t add_weight(ei_exec *e, ei_weight w, bool in_groups) {
    if (w.format < 0 || w.format >= EI_N_FORMATS || w.n_matrices < 1 || w.n_rows < 1 || w.n_columns < 1 ||
        w.n_columns % ei_format_rows[w.format].block_len || w.n_rows / EI_LANES + 1 > INT32_MAX / w.n_matrices)
        return -1;
    if (in_groups) {
        w.n_groups = ei_n_groups(w.n_rows);
        w.group_bytes = EI_LANES * ei_row_bytes(w.format, w.n_columns);
    }
    int32_t number = APPEND(e->weights, w);
    if (number >= 0 && w.x) e->packed_bytes += (size_t)w.n_matrices * (size_t)w.n_groups * w.group_bytes;
    return number;
}

int32_t ei_exec_add_matrix(ei_exec *e, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file) {
    return add_weight(e, (ei_weight){format, 1, n_rows, n_columns, .file = file}, true);
}
int32_t ei_exec_add_experts(ei_exec *e, int32_t format, int32_t n_experts, int32_t n_rows, int32_t n_columns,
                            const uint8_t *file) {
    return add_weight(e, (ei_weight){format, n_experts, n_rows, n_columns, .file = file}, true);
}
int32_t ei_exec_add_packed(ei_exec *e, int32_t format, int32_t n_matrices, int32_t n_rows, int32_t n_columns,
                           const uint8_t *x) {
    if (!x || (uintptr_t)x % 64) return -1;
    return add_weight(e, (ei_weight){format, n_matrices, n_rows, n_columns, .x = x}, true);
}
int32_t ei_exec_add_table(ei_exec *e, int32_t format, int32_t n_rows, int32_t n_columns, const uint8_t *file) {
    return add_weight(e, (ei_weight){format, 1, n_rows, n_columns, .file = file}, false);
}
int32_t ei_exec_add_vector(ei_exec *e, const float *values, int32_t n) {
    return n < 1 ? -1 : APPEND(e->vectors, values);
}
int32_t ei_exec_add_value(ei_exec *e, int32_t width, int32_t rows) {
    ei_value v = {.width = width, .rows = rows};
    return width < 1 ? -1 : APPEND(e->values, v);
}
int32_t ei_exec_add_acts(ei_exec *e, int32_t width, int32_t rows, int32_t slots, int32_t integers, int32_t floats) {
    ei_acts_set a = {.acts.width = width,
                     .rows = rows,
                     .slots = slots,
                     .integers = integers,
                     .fine = integers == 2,
                     .floats = floats};
    return width < 1 || slots < 1 || (integers && width % EI_BLOCK) ? -1 : APPEND(e->acts, a);
}
int32_t ei_exec_add_kv(ei_exec *e, int32_t type, int32_t n_kv_heads, int32_t key_dim, int32_t value_dim,
                       int32_t place) {
    ei_kv kv = {.type = type, .n_kv_heads = n_kv_heads, .key_dim = key_dim, .value_dim = value_dim, .place = place};
    bool sizes = n_kv_heads >= 1 && key_dim >= 1 && value_dim >= 1 && place < e->kvs.n;
    return type >= 0 && type < EI_N_KV_TYPES && sizes ? APPEND(e->kvs, kv) : -1;
}
int32_t ei_exec_add_state(ei_exec *e, int32_t n_heads, int32_t n_rows, int32_t n_columns) {
    ei_state s = {n_heads, n_rows, n_columns, e->snapshot_bytes / sizeof(float)};
    if (n_heads < 1 || n_rows < 1 || n_columns < 1) return -1;
    size_t n_bytes = (size_t)n_heads * (size_t)n_rows * (size_t)n_columns * sizeof(float);
    e->snapshot_bytes += (n_bytes + 63) & ~(size_t)63;
    return APPEND(e->states, s);
}
int32_t ei_exec_add_rope(ei_exec *e, const float *inv_freq, int32_t n_pairs, float mscale) {
    ei_rope r = {.inv_freq = inv_freq, .n_pairs = n_pairs, .mscale = mscale};
    return n_pairs < 1 ? -1 : APPEND(e->ropes, r);
}
int32_t ei_exec_add_routing(ei_exec *e, const ei_routing *how) {
    ei_routed r = {.how = *how};
    bool sizes = how->n_used >= 1 && how->n_used <= how->n_experts && how->groups >= 1 && how->groups_used >= 1;
    return sizes && how->score >= 0 && how->score < EI_N_SCORES ? APPEND(e->routings, r) : -1;
}
int32_t ei_exec_add_sums(ei_exec *e, double *squares, double *counts, int32_t n_matrices, int32_t n_columns) {
    ei_sums s = {squares, counts, n_matrices, n_columns};
    return n_matrices < 1 || n_columns < 1 ? -1 : APPEND(e->sums, s);
}
int32_t ei_exec_add_op(ei_exec *e, const ei_op *op) {
    return op->kind < 0 || op->kind >= EI_N_OPS ? -1 : APPEND(e->ops, *op);
}

/* Give out pieces of one allocation: measured with base NULL first, handed out the second time. */
static void *take(uint8_t *base, size_t *used, size_t n_bytes) {
    size_t at = *used;
    *used = at + ((n_bytes + 63) & ~(size_t)63);
    return base ? base + at : NULL;
}

static size_t place_routing(ei_exec *e, ei_routed *r, uint8_t *base, size_t used) {
    size_t pairs = (size_t)e->n_batch * (size_t)r->how.n_used, experts = (size_t)r->how.n_experts;
    int32_t **lists[] = {&r->ids, &r->pairs, &r->places, &r->starts, &r->active, &r->first_items};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        *lists[i] = take(base, &used, (i < 3 ? pairs : experts + 1) * sizeof(int32_t));
    r->scratch = take(base, &used, (size_t)e->n_threads * EI_ROUTE_SCRATCH * experts * sizeof(float));
    return used;
}

static size_t place_work(ei_exec *e, uint8_t *base) {
    size_t used = 0, batch = (size_t)e->n_batch;
    bool any_signed = false;
    for (int32_t i = 0; i < e->weights.n; i++) any_signed |= ei_has_signed_codes(e->weights.at[i].format);
    for (int32_t i = 0; i < e->values.n; i++)
        e->values.at[i].data = take(base, &used, batch * (size_t)e->values.at[i].width * 4);
    for (int32_t i = 0; i < e->acts.n; i++) {
        ei_acts_set *a = &e->acts.at[i];
        size_t n = batch * (size_t)a->slots * (size_t)a->acts.width, blocks = n / EI_BLOCK;
        if (a->integers) {
            a->acts.fine = a->fine;
            if (e->kernels->fine_words && (a->fine || any_signed)) a->acts.words = take(base, &used, 2 * n);
            if (!(e->kernels->fine_words && a->fine)) a->acts.q = take(base, &used, n);
            if (!e->kernels->fine_words && a->fine) a->acts.low = take(base, &used, n);
            a->acts.d = take(base, &used, 8 * blocks);
            a->acts.sums = take(base, &used, 8 * blocks);
            a->acts.ds = take(base, &used, 4 * blocks);
        }
        if (a->floats) a->acts.x = take(base, &used, 4 * n);
    }
    for (int32_t i = 0; i < e->ropes.n; i++) {
        e->ropes.at[i].cosines = take(base, &used, batch * (size_t)e->ropes.at[i].n_pairs * 4);
        e->ropes.at[i].sines = take(base, &used, batch * (size_t)e->ropes.at[i].n_pairs * 4);
    }
    for (int32_t i = 0; i < e->routings.n; i++) used = place_routing(e, &e->routings.at[i], base, used);
    e->scratch = take(base, &used, (size_t)e->n_threads * e->scratch_floats * 4);
    return used;
}

static size_t place_weights(ei_exec *e, uint8_t *base) {
    size_t used = 0;
    for (int32_t i = 0; i < e->weights.n; i++) {
        ei_weight *w = &e->weights.at[i];
        if (w->n_groups && w->file)
            w->x = w->own = take(base, &used, (size_t)w->n_matrices * (size_t)w->n_groups * w->group_bytes);
    }
    return used;
}

/* One page id is one stretch of memory: its keys and values of every layer. */
static size_t place_state(ei_exec *e, uint8_t *base) {
    size_t used = 0;
    for (int32_t i = 0; i < e->kvs.n; i++) {
        ei_kv *kv = &e->kvs.at[i];
        size_t units = (size_t)kv->n_kv_heads * (EI_PAGE_LEN / 16);
        if (kv->place >= 0) {
            kv->keys = e->kvs.at[kv->place].keys, kv->values = e->kvs.at[kv->place].values;
            continue;
        }
        kv->keys = take(base, &used, units * ei_key_unit(kv));
        kv->values = take(base, &used, units * ei_value_unit(kv));
    }
    for (int32_t i = 0; i < e->kvs.n; i++) e->kvs.at[i].key_stride = e->kvs.at[i].value_stride = used;
    return used * (size_t)e->n_pages;
}

/* Of short convolutions a snapshot is far smaller than a huge page. */
static bool allocate_snapshots(ei_exec *e) {
    if (e->states.n == 0) return true;
    if (e->n_snapshots < 1) return false;
    e->snapshot_memory = ei_big_alloc(e->snapshot_bytes * (size_t)e->n_snapshots, false);
    return e->snapshot_memory;
}

static bool allocate(ei_exec *e) {
    ei_size_attention(e);
    size_t (*const place[])(ei_exec *, uint8_t *) = {place_weights, place_state, place_work};
    uint8_t **memory[] = {&e->weight_memory, &e->state_memory, &e->work_memory};
    size_t *bytes[] = {&e->weight_bytes, &e->state_bytes, &e->work_bytes};
    /* every weight is read in every step; of the buffers a short step touches only the first rows */
    const bool huge[] = {true, true, false};
    for (int i = 0; i < 3; i++) {
        *bytes[i] = place[i](e, NULL);
        *memory[i] = ei_big_alloc(*bytes[i], huge[i]);
        if (!*memory[i]) return false;
        place[i](e, *memory[i]);
    }
    size_t n_jobs = (size_t)e->ops.n * EI_JOBS_PER_OP + (size_t)e->ropes.n;
    e->jobs = calloc(n_jobs ? n_jobs : 1, sizeof *e->jobs);
    for (int rows = 0; rows < 2; rows++) e->spans[rows].at = calloc((size_t)e->n_batch, sizeof *e->spans[rows].at);
    e->runs = calloc((size_t)e->n_batch, sizeof *e->runs);
    return e->jobs && e->spans[0].at && e->spans[1].at && e->runs && allocate_snapshots(e);
}

int32_t ei_exec_measure(ei_exec *e, size_t *weights, size_t *state, size_t *work) {
    if (e->weight_memory) return EI_BAD_ARGUMENT;
    ei_size_attention(e);
    *weights = place_weights(e, NULL), *state = place_state(e, NULL), *work = place_work(e, NULL);
    return EI_OK;
}

/* Source bytes one repack chunk covers: enough that giving its pages back pays, few enough to share evenly. */
enum { REPACK_BYTES = 1 << 20 };

typedef struct {
    ei_exec *exec;
    volatile int64_t *done;
} repack_context;

static int32_t repack_groups(const ei_weight *w) { return max_i32(1, (int32_t)(REPACK_BYTES / w->group_bytes)); }

static void repack_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    repack_context *c = context;
    const ei_weight *w = op;
    (void)thread;
    int32_t first = chunk * repack_groups(w), last = min_i32(first + repack_groups(w), w->n_matrices * w->n_groups);
    size_t start = ei_file_offset(w->n_rows, w->n_columns, w->format, first);
    size_t n_bytes = ei_file_offset(w->n_rows, w->n_columns, w->format, last) - start;
    ei_repack_groups(c->exec->kernels, w->format, w->n_rows, w->n_columns, w->file, first, last,
                     w->own + (size_t)first * w->group_bytes);
    if (w->mapped) ei_release_mapped(w->file + start, n_bytes);
    if (c->done) __atomic_fetch_add(c->done, (int64_t)n_bytes, __ATOMIC_RELAXED);
}

static int32_t repack(ei_exec *e, volatile int64_t *done, const volatile int32_t *cancel) {
    ei_job *jobs = calloc((size_t)e->weights.n + 1, sizeof *jobs);
    if (!jobs) return EI_NO_MEMORY;
    int32_t n = 0;
    for (int32_t i = 0; i < e->weights.n; i++) {
        const ei_weight *w = &e->weights.at[i];
        if (w->own) {
            int32_t per = repack_groups(w);
            jobs[n++] = (ei_job){repack_chunk, w, (w->n_matrices * w->n_groups + per - 1) / per};
        }
    }
    repack_context context = {e, done};
    int32_t status = ei_pool_run(e->pool, &context, jobs, n, cancel);
    free(jobs);
    return status;
}

int32_t ei_exec_finish(ei_exec *e, int32_t logits, volatile int64_t *done, const volatile int32_t *cancel) {
    if (logits < 0 || logits >= e->values.n || e->weight_memory) return EI_BAD_ARGUMENT;
    e->logits = logits;
    return allocate(e) ? repack(e, done, cancel) : EI_NO_MEMORY;
}

int32_t ei_exec_copy_page(ei_exec *e, int32_t from, int32_t to) {
    if (from < 0 || from >= e->n_pages || to < 0 || to >= e->n_pages || !e->state_memory) return EI_BAD_ARGUMENT;
    size_t n_bytes = e->state_bytes / (size_t)e->n_pages;
    if (from != to) memcpy(e->state_memory + (size_t)to * n_bytes, e->state_memory + (size_t)from * n_bytes, n_bytes);
    return EI_OK;
}

/* Zeros are stored as any keys and values are, so nothing here knows how. */
int32_t ei_exec_read_page(const ei_exec *e, int32_t page, int32_t n_positions, uint8_t *out) {
    if (page < 0 || page >= e->n_pages || n_positions < 0 || n_positions > EI_PAGE_LEN || !e->state_memory)
        return EI_BAD_ARGUMENT;
    size_t n_bytes = e->state_bytes / (size_t)e->n_pages, most = 1;
    for (int32_t i = 0; i < e->kvs.n; i++) {
        const ei_kv *kv = &e->kvs.at[i];
        size_t n = (size_t)kv->n_kv_heads * (size_t)max_i32(kv->key_dim, kv->value_dim);
        most = n > most ? n : most;
    }
    float *zeros = calloc(most + EI_LANES, sizeof *zeros);
    if (!zeros) return EI_NO_MEMORY;
    memcpy(out, e->state_memory + (size_t)page * n_bytes, n_bytes);
    for (int32_t i = 0; i < e->kvs.n; i++) {
        ei_kv kv = e->kvs.at[i];
        kv.keys = out + (kv.keys - e->state_memory), kv.values = out + (kv.values - e->state_memory);
        for (int32_t slot = n_positions; slot < EI_PAGE_LEN; slot++) e->kernels->kv_store(&kv, 0, slot, zeros, zeros);
    }
    free(zeros);
    return EI_OK;
}

int32_t ei_exec_write_page(ei_exec *e, int32_t page, const uint8_t *in) {
    if (page < 0 || page >= e->n_pages || !e->state_memory) return EI_BAD_ARGUMENT;
    size_t n_bytes = e->state_bytes / (size_t)e->n_pages;
    memcpy(e->state_memory + (size_t)page * n_bytes, in, n_bytes);
    return EI_OK;
}

int32_t ei_exec_read_snapshot(const ei_exec *e, int32_t snapshot, uint8_t *out) {
    if (snapshot < 0 || snapshot >= e->n_snapshots || !e->snapshot_memory) return EI_BAD_ARGUMENT;
    memcpy(out, e->snapshot_memory + (size_t)snapshot * e->snapshot_bytes, e->snapshot_bytes);
    return EI_OK;
}

int32_t ei_exec_write_snapshot(ei_exec *e, int32_t snapshot, const uint8_t *in) {
    if (snapshot < 0 || snapshot >= e->n_snapshots || !e->snapshot_memory) return EI_BAD_ARGUMENT;
    memcpy(e->snapshot_memory + (size_t)snapshot * e->snapshot_bytes, in, e->snapshot_bytes);
    return EI_OK;
}
