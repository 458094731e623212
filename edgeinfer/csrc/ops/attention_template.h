/* edgeinfer/csrc/ops/attention_template.h: the attention of query rows over one chunk of positions, and its merge.
 *
 * The including file defines EI_ISA, EI_FN, the verbs (isa/scalar_verbs.h), with EI_ATTENTION_VECTORS accumulators
 * that fit its registers, and includes ops/math_template.h first. How keys and values are stored, scored and weighed
 * is in one file for each type of KV, included below.
 *
 * The law, for one row over the positions it sees in a chunk of 256 absolute positions:
 *   score s of each position (by type), then the softcap; with a slope: s = fma(-slope, |row's position - position|, s)
 *   m = max s; w = exp(s - m); l = 16 lanes by position mod 16, plain adds in order, then the tree of vf_sum
 *   o = the sum of w * value (by type)
 * A position the row does not see is left out, never multiplied by 0: its slot may hold anything. If l is NaN, so is
 * m, for m = -inf says that the row saw nothing. Chunks are merged left to right (attention_merge), then the sink.
 * So the result does not depend on which rows are computed together, nor by how many threads.
 */

enum { EI_SCORE_STRIDE = EI_CHUNK_LEN + 16, EI_CHUNK_BLOCKS = EI_CHUNK_LEN / 16 };

_Static_assert(EI_ATTENTION_SCRATCH >= EI_ATTENTION_ROWS * EI_SCORE_STRIDE, "one line of scores for every row");

/* The functions below take the number of rows and vectors as constants: after inlining every accumulator is a
 * register. With few rows the accumulators take several vectors of each. */
#if EI_ATTENTION_VECTORS >= 24
#define EI_VECTORS_OF(rows) (EI_ATTENTION_VECTORS / (rows) >= 4 ? 4 : EI_ATTENTION_VECTORS / (rows) >= 2 ? 2 : 1)
#elif EI_ATTENTION_VECTORS >= 6 /* two vectors of three rows would leave no register for the keys: half the speed */
#define EI_VECTORS_OF(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)
#else
#define EI_VECTORS_OF(rows) 1
#endif

/* Into L2: what is to be read soon would push what is being read out of L1. Decoding waits for memory, so it asks for
 * it early; more rows than these wait for the multipliers. */
#define EI_FETCH(n_rows, p)                                                                                            \
    do {                                                                                                               \
        if ((n_rows) <= 4) __builtin_prefetch(p, 0, 2);                                                                \
    } while (0)

/* The first n lanes, as whole vectors but for the last of a row: a masked store takes tens of cycles on some CPUs. */
EI_INLINE vf load_dims(const float *p, int32_t n) { return n >= 16 ? vf_load(p) : vf_load_n(p, n); }
EI_INLINE void store_dims(float *p, vf x, int32_t n) {
    if (n >= 16)
        vf_store(p, x);
    else
        vf_store_n(p, x, n);
}

/* -- where things are ----------------------------------------------------------------------- */

/* Unit u of a page: positions 16*(u mod 4) .. +15 of KV head u / 4. */
static uint8_t *keys_at(const ei_kv *kv, int32_t page, size_t unit) {
    return kv->keys + (size_t)page * kv->key_stride + unit * ei_key_unit(kv);
}
static uint8_t *values_at(const ei_kv *kv, int32_t page, size_t unit) {
    return kv->values + (size_t)page * kv->value_stride + unit * ei_value_unit(kv);
}

/* The rows computed together, and the blocks of 16 positions that at least one of them sees. */
typedef struct {
    int32_t key_dim, value_dim;
    size_t query_words, value_pair;                          /* value_pair: bytes of codes of two positions */
    int32_t low[EI_ATTENTION_ROWS], high[EI_ATTENTION_ROWS]; /* row r sees low .. high-1 of the chunk */
    int32_t n_blocks;
    int32_t start[EI_CHUNK_BLOCKS];
    bool whole[EI_CHUNK_BLOCKS]; /* every row sees all 16 */
    const uint8_t *keys[EI_CHUNK_BLOCKS], *values[EI_CHUNK_BLOCKS];
    /* what will be read 64 positions later, the values after the keys */
    const uint8_t *after_keys[EI_CHUNK_BLOCKS], *after_values[EI_CHUNK_BLOCKS];
} attention_tile;

