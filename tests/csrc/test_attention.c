/* tests/csrc/test_attention.c: every ISA's attention equals the law bit for bit, however rows are grouped. */
#include "inputs.h"
#include "law.h"

enum { CONTEXT = 700, N_PAGES = (CONTEXT + 63) / 64, MOST_ROWS = EI_ATTENTION_ROWS };

static int32_t kv_type; /* of the stores that are made */

/* One sequence in a page pool whose unwritten slots are NaN and whose last page ends at an unreadable one. */
typedef struct {
    ei_kv kv;
    guarded keys, values;
    int32_t pages[N_PAGES];
    int32_t behind, ahead; /* how far a row sees */
} store;

static void fill_nan(guarded memory, size_t n_bytes) {
    uint8_t *p = memory.data;
    for (size_t i = 0; i < n_bytes; i += 2) p[i] = 0xff, p[i + 1] = 0x7f; /* of any type */
}

static store store_new(int32_t n_kv_heads, int32_t key_dim, int32_t value_dim, int32_t behind) {
    store s = {.kv = {.type = kv_type, .n_kv_heads = n_kv_heads, .key_dim = key_dim, .value_dim = value_dim},
               .behind = behind};
    s.kv.key_stride = (size_t)n_kv_heads * 4 * ei_key_unit(&s.kv);
    s.kv.value_stride = (size_t)n_kv_heads * 4 * ei_value_unit(&s.kv);
    s.keys = guarded_new(N_PAGES * s.kv.key_stride);
    s.values = guarded_new(N_PAGES * s.kv.value_stride);
    fill_nan(s.keys, N_PAGES * s.kv.key_stride);
    fill_nan(s.values, N_PAGES * s.kv.value_stride);
    s.kv.keys = s.keys.data;
    s.kv.values = s.values.data;
    for (int32_t i = 0; i < N_PAGES; i++) s.pages[i] = i;
    for (int32_t i = N_PAGES - 1; i > 0; i--) {
        int32_t j = random_below(i + 1), page = s.pages[i];
        s.pages[i] = s.pages[j];
        s.pages[j] = page;
    }
    return s;
}

static void store_free(store *s) { guarded_free(s->keys), guarded_free(s->values); }

static bool is_kept(const ei_kv *kv, const uint8_t *plane, size_t i, float x) {
    float got = law_float(kv, plane, i);
    return same(got, kv->type == EI_KV_F32 ? x : f16_to_f32(f32_to_f16(x)));
}

static void expect_stored_floats(const char *isa, const store *s, int32_t p, int32_t h, const float *key,
                                 const float *value) {
    const ei_kv *kv = &s->kv;
    size_t unit = (size_t)((s->pages[p / 64] * kv->n_kv_heads + h) * 4 + p % 64 / 16),
           padded = ei_padded(kv->value_dim, 16);
    const uint8_t *at = kv->keys + unit * ei_key_unit(kv);
    for (int32_t d = 0; d < kv->key_dim; d++)
        EXPECT(is_kept(kv, at, (size_t)(d * 16 + p % 16), key[d]), "%s key %d of position %d", isa, d, p);
    at = kv->values + unit * ei_value_unit(kv);
    for (int32_t d = 0; d < kv->value_dim; d++)
        EXPECT(is_kept(kv, at, (size_t)(p % 16) * padded + (size_t)d, value[d]), "%s value %d of position %d", isa, d,
               p);
}

static void expect_stored_codes(const char *isa, const store *s, int32_t p, int32_t h, const float *key,
                                const float *value) {
    const ei_kv *kv = &s->kv;
    ei_attention_rows rows = {.kv = kv, .pages = s->pages, .kv_head = h};
    for (int32_t d = 0; d < kv->key_dim; d += 32) {
        int32_t n = min_i32(32, kv->key_dim - d);
        float turned[32];
        law_turn_block(kv->type, n, key + d, 1.0f, turned);
        law_block b = law_store_block(kv->type, turned, n);
        EXPECT(same(b.d, law_key_scale(&rows, p, d / 32)), "%s scale of key %d of position %d", isa, d, p);
        for (int32_t i = 0; i < n; i++)
            EXPECT(b.q[i] == law_key_code(&rows, p, d + i), "%s key %d of position %d", isa, d + i, p);
    }
    for (int32_t d = 0; d < kv->value_dim; d += 32) {
        int32_t n = min_i32(32, kv->value_dim - d);
        law_block b = law_store_block(kv->type, value + d, n);
        EXPECT(same(b.d, law_value_scale(&rows, p, d / 32)), "%s scale of value %d of position %d", isa, d, p);
        for (int32_t i = 0; i < n; i++)
            EXPECT(b.q[i] == law_value_code(&rows, p, d + i), "%s value %d of position %d", isa, d + i, p);
    }
}

