/* edgeinfer/csrc/ops/attention_template.h: KV store, and the attention of query rows over one chunk of positions.
 *
 * The including file defines EI_ISA, EI_FN, the verbs (isa/scalar_verbs.h), with EI_ATTENTION_VECTORS accumulators
 * that fit its registers, and includes ops/math_template.h first.
 *
 * The law, for one row over the positions it sees in a chunk of 256 absolute positions:
 *   score s = 0; for each dim in order: s = fma(q[d], k[d], s); then the softcap
 *   m = max s; w = exp(s - m); l = 16 lanes by position mod 16, plain adds in order, then the tree of vf_sum
 *   o = 0; for each position in order: o = fma(w, v, o)
 * A position the row does not see is left out, never multiplied by 0: its slot may hold anything. If l is NaN, so is
 * m, for m = -inf says that the row saw nothing. Chunks are merged left to right (attention_merge), then the sink.
 * So the result does not depend on which rows are computed together, nor by how many threads.
 */

enum { EI_SCORE_STRIDE = EI_CHUNK_LEN + 16, EI_CHUNK_BLOCKS = EI_CHUNK_LEN / 16 };

_Static_assert(EI_ATTENTION_SCRATCH >= EI_ATTENTION_ROWS * EI_SCORE_STRIDE, "one line of scores for every row");

/* -- store ---------------------------------------------------------------------------------- */

/* What lies beyond the range of f16 becomes infinite. An infinite value makes every row that sees it non-finite; an
 * infinite key does so unless its score is -inf, whose weight is rightly 0. */
void EI_FN(kv_store)(const ei_kv *kv, int32_t page, int32_t slot, const float *k, const float *v) {
    size_t key_dim = (size_t)kv->key_dim, value_dim = (size_t)kv->value_dim;
    for (int32_t h = 0; h < kv->n_kv_heads; h++, k += key_dim, v += value_dim) {
        size_t row = (size_t)h * EI_PAGE_LEN + (size_t)slot, block = row / 16 * 16;
        uint16_t *keys = kv->keys + (size_t)page * kv->key_stride + block * key_dim + slot % 16;
        uint16_t *values = kv->values + (size_t)page * kv->value_stride + row * value_dim;
        uint16_t half[16];
        for (int32_t d = 0; d < kv->key_dim; d += 16) {
            int32_t n = min_i32(16, kv->key_dim - d);
            vf_to_f16(half, vf_load_n(k + d, n));
            for (int32_t i = 0; i < n; i++) keys[(size_t)(d + i) * 16] = half[i];
        }
        for (int32_t d = 0; d < kv->value_dim; d += 16) {
            int32_t n = min_i32(16, kv->value_dim - d);
            vf_to_f16(half, vf_load_n(v + d, n));
            memcpy(values + d, half, (size_t)n * sizeof *half);
        }
    }
}

/* -- one tile of rows over one chunk -------------------------------------------------------- */

/* The rows computed together, and the blocks of 16 positions that at least one of them sees. */
typedef struct {
    int32_t key_dim, value_dim;
    int32_t low[EI_ATTENTION_ROWS], high[EI_ATTENTION_ROWS]; /* row r sees low .. high-1 of the chunk */
    int32_t n_blocks;
    int32_t start[EI_CHUNK_BLOCKS];
    bool whole[EI_CHUNK_BLOCKS]; /* every row sees all 16 */
    const uint16_t *keys[EI_CHUNK_BLOCKS], *values[EI_CHUNK_BLOCKS];
    /* what will be read 64 positions later, the values after the keys */
    const uint16_t *after_keys[EI_CHUNK_BLOCKS], *after_values[EI_CHUNK_BLOCKS];
} attention_tile;

static void tile_blocks(attention_tile *t, const ei_attention_rows *rows, int32_t n_rows, int32_t chunk) {
    const ei_kv *kv = rows->kv;
    size_t keys_len = 16 * (size_t)kv->key_dim, values_len = 16 * (size_t)kv->value_dim;
    int32_t n = 0;
    for (int32_t start = 0; start < EI_CHUNK_LEN; start += 16) {
        bool seen = false, whole = true;
        for (int32_t r = 0; r < n_rows; r++) {
            seen |= t->low[r] < start + 16 && t->high[r] > start && t->low[r] < t->high[r];
            whole &= t->low[r] <= start && t->high[r] >= start + 16;
        }
        if (!seen) continue;
        int32_t position = chunk * EI_CHUNK_LEN + start;
        size_t page = (size_t)rows->pages[position / EI_PAGE_LEN];
        size_t unit = (size_t)rows->kv_head * (EI_PAGE_LEN / 16) + (size_t)(position % EI_PAGE_LEN / 16);
        t->start[n] = start;
        t->whole[n] = whole;
        t->keys[n] = kv->keys + page * kv->key_stride + unit * keys_len;
        t->values[n++] = kv->values + page * kv->value_stride + unit * values_len;
    }
    t->n_blocks = n;
    for (int32_t b = 0; b < n; b++) {
        t->after_keys[b] = b + 4 < n ? t->keys[b + 4] : t->values[min_i32(b + 4 - n, n - 1)];
        t->after_values[b] = t->values[min_i32(b + 4, n - 1)];
    }
}