static void tile_blocks(attention_tile *t, const ei_attention_rows *rows, int32_t n_rows, int32_t chunk) {
    const ei_kv *kv = rows->kv;
    int32_t n = 0, lowest = EI_CHUNK_LEN, highest = 0, last_low = 0, first_high = EI_CHUNK_LEN;
    for (int32_t r = 0; r < n_rows; r++) {
        last_low = max_i32(last_low, t->low[r]), first_high = min_i32(first_high, t->high[r]);
        if (t->low[r] < t->high[r]) lowest = min_i32(lowest, t->low[r]), highest = max_i32(highest, t->high[r]);
    }
    for (int32_t start = lowest & ~15; start < highest; start += 16) {
        bool whole = last_low <= start && first_high >= start + 16, seen = whole;
        for (int32_t r = 0; r < n_rows && !seen; r++)
            seen = t->low[r] < start + 16 && t->high[r] > start && t->low[r] < t->high[r];
        if (!seen) continue;
        int32_t position = chunk * EI_CHUNK_LEN + start;
        int32_t page = rows->pages[position / EI_PAGE_LEN];
        size_t unit = (size_t)rows->kv_head * (EI_PAGE_LEN / 16) + (size_t)(position % EI_PAGE_LEN / 16);
        t->start[n] = start;
        t->whole[n] = whole;
        t->keys[n] = keys_at(kv, page, unit);
        t->values[n++] = values_at(kv, page, unit);
    }
    t->n_blocks = n;
    for (int32_t b = 0; b < n; b++) {
        t->after_keys[b] = b + 4 < n ? t->keys[b + 4] : t->values[min_i32(b + 4 - n, n - 1)];
        t->after_values[b] = t->values[min_i32(b + 4, n - 1)];
    }
}

/* -- softmax -------------------------------------------------------------------------------- */

EI_INLINE float largest_lane(vf x) {
    float v[16];
    vf_store(v, x);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
    return v[0];
}

/* What the row's softcap and slope make of the scores of blocks from .. to; here: its position less the chunk's. */
static void shape_scores(float *scores, int32_t from, int32_t to, float softcap, float slope, int32_t here) {
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float inverse = 1.0f / softcap;
    for (int32_t i = from; i < to; i += 16) {
        vf s = vf_load(scores + i);
        if (softcap > 0) s = vf_softcap(s, softcap, inverse);
        vf distance = vf_abs(vf_from_vi(vi_sub(vi_set(here - i), vi_load(lanes))));
        if (slope != 0) s = vf_fnma(vf_set(slope), distance, s);
        vf_store(scores + i, s);
    }
}

/* Scores of row r of the tile -> weights; the other lanes of its first and last block become 0. */
static void softmax_row(const attention_tile *t, int32_t r, const ei_attention_rows *rows, int32_t row, int32_t chunk,
                        float *scores, float *m, float *l) {
    int32_t low = t->low[r], high = t->high[r], from = low & ~15, to = (high + 15) & ~15;
    float slope = rows->slopes ? rows->slopes[row] : 0.0f;
    if (rows->softcap > 0 || slope != 0)
        shape_scores(scores, from, to, rows->softcap, slope, rows->position[row] - chunk * EI_CHUNK_LEN);
    for (int32_t i = from; i < low; i++) scores[i] = -INFINITY;
    for (int32_t i = high; i < to; i++) scores[i] = -INFINITY;
    vf most = vf_set(-INFINITY), sum = vf_zero();
    for (int32_t i = from; i < to; i += 16) most = vf_max(vf_load(scores + i), most);
    float largest = largest_lane(most);
    vf shift = vf_set(largest);
    for (int32_t i = from; i < to; i += 16) {
        vf w = vf_exp(vf_sub(vf_load(scores + i), shift));
        vf_store(scores + i, w);
        sum = vf_add(sum, w);
    }
    *l = vf_sum(sum);
    *m = *l == *l ? largest : *l;
}

/* -- one tile of rows over one chunk -------------------------------------------------------- */

#include "attention_float_template.h"
#include "attention_codes_template.h"

/* Rows row .. row+n_rows of the call. */
EI_INLINE void attend(int n_rows, int type, attention_tile *t, const ei_attention_rows *rows, int32_t row,
                      int32_t chunk, float *m, float *l, float *o, float *scores) {
    for (int32_t r = 0; r < n_rows; r++) {
        t->low[r] = max_i32(rows->first[row + r] - chunk * EI_CHUNK_LEN, 0);
        t->high[r] = min_i32(rows->last[row + r] + 1 - chunk * EI_CHUNK_LEN, EI_CHUNK_LEN);
    }
    tile_blocks(t, rows, n_rows, chunk);
    const float *q = rows->q + (size_t)row * t->query_words;
    if (ei_float_bytes(type))
        score_floats(n_rows, type, t, q, scores);
    else
        score_codes(n_rows, type, t, q, scores);
    for (int32_t r = 0; r < n_rows; r++) {
        m[row + r] = -INFINITY;
        l[row + r] = 0;
        if (t->low[r] < t->high[r])
            softmax_row(t, r, rows, row + r, chunk, scores + r * EI_SCORE_STRIDE, m + row + r, l + row + r);
    }
    o += (size_t)row * (size_t)t->value_dim;
    if (ei_float_bytes(type))
        weigh_floats(n_rows, type, t, scores, o);
    else
        weigh_codes(n_rows, type, t, l + row, scores, o);
}

/* -- any number of rows --------------------------------------------------------------------- */