/* Write positions first .. last-1 through the kernel and look at every element. */
static void store_fill(const ei_kernels *k, store *s, int32_t first, int32_t last, float magnitude) {
    const ei_kv *kv = &s->kv;
    guarded gk = guarded_new((size_t)kv->n_kv_heads * (size_t)kv->key_dim * 4);
    guarded gv = guarded_new((size_t)kv->n_kv_heads * (size_t)kv->value_dim * 4);
    float *key = gk.data, *value = gv.data;
    for (int32_t p = first; p < last; p++) {
        random_fill(key, (size_t)kv->n_kv_heads * (size_t)kv->key_dim, magnitude);
        random_fill(value, (size_t)kv->n_kv_heads * (size_t)kv->value_dim, magnitude);
        if (p % 50 == 49) key[0] = 1e-7f, value[0] = -3e-8f; /* subnormal in f16 */
        int32_t page = s->pages[p / 64], slot = p % 64;
        k->kv_store(kv, page, slot, key, value);
        for (int32_t h = 0; h < kv->n_kv_heads; h++)
            (ei_float_bytes(kv->type) ? expect_stored_floats : expect_stored_codes)(
                k->isa, s, p, h, key + h * kv->key_dim, value + h * kv->value_dim);
    }
    guarded_free(gk), guarded_free(gv);
}

/* Query rows: n_tokens tokens from position `start` on, `group` query heads each. */
typedef struct {
    ei_attention_rows in;
    guarded q, prepared; /* scaled floats, and what the kernel makes of them */
    int32_t first[MOST_ROWS], last[MOST_ROWS], position[MOST_ROWS];
    float slopes[MOST_ROWS], sinks[MOST_ROWS];
    bool has_sinks;
} query;

static void query_new(const ei_kernels *k, query *to, const store *s, int32_t start, int32_t n_tokens, int32_t group,
                      float magnitude) {
    int32_t n = n_tokens * group, dims = s->kv.key_dim;
    size_t words = ei_query_words(&s->kv);
    *to = (query){.in = {.kv = &s->kv, .pages = s->pages, .kv_head = random_below(s->kv.n_kv_heads), .n_rows = n},
                  .q = guarded_new((size_t)(n * dims) * 4),
                  .prepared = guarded_new((size_t)n * words * 4)};
    float *q = to->q.data;
    random_fill(q, (size_t)(n * dims), magnitude);
    to->in.q = to->prepared.data;
    for (int32_t r = 0; r < n; r++)
        k->attention_query(&s->kv, q + r * dims, 0.7f, (float *)to->prepared.data + (size_t)r * words);
    for (int32_t i = 0; i < n * dims; i++) q[i] = q[i] * 0.7f;
    to->in.first = to->first;
    to->in.last = to->last;
    to->in.position = to->position;
    for (int32_t r = 0; r < n; r++) {
        to->position[r] = start + r / group;
        to->first[r] = max_i32(0, to->position[r] - s->behind);
        to->last[r] = min_i32(start + n_tokens - 1, to->position[r] + s->ahead);
        to->sinks[r] = random_unit() * 4;
        to->slopes[r] = r % 3 == 2 ? 0.0f : random_unit() * random_unit();
    }
}

static void query_free(query *x) { guarded_free(x->q), guarded_free(x->prepared); }

/* The call cut to rows from .. from+n. */
static ei_attention_rows cut(const query *x, int32_t from, int32_t n) {
    ei_attention_rows rows = x->in;
    rows.q += (size_t)from * ei_query_words(rows.kv);
    rows.first += from;
    rows.last += from;
    rows.position += from;
    if (rows.slopes) rows.slopes += from;
    rows.n_rows = n;
    return rows;
}