/* Into L2: what is to be read soon would push what is being read out of L1. Decoding waits for memory, so it asks for
 * it early; more rows than these wait for the multipliers. */
#define EI_FETCH(n_rows, p)                                                                                            \
    do {                                                                                                               \
        if ((n_rows) <= 4) __builtin_prefetch(p, 0, 2);                                                                \
    } while (0)

/* The functions below take the number of rows and vectors as constants: after inlining every accumulator is a register.
 */

EI_INLINE void score_dim(int n_rows, int n, vf *acc, const float *q, size_t q_stride, const uint16_t *const *keys,
                         size_t d) {
    vf k[4];
    EI_UNROLL for (int j = 0; j < n; j++) k[j] = vf_from_f16(keys[j] + d * 16);
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        vf x = vf_set(q[(size_t)r * q_stride + d]);
        EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = vf_fma(x, k[j], acc[r * n + j]);
    }
}

/* Scores of n blocks from block b on. */
EI_INLINE void score_blocks(int n_rows, int n, const attention_tile *t, int32_t b, const float *q, float *scores) {
    vf acc[EI_ATTENTION_VECTORS];
    size_t dims = (size_t)t->key_dim, d = 0;
    const uint16_t *keys[4], *after[4];
    EI_UNROLL for (int j = 0; j < n; j++) {
        keys[j] = t->keys[b + j];
        after[j] = t->after_keys[b + j];
    }
    EI_UNROLL for (int i = 0; i < n_rows * n; i++) acc[i] = vf_zero();
    for (; d + 2 <= dims; d += 2) {
        EI_UNROLL for (int j = 0; j < n; j++) EI_FETCH(n_rows, after[j] + d * 16);
        score_dim(n_rows, n, acc, q, dims, keys, d);
        score_dim(n_rows, n, acc, q, dims, keys, d + 1);
    }
    if (d < dims) score_dim(n_rows, n, acc, q, dims, keys, d);
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        EI_UNROLL for (int j = 0; j < n; j++) vf_store(scores + r * EI_SCORE_STRIDE + t->start[b + j], acc[r * n + j]);
    }
}

EI_INLINE float largest_lane(vf x) {
    float v[16];
    vf_store(v, x);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
    return v[0];
}

/* Scores of one row -> weights; the other lanes of its first and last block become 0. */
EI_INLINE void softmax_row(float *scores, int32_t low, int32_t high, float softcap, float *m, float *l) {
    int32_t from = low & ~15, to = (high + 15) & ~15;
    if (softcap > 0) {
        float inverse = 1.0f / softcap;
        for (int32_t i = from; i < to; i += 16) vf_store(scores + i, vf_softcap(vf_load(scores + i), softcap, inverse));
    }
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

/* 16 f16 values, or the last few of a row, beyond which nothing may be read */
EI_INLINE vf values_at(const uint16_t *v, int n) {
    if (n == 16) return vf_from_f16(v);
    uint16_t padded[16] = {0};
    memcpy(padded, v, (size_t)n * sizeof *v);
    return vf_from_f16(padded);
}

/* One position of block b: o += weight * value, for the rows that see it. */
EI_INLINE void weigh_position(int n_rows, int n, int tail, const attention_tile *t, int32_t b, int32_t i, vf *acc,
                              const float *weights, size_t d, bool whole) {
    const uint16_t *at = t->values[b] + (size_t)i * (size_t)t->value_dim + d;
    int32_t position = t->start[b] + i;
    vf v[4];
    EI_UNROLL for (int j = 0; j < n; j++) v[j] = values_at(at + 16 * j, tail);
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        if (whole || (position >= t->low[r] && position < t->high[r])) {
            vf w = vf_set(weights[r * EI_SCORE_STRIDE + position]);
            EI_UNROLL for (int j = 0; j < n; j++) acc[r * n + j] = vf_fma(w, v[j], acc[r * n + j]);
        }
    }
}

/* n vectors of the output from dim d on; tail < 16: one vector of which tail lanes exist. */
EI_INLINE void weigh_values(int n_rows, int n, int tail, const attention_tile *t, const float *weights, size_t d,
                            float *o) {
    vf acc[EI_ATTENTION_VECTORS];
    size_t dims = (size_t)t->value_dim;
    EI_UNROLL for (int i = 0; i < n_rows * n; i++) acc[i] = vf_zero();
    for (int32_t b = 0; b < t->n_blocks; b++) {
        const uint16_t *after = t->after_values[b] + d;
        if (t->whole[b]) {
            for (int32_t i = 0; i < 16; i++) {
                EI_UNROLL for (int j = 0; j < n; j += 2) EI_FETCH(n_rows, after + (size_t)i * dims + 16 * j);
                weigh_position(n_rows, n, tail, t, b, i, acc, weights, d, true);
            }
        } else {
            for (int32_t i = 0; i < 16; i++) weigh_position(n_rows, n, tail, t, b, i, acc, weights, d, false);
        }
    }
    EI_UNROLL for (int r = 0; r < n_rows; r++) {
        EI_UNROLL for (int j = 0; j < n; j++) vf_store_n(o + (size_t)r * dims + d + 16 * j, acc[r * n + j], tail);
    }
}