/* Rows of a tile, largest first: each is one function for each type. */
#if EI_ATTENTION_VECTORS >= 24
#define EI_ATTENTION_TILES(X) X(12) X(8) X(6) X(4) X(3) X(2) X(1)
#elif EI_ATTENTION_VECTORS >= 6
#define EI_ATTENTION_TILES(X) X(6) X(4) X(3) X(2) X(1)
#else
#define EI_ATTENTION_TILES(X) X(1)
#endif

typedef void (*attend_fn)(attention_tile *t, const ei_attention_rows *rows, int32_t row, int32_t chunk, float *m,
                          float *l, float *o, float *scores);

#define TILE_OF(name, n, type)                                                                                         \
    static __attribute__((noinline)) void name(attention_tile *t, const ei_attention_rows *rows, int32_t row,          \
                                               int32_t chunk, float *m, float *l, float *o, float *scores) {           \
        attend(n, type, t, rows, row, chunk, m, l, o, scores);                                                         \
    }
#define TILE(n)                                                                                                        \
    TILE_OF(attend_f32_##n, n, EI_KV_F32)                                                                              \
    TILE_OF(attend_f16_##n, n, EI_KV_F16)                                                                              \
    TILE_OF(attend_q8_##n, n, EI_KV_Q8_0)                                                                              \
    TILE_OF(attend_q4_##n, n, EI_KV_Q4_0)
EI_ATTENTION_TILES(TILE)
#undef TILE

/* The largest tile that does not leave one or two rows behind, where there is one. */
static int32_t tile_rows(int32_t n) {
#define TILE(rows)                                                                                                     \
    if (n == (rows) || n - (rows) >= 3) return rows;
    EI_ATTENTION_TILES(TILE)
#undef TILE
    return 1;
}

void EI_FN(attention_chunk)(const ei_attention_rows *rows, int32_t chunk, float *m, float *l, float *o,
                            float *scratch) {
#define TILE(n) [n] = {attend_f32_##n, attend_f16_##n, attend_q8_##n, attend_q4_##n},
    static const attend_fn attend_of[][EI_N_KV_TYPES] = {EI_ATTENTION_TILES(TILE)};
#undef TILE
    const ei_kv *kv = rows->kv;
    attention_tile t = {.key_dim = kv->key_dim,
                        .value_dim = kv->value_dim,
                        .query_words = ei_query_words(kv),
                        .value_pair = ei_value_pair(kv)};
    for (int32_t row = 0; row < rows->n_rows;) {
        int32_t n = tile_rows(rows->n_rows - row);
        attend_of[n][kv->type](&t, rows, row, chunk, m, l, o, scratch);
        row += n;
    }
}

void EI_FN(attention_query)(const ei_kv *kv, const float *q, float scale, float *out) {
    if (ei_float_bytes(kv->type))
        prepare_floats(kv->key_dim, q, scale, out);
    else
        prepare_codes(kv->type, kv->key_dim, q, scale, out);
}

typedef void (*store_fn)(const ei_kv *kv, uint8_t *keys, uint8_t *values, int32_t lane, const float *k, const float *v);

void EI_FN(kv_store)(const ei_kv *kv, int32_t page, int32_t slot, const float *k, const float *v) {
    static const store_fn store_of[EI_N_KV_TYPES] = {store_f32, store_f16, store_q8, store_q4};
    for (int32_t h = 0; h < kv->n_kv_heads; h++) {
        size_t unit = (size_t)h * (EI_PAGE_LEN / 16) + (size_t)slot / 16;
        store_of[kv->type](kv, keys_at(kv, page, unit), values_at(kv, page, unit), slot % 16, k, v);
        k += kv->key_dim;
        v += kv->value_dim;
    }
}

/* -- merge ---------------------------------------------------------------------------------- */

void EI_FN(attention_merge)(int32_t value_dim, float *m, float *l, float *o, float mc, float lc, const float *oc) {
    if (mc == -INFINITY) return;
    if (*m == -INFINITY) {
        *m = mc;
        *l = lc;
        memcpy(o, oc, (size_t)value_dim * sizeof *o);
        return;
    }
    float largest = *m > mc ? *m : mc, a = exp_of(*m - largest), b = exp_of(mc - largest);
    *m = largest;
    *l = fmaf(*l, a, lc * b);
    vf scale = vf_set(a), scale_of_chunk = vf_set(b);
    for (int32_t d = 0; d < value_dim; d += 16) {
        int32_t n = value_dim - d;
        store_dims(o + d, vf_fma(load_dims(o + d, n), scale, vf_mul(load_dims(oc + d, n), scale_of_chunk)), n);
    }
}

/* out = o * (1/l); the sink is one more logit in the sum, without a value. */
void EI_FN(attention_finish)(int32_t value_dim, float m, float l, const float *o, const float *sink, float *out) {
    float a = 1.0f;
    if (sink) {
        float largest = m > *sink ? m : *sink;
        a = exp_of(m - largest);
        l = fmaf(l, a, exp_of(*sink - largest));
    }
    vf by = vf_set((1.0f / l) * a);
    for (int32_t d = 0; d < value_dim; d += 16)
        store_dims(out + d, vf_mul(load_dims(o + d, value_dim - d), by), value_dim - d);
}