static void expect_chunk(const char *isa, const ei_attention_rows *rows, const float *q, int32_t chunk, const float *m,
                         const float *l, const float *o) {
    int32_t dims = rows->kv->value_dim;
    for (int32_t r = 0; r < rows->n_rows; r++) {
        law_partial want;
        law_chunk(rows, q, r, chunk, &want);
        EXPECT(m[r] == want.m || (m[r] != m[r] && want.m != want.m), "%s m of row %d: %a, law %a", isa, r, m[r],
               want.m);
        if (want.m == -INFINITY) continue;
        EXPECT(same(l[r], want.l), "%s l of row %d: %a, law %a", isa, r, l[r], want.l);
        for (int32_t d = 0; d < dims; d++)
            EXPECT(same(o[r * dims + d], want.o[d]), "%s o of row %d dim %d/%d chunk %d: %a, law %a", isa, r, d, dims,
                   chunk, o[r * dims + d], want.o[d]);
    }
}

/* One call's rows, every chunk that any of them sees, merged and finished. With q, each chunk obeys the law. */
static void attend_rows(const ei_kernels *k, const ei_attention_rows *rows, const float *sinks, float *out,
                        const float *q) {
    int32_t dims = rows->kv->value_dim, n = rows->n_rows, low = rows->first[0], high = rows->last[0];
    guarded go = guarded_new((size_t)n * (size_t)dims * 4), gs = guarded_new(EI_ATTENTION_SCRATCH * sizeof(float));
    float *o = go.data, *total_o = malloc((size_t)n * (size_t)dims * 4);
    float m[MOST_ROWS], l[MOST_ROWS], total_m[MOST_ROWS], total_l[MOST_ROWS];
    for (int32_t r = 0; r < n; r++) {
        total_m[r] = -INFINITY;
        low = rows->first[r] < low ? rows->first[r] : low;
        high = rows->last[r] > high ? rows->last[r] : high;
    }
    for (int32_t c = low / EI_CHUNK_LEN; c <= high / EI_CHUNK_LEN; c++) {
        k->attention_chunk(rows, c, m, l, o, gs.data);
        if (q) expect_chunk(k->isa, rows, q, c, m, l, o);
        for (int32_t r = 0; r < n; r++)
            k->attention_merge(dims, total_m + r, total_l + r, total_o + r * dims, m[r], l[r], o + r * dims);
    }
    for (int32_t r = 0; r < n; r++)
        k->attention_finish(dims, total_m[r], total_l[r], total_o + r * dims, sinks ? sinks + r : NULL, out + r * dims);
    free(total_o);
    guarded_free(go), guarded_free(gs);
}

static void expect_law(const ei_kernels *k, const query *x, const char *what) {
    int32_t dims = x->in.kv->value_dim, n = x->in.n_rows;
    const float *sinks = x->has_sinks ? x->sinks : NULL;
    guarded gout = guarded_new((size_t)n * (size_t)dims * 4);
    float *out = gout.data, *want = malloc((size_t)n * (size_t)dims * 4), *parts = malloc((size_t)n * (size_t)dims * 4);
    for (int32_t r = 0; r < n; r++) law_attention(&x->in, x->q.data, sinks, r, want + r * dims);
    attend_rows(k, &x->in, sinks, out, n <= 4 ? x->q.data : NULL);
    for (int32_t from = 0; from < n;) {
        int32_t some = 1 + random_below(n - from);
        ei_attention_rows rows = cut(x, from, some);
        attend_rows(k, &rows, sinks ? sinks + from : NULL, parts + from * dims, NULL);
        from += some;
    }
    for (int32_t i = 0; i < n * dims; i++) {
        EXPECT(same(out[i], want[i]), "%s %s row %d/%d dim %d/%d: %a, law %a", k->isa, what, i / dims, n, i % dims,
               dims, out[i], want[i]);
        EXPECT(same(parts[i], want[i]), "%s %s in parts: %a, law %a", k->isa, what, parts[i], want[i]);
    }
    free(want), free(parts);
    guarded_free(gout);
}

static void test_shapes(const ei_kernels *k) {
    static const int32_t dims[] = {8, 16, 24, 64, 80, 96, 112, 128, 256, 13, 576};
    static const int32_t behind[] = {CONTEXT, CONTEXT, 4, 63, 99, 299};
    for (int i = 0; i < 66; i++) {
        if (kv_type != EI_KV_F16 && (25 * i + 22 * kv_type) % 66 >= 22) continue; /* a third of the shapes */
        int32_t key_dim = dims[i % 11], value_dim = i % 11 == 10 ? 512 : dims[(i + i / 11 % 2) % 10];
        store s = store_new(1 + i % 3, key_dim, value_dim, behind[i % 6]);
        int32_t n_tokens = 1 + random_below(i % 4 == 0 ? 1 : 10), group = 1 + random_below(MOST_ROWS / n_tokens);
        if (key_dim > 100) group = min_i32(group, 3);
        if (i % 7 == 5) s.ahead = i % 2 ? CONTEXT : 3;
        int32_t start = random_below(i % 5 == 0 ? CONTEXT - 40 : i % 5 == 1 ? 20 : 280);
        /* what the window has left behind was never written, so it must not be read */
        store_fill(k, &s, max_i32(0, start - s.behind), start + n_tokens, 2.0f);
        query x;
        query_new(k, &x, &s, start, n_tokens, group, 1.0f);
        if (i % 3 == 1) x.in.softcap = 3.0f;
        if (i % 5 == 3) x.in.slopes = x.slopes;
        x.has_sinks = i % 4 == 2;
        expect_law(k, &x, "shape");
        query_free(&x);
        store_free(&s);
    }
}