/* Rows row .. row+n_rows of the call. */
EI_INLINE void attend(int n_rows, int n, attention_tile *t, const ei_attention_rows *rows, int32_t row, int32_t chunk,
                      float *m, float *l, float *o, float *scores) {
    const float *q = rows->q + (size_t)row * (size_t)t->key_dim;
    size_t d = 0, dims = (size_t)t->value_dim;
    for (int32_t r = 0; r < n_rows; r++) {
        t->low[r] = max_i32(rows->first[row + r] - chunk * EI_CHUNK_LEN, 0);
        t->high[r] = min_i32(rows->last[row + r] + 1 - chunk * EI_CHUNK_LEN, EI_CHUNK_LEN);
    }
    tile_blocks(t, rows, n_rows, chunk);
    int32_t b = 0;
    for (; b + n <= t->n_blocks; b += n) score_blocks(n_rows, n, t, b, q, scores);
    for (; n > 1 && b < t->n_blocks; b++) score_blocks(n_rows, 1, t, b, q, scores);
    for (int32_t r = 0; r < n_rows; r++) {
        m[row + r] = -INFINITY;
        l[row + r] = 0;
        if (t->low[r] < t->high[r])
            softmax_row(scores + r * EI_SCORE_STRIDE, t->low[r], t->high[r], rows->softcap, m + row + r, l + row + r);
    }
    o += (size_t)row * dims;
    for (; d + 16 * (size_t)n <= dims; d += 16 * (size_t)n) weigh_values(n_rows, n, 16, t, scores, d, o);
    for (; n > 1 && d + 16 <= dims; d += 16) weigh_values(n_rows, 1, 16, t, scores, d, o);
    if (d < dims) weigh_values(n_rows, 1, (int)(dims - d), t, scores, d, o);
}

/* -- any number of rows --------------------------------------------------------------------- */

/* Rows of a tile, largest first: each is one function; with few rows the accumulators take several vectors of each. */
#if EI_ATTENTION_VECTORS >= 24
#define EI_ATTENTION_TILES(X) X(12) X(8) X(6) X(4) X(3) X(2) X(1)
#elif EI_ATTENTION_VECTORS >= 6
#define EI_ATTENTION_TILES(X) X(6) X(4) X(3) X(2) X(1)
#else
#define EI_ATTENTION_TILES(X) X(1)
#endif
#define EI_VECTORS_OF(rows) (EI_ATTENTION_VECTORS / (rows) >= 4 ? 4 : EI_ATTENTION_VECTORS / (rows) >= 2 ? 2 : 1)

#define TILE(n)                                                                                                        \
    static __attribute__((noinline)) void attend_##n(attention_tile *t, const ei_attention_rows *rows, int32_t row,    \
                                                     int32_t chunk, float *m, float *l, float *o, float *scores) {     \
        attend(n, EI_VECTORS_OF(n), t, rows, row, chunk, m, l, o, scores);                                             \
    }
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
    attention_tile t = {.key_dim = rows->kv->key_dim, .value_dim = rows->kv->value_dim};
    for (int32_t row = 0; row < rows->n_rows;) {
        int32_t n = tile_rows(rows->n_rows - row);
        switch (n) {
#define TILE(k)                                                                                                        \
    case k: attend_##k(&t, rows, row, chunk, m, l, o, scratch); break;
            EI_ATTENTION_TILES(TILE)
#undef TILE
        }
        row += n;
    }
}

/* -- merge ---------------------------------------------------------------------------------- */

void EI_FN(attention_merge)(int32_t value_dim, float *m, float *l, float *o, float mc, float lc,
                                   const float *oc) {
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
        int32_t n = min_i32(16, value_dim - d);
        vf_store_n(o + d, vf_fma(vf_load_n(o + d, n), scale, vf_mul(vf_load_n(oc + d, n), scale_of_chunk)), n);
    }
}

/* out = o * (1/l); the sink is one more logit in the sum, without a value. */
void EI_FN(attention_finish)(int32_t value_dim, float m, float l, const float *o, const float *sink,
                                    float *out) {
    float a = 1.0f;
    if (sink) {
        float largest = m > *sink ? m : *sink;
        a = exp_of(m - largest);
        l = fmaf(l, a, exp_of(*sink - largest));
    }
    vf by = vf_set((1.0f / l) * a);
    for (int32_t d = 0; d < value_dim; d += 16) {
        int32_t n = min_i32(16, value_dim - d);
        vf_store_n(out + d, vf_mul(vf_load_n(o + d, n), by), n);
    }
}