/* Each number of rows, at a chunk's seam. */
static void test_row_counts(const ei_kernels *k) {
    store s = store_new(2, 32, 48, CONTEXT);
    store_fill(k, &s, 0, 256 + MOST_ROWS, 1.0f);
    for (int32_t n = 1; n <= MOST_ROWS; n++) {
        query x;
        query_new(k, &x, &s, 256 - n / 2, n, 1, 2.0f);
        expect_law(k, &x, "rows");
        query_free(&x);
    }
    store_free(&s);
}

/* Rows far apart: what lies between them may not even have pages. */
static void test_gap(const ei_kernels *k) {
    store s = store_new(1, 16, 16, 9);
    store_fill(k, &s, 20, 35, 1.0f);
    store_fill(k, &s, 200, 215, 1.0f);
    s.pages[1] = s.pages[2] = s.pages[4] = INT32_MAX;
    query x;
    query_new(k, &x, &s, 34, 2, 1, 1.0f);
    x.last[0] = 34, x.first[0] = 25, x.last[1] = 214, x.first[1] = 205;
    expect_law(k, &x, "gap");
    query_free(&x);
    store_free(&s);
}

/* Large and tiny scores: one weight takes all, or all are equal. */
static void test_magnitudes(const ei_kernels *k) {
    static const float magnitudes[] = {0.0f, 1e-30f, 1e-3f, 100.0f, 3e4f};
    store s = store_new(1, 64, 64, CONTEXT);
    store_fill(k, &s, 0, 300, 200.0f);
    for (int i = 0; i < 5; i++)
        for (int with = 0; with < 4; with++) {
            query x;
            query_new(k, &x, &s, 295, 5, 1, magnitudes[i]);
            if (with & 1) x.in.softcap = 50.0f;
            x.has_sinks = with & 2;
            expect_law(k, &x, "magnitude");
            query_free(&x);
        }
    store_free(&s);
}

/* A NaN that a row sees, alone in its chunk or not, makes the row NaN; rows that do not see it are untouched. An
 * infinite key obeys the law: a score of +inf makes the row NaN, one of -inf weighs nothing. */
static void test_non_finite(const ei_kernels *k) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e6f};
    for (int i = 0; i < 8; i++) {
        int32_t position = i < 4 ? 256 : 100;
        store s = store_new(1, 8, 8, CONTEXT);
        float key[8] = {1, 2, 3, 4, 5, 6, 7, 8}, value[8] = {0};
        store_fill(k, &s, 0, 270, 1.0f);
        key[3] = bad[i % 4];
        k->kv_store(&s.kv, s.pages[position / 64], position % 64, key, value);
        query x;
        query_new(k, &x, &s, position - 1, 3, 2, 1.0f);
        x.has_sinks = i & 1;
        float out[6 * 8];
        expect_law(k, &x, "non-finite");
        attend_rows(k, &x.in, x.has_sinks ? x.sinks : NULL, out, NULL);
        for (int32_t j = 0; j < 6 * 8; j++)
            EXPECT(j < 16 ? isfinite(out[j]) : isnan(out[j]) || !isnan(bad[i % 4]), "%s row %d: %a", k->isa, j / 8,
                   out[j]);
        query_free(&x);
        store_free(&s);
    }
}

int main(void) {
    for (int i = 0; i < N_ISA_NAMES; i++) {
        const ei_kernels *k = kernels_to_test(i);
        if (!k) continue;
        for (kv_type = 0; kv_type < EI_N_KV_TYPES; kv_type++) {
            test_shapes(k);
            test_row_counts(k);
            test_gap(k);
            test_magnitudes(k);
            test_non_finite(k);
        }
    }
    if (n_failures) printf("%d failures\n", n_failures);
    return n_failures != 0;
}
